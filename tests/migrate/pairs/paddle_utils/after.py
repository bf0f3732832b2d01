import gradclip
import paddle

gradclip.clip_grad_norm_(model.parameters(), 1.0, norm_type=1)
gradclip.clip_grad_value_(parameters=model.parameters(), clip_value=1.0)
paddle.nn.utils.clip_grad_norm_((p for p in model.parameters()), 1.0)
gradient = gradclip.clip_by_norm(gradient, clip_norm=1.0)
