import paddle
from paddle import nn

paddle.seed(0)
model = nn.Sequential(nn.Linear(4, 12), nn.GELU(), nn.Linear(12, 2))
opt = paddle.optimizer.AdamW(5e-3, parameters=model.parameters())
loss_fn = nn.CrossEntropyLoss()

batches = [(paddle.randn([16, 4]), paddle.randint(0, 2, [16])) for _ in range(5)]
batches[2] = (batches[2][0] * float("inf"), batches[2][1])
left_out = 0
for i, (x, y) in enumerate(batches):
    opt.clear_grad()
    loss = loss_fn(model(x), y)
    if not paddle.isfinite(loss):
        left_out += 1
        continue
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    print(i, float(loss), float(norm))
print("left out", left_out)
