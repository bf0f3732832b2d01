import paddle
from paddle import nn

paddle.seed(3)


def mlp(n_in, n_hidden, n_out):
    attr = paddle.ParamAttr(initializer=nn.initializer.Normal(std=0.5), need_clip=False)
    return nn.Sequential(
        nn.Linear(n_in, n_hidden, weight_attr=attr, bias_attr=attr),
        nn.Tanh(),
        nn.Linear(n_hidden, n_out, weight_attr=attr, bias_attr=attr),
    )


net = mlp(6, 32, 1)
clip = nn.ClipGradByGlobalNorm(0.5)
opt = paddle.optimizer.Momentum(0.001, 0.9, parameters=net.parameters(), grad_clip=clip)
for epoch in range(4):
    x = paddle.randn([64, 6])
    loss = ((net(x) - 40 * x[:, :1]) ** 2).mean()
    loss.backward()
    opt.step()
    opt.clear_grad()
    print(epoch, float(loss))
