"""Right: gradclip's object in the optimizer."""

import paddle
from start import regression

from gradclip.backends.paddle import grad_clip
from gradclip.dialects.torch import clip_grad_norm

model, loss = regression()
optimizer = paddle.optimizer.SGD(0.01, model.parameters(), grad_clip=grad_clip(clip_grad_norm(1.0)))

for _ in range(6):
    loss().backward()
    optimizer.step()
    optimizer.clear_grad()
