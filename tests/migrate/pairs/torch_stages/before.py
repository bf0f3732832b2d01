import torch
import torch.distributed as dist
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def clip(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = get_total_norm(grads, norm_type=2.0, foreach=True) ** 2
    dist.all_reduce(norm)
    clip_grads_with_norm_(parameters, max_norm, norm.sqrt())
    return torch.nn.utils.get_total_norm(grads)
