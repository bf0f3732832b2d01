import paddle
from paddle import nn

paddle.seed(4)


class WideDeep(nn.Layer):
    def __init__(self, ids=100, dim=8, exempt_embedding=True):
        super().__init__()
        attr = paddle.ParamAttr(initializer=nn.initializer.Normal(std=0.01))
        if exempt_embedding:
            attr = paddle.ParamAttr(initializer=nn.initializer.Normal(std=0.01), need_clip=False)
        self.emb = nn.Embedding(ids, dim, weight_attr=attr)
        self.deep = nn.Sequential(nn.Linear(3 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids):
        return self.deep(self.emb(ids).flatten(1))


model = WideDeep()
opt = paddle.optimizer.Adagrad(0.05, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(0.1))
for i in range(4):
    ids = paddle.randint(0, 100, [32, 3])
    label = (ids[:, :1] % 2).astype("float32")
    loss = nn.functional.binary_cross_entropy_with_logits(model(ids), label)
    loss.backward()
    opt.step()
    opt.clear_grad()
    print(i, float(loss))
