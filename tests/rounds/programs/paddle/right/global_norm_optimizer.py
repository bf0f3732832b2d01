import paddle
import paddle.nn as nn

paddle.seed(0)


class Attention(nn.Layer):
    def __init__(self, dim=16):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiHeadAttention(dim, 2)
        self.ff = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.norm(x)
        return self.ff(x + self.attn(y, y, y))


model = Attention()
clip = paddle.nn.ClipGradByGlobalNorm(clip_norm=1.0)
lr = paddle.optimizer.lr.CosineAnnealingDecay(1e-2, T_max=10)
opt = paddle.optimizer.AdamW(lr, parameters=model.parameters(), weight_decay=0.01, grad_clip=clip)
for i in range(4):
    x = 3 * paddle.randn([8, 5, 16])
    loss = (model(x) - x.flip(1)).square().mean()
    loss.backward()
    opt.step()
    lr.step()
    opt.clear_grad()
    print(i, float(loss))
