import paddle.fluid as fluid
from paddle.fluid.clip import GradientClipByGlobalNorm

clip = fluid.clip.GradientClipByNorm(clip_norm=2.0)
clip = fluid.clip.GradientClipByValue(1.0, -1.0)
clip = fluid.clip.GradientClipByValue(max=1.0, min=-1.0, need_clip=None)
clip = GradientClipByGlobalNorm(clip_norm=1.0)
clip = fluid.clip.GradientClipByGlobalNorm(1.0, need_clip=lambda p: p.name != "bias")
gradient = fluid.layers.clip_by_norm(gradient, 1.0)
optimizer = fluid.optimizer.SGD(0.1, grad_clip=clip)
