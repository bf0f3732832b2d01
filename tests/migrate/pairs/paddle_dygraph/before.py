import paddle
import paddle.fluid as fluid
from paddle.fluid.dygraph_grad_clip import GradClipByGlobalNorm, GradClipByNorm, GradClipByValue

clip = GradClipByGlobalNorm(5.0, dtype="float32")
clip = GradClipByValue(-5.0, 5.0)
clip = GradClipByValue(-5.0)
clip = GradClipByGlobalNorm(max_global_norm=5.0)
optimizer.minimize(loss, grad_clip=GradClipByNorm(5.0))
