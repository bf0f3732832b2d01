import gradclip as gc


def clip(model):
    gc.clip_grad_norm_(model.parameters(), 1.0)
    gc.clip_grad_value_(model.parameters(), 1.0)
