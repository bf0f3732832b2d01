import gradclip
from torch.nn.utils import clip_grad_norm_

def step(model, optimizer):
    if model:
        # gradclip: MANUAL GM114 A comment that is here already.
        clip_grad_norm_(model.parameters(), 0)
    # gradclip: MANUAL GM108 `optimizer.step()` takes the gradients before they are clipped.
    optimizer.step(); gradclip.clip_grad_norm_(
        model.parameters(), 1.0)
    # gradclip: MANUAL GM108 `optimizer.step()` takes the gradients before they are clipped.
    # gradclip: MANUAL GM114 `max_norm=-1` is -1, which gradclip refuses.
    if optimizer: clip_grad_norm_(model.parameters(), -1)
    elif clip_grad_norm_(model.parameters(), *model):
        # gradclip: MANUAL GM108 `optimizer.step()` takes the gradients before they are clipped.
        gradclip.clip_grad_norm_(model.parameters(), 1.0, 2.0, False, None)
