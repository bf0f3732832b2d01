import gradclip

# gradclip: GM116 `a.parameters()` is joined with itself: a parameter that is listed twice counts twice natively, and once in gradclip.
gradclip.clip_grad_norm_([*a.parameters(), *a.parameters()], 1.0)
gradclip.clip_grad_norm_([*a.parameters()], 1.0)
