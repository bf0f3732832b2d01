import paddle
from paddle import nn
from paddle.nn import ClipGradByGlobalNorm

clip = paddle.nn.ClipGradByNorm(clip_norm=1.0)
clip = nn.ClipGradByValue(max=1.0, min=-0.5)
clip = ClipGradByGlobalNorm(args.max_grad_norm) if args.max_grad_norm > 0 else None
optimizer = paddle.optimizer.AdamW(
    learning_rate=0.1,
    parameters=model.parameters(),
    grad_clip=paddle.nn.ClipGradByGlobalNorm(args.clip, group_name="all"),
)
assert isinstance(clip, (paddle.nn.ClipGradByNorm, nn.ClipGradByValue))
pairs = paddle.nn.clip.ClipGradByNorm(1.0)(pairs)
