import gradclip
from torch.nn.utils import (
    # the vectors
    parameters_to_vector,
    # by value
)
from torch.nn.utils import weight_norm


def clip(model, grads):
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_value_(model.parameters(), 1.0)
    gradclip.clip_grads_with_norm_(model.parameters(), 1.0, gradclip.get_total_norm(grads))
    return parameters_to_vector(weight_norm(model).parameters())
