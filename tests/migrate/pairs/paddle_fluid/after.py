import paddle
import paddle.fluid as fluid

clip = paddle.nn.ClipGradByNorm(clip_norm=2.0)
clip = paddle.nn.ClipGradByValue(1.0, -1.0)
clip = paddle.nn.ClipGradByValue(max=1.0, min=-1.0)
clip = paddle.nn.ClipGradByGlobalNorm(clip_norm=1.0)
clip = fluid.clip.GradientClipByGlobalNorm(1.0, need_clip=lambda p: p.name != "bias")
gradient = paddle.nn.clip.clip_by_norm(gradient, 1.0)
optimizer = fluid.optimizer.SGD(0.1, grad_clip=clip)
