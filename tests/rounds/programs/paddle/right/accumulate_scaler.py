import paddle

net = paddle.nn.Linear(3, 1)
opt = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())
scaler = paddle.amp.GradScaler()
for i in range(8):
    with paddle.amp.auto_cast():
        loss = net(paddle.ones([2, 3])).mean() / 4
    scaler.scale(loss).backward()
    if i % 4 != 3:
        continue
    scaler.unscale_(opt)
    paddle.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.clear_grad()
print(float(net.bias.sum()))
