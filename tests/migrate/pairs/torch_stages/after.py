import gradclip
import torch.distributed as dist


def clip(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = gradclip.get_total_norm(grads, norm_type=2.0, foreach=True) ** 2
    dist.all_reduce(norm)
    gradclip.clip_grads_with_norm_(parameters, max_norm, norm.sqrt())
    return gradclip.get_total_norm(grads)
