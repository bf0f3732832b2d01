import paddle.fluid as fluid

fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=1.0))
fluid.clip.set_gradient_clip(clip, param_list=["fc.w_0"])
attribute = fluid.ParamAttr(name="w", gradient_clip=fluid.clip.GradientClipByValue(max=1.0, min=-1.0))
attribute = fluid.ParamAttr(name="w", gradient_clip=None)
