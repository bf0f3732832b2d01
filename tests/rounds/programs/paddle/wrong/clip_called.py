import paddle

clip = paddle.nn.ClipGradByGlobalNorm(1.0)
model = paddle.nn.Linear(4, 1)
opt = paddle.optimizer.SGD(0.1, parameters=model.parameters())
for _ in range(3):
    loss = model(paddle.ones([2, 4])).mean()
    loss.backward()
    params_grads = [(p, p.grad) for p in model.parameters()]
    clip(params_grads)
    opt.step()
    opt.clear_grad()
    print(float(loss))
