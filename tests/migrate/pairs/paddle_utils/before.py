import paddle
from paddle.nn.utils import clip_grad_norm_, clip_grad_value_

clip_grad_norm_(model.parameters(), 1.0, norm_type=1)
clip_grad_value_(parameters=model.parameters(), clip_value=1.0)
paddle.nn.utils.clip_grad_norm_((p for p in model.parameters()), 1.0)
gradient = paddle.nn.clip.clip_by_norm(gradient, max_norm=1.0)
