import paddle
model = paddle.nn.Linear(4, 1)
optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))

def epoch(batches):
    optimizer.clear_grad()
    for x, y in batches:
        loss = paddle.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(float(loss))

for _ in range(3):
    epoch([(paddle.randn([8, 4]), paddle.randn([8, 1])) for _ in range(4)])
