import gradclip
gradclip.clip_grad_norm_(params, 1.0)