import gradclip

# gradclip: GM116 `[*a.parameters(), *b.parameters()]` joins several: a parameter that two of them share counts twice natively, and once in gradclip.
gradclip.clip_grad_norm_([*a.parameters(), *b.parameters()], 1.0)
gradclip.clip_grad_norm_([*a.parameters()], 1.0)
