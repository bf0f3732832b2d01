import paddle
import paddle.fluid as fluid
from paddle.fluid.dygraph_grad_clip import GradClipByNorm, GradClipByValue

clip = paddle.nn.ClipGradByGlobalNorm(5.0)
clip = paddle.nn.ClipGradByValue(min=-5.0, max=5.0)
clip = GradClipByValue(-5.0)
clip = paddle.nn.ClipGradByGlobalNorm(clip_norm=5.0)
optimizer.minimize(loss, grad_clip=GradClipByNorm(5.0))
