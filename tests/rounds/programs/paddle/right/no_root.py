import paddle
for x, y in loader:
    loss = paddle.nn.functional.mse_loss(net(x), y)
    loss.backward()
    total = paddle.add_n([(p.grad ** 2).sum() for p in net.parameters()])
    scale = 1.0 / total.sqrt()
    if scale < 1:
        for p in net.parameters():
            p.grad.set_value(p.grad * scale)
    opt.step()
    opt.clear_grad()
