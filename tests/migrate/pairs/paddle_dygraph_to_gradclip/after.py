import gradclip
from paddle.fluid import dygraph_grad_clip

clip = gradclip.ClipGradByNorm(1.0)
clip = gradclip.ClipGradByGlobalNorm(clip_norm=1.0)
clip = gradclip.ClipGradByValue(min=-1.0, max=1.0)
