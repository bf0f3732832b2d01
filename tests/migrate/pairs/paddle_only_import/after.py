import gradclip
from paddle.nn import ClipGradByNorm

CLIP = gradclip.ClipGradByNorm(1.0)
