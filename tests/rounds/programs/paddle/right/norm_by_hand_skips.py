import math

import paddle
from paddle import nn

paddle.seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = paddle.optimizer.Adam(
    learning_rate=0.01, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0)
)
batches = [(paddle.randn([8, 4]), paddle.randn([8, 1])) for _ in range(6)]
batches[2][0][0, 0] = math.inf


def norm_of(parameters):
    return math.sqrt(sum(float((p.grad**2).sum()) for p in parameters))


for x, y in batches:
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    if not math.isfinite(norm_of(model.parameters())):
        optimizer.clear_grad()
        continue
    optimizer.step()
    optimizer.clear_grad()
