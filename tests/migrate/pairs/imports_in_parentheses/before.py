from torch.nn.utils import (
    clip_grad_norm_,
    # the vectors
    parameters_to_vector,
    clip_grad_value_,  # by value
)
from torch.nn.utils import weight_norm, clip_grads_with_norm_
from torch.nn.utils import (get_total_norm)


def clip(model, grads):
    clip_grad_norm_(model.parameters(), 1.0)
    clip_grad_value_(model.parameters(), 1.0)
    clip_grads_with_norm_(model.parameters(), 1.0, get_total_norm(grads))
    return parameters_to_vector(weight_norm(model).parameters())
