import gradclip
import paddle.fluid as fluid

clip = gradclip.GradientClipByNorm(clip_norm=2.0)
clip = gradclip.GradientClipByValue(1.0, -1.0)
clip = gradclip.GradientClipByValue(max=1.0, min=-1.0)
clip = gradclip.GradientClipByGlobalNorm(clip_norm=1.0)
clip = fluid.clip.GradientClipByGlobalNorm(1.0, need_clip=lambda p: p.name != "bias")
gradient = gradclip.clip_by_norm(gradient, 1.0)
optimizer = fluid.optimizer.SGD(0.1, grad_clip=clip)
