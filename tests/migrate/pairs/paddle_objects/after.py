import gradclip
import paddle
from paddle import nn

clip = gradclip.ClipGradByNorm(clip_norm=1.0)
clip = gradclip.ClipGradByValue(max=1.0, min=-0.5)
clip = gradclip.ClipGradByGlobalNorm(args.max_grad_norm) if args.max_grad_norm > 0 else None
optimizer = paddle.optimizer.AdamW(
    learning_rate=0.1,
    parameters=model.parameters(),
    grad_clip=gradclip.ClipGradByGlobalNorm(args.clip, group_name="all"),
)
assert isinstance(clip, (paddle.nn.ClipGradByNorm, nn.ClipGradByValue))
pairs = gradclip.ClipGradByNorm(1.0)(pairs)
