import gradclip
import torch
from torch.distributed.tensor import DTensor

norm = gradclip.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
print(gradclip.clip_grad_norm_(model.parameters(), max_norm=1.0, foreach=True).full_tensor().item())


def asked(parameters):
    total = gradclip.clip_grad_norm_(parameters, 1.0)
    if isinstance(total, DTensor):
        total = total.full_tensor()
    return total


def used(parameters):
    total = gradclip.clip_grad_norm_(parameters, 1.0)
    return total.full_tensor()


def nothing_is_returned(parameters, total_norm):
    total_norm = total_norm.full_tensor()
    gradclip.clip_grads_with_norm_(parameters, 1.0, total_norm)
    gradclip.clip_grad_value_(parameters, 1.0)


def handed_on(parameters):
    return gradclip.clip_grad_norm_(parameters, 1.0)


print(grad_norm().full_tensor())
