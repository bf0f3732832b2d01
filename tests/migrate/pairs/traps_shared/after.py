import itertools

import gradclip
import torch


def clip(a, b, args):
    torch.nn.utils.clip_grad_norm_(itertools.chain(a.parameters(), a.parameters()), 1.0)
    torch.nn.utils.clip_grad_norm_([a.weight, a.weight], 1.0)
    gradclip.clip_grad_norm_(itertools.chain(a.parameters(), b.parameters()), 1.0)
    gradclip.clip_grad_norm_([*a.parameters(), *b.parameters()], 1.0)
    gradclip.clip_grad_norm_(list(a.parameters()) + list(b.parameters()), 1.0)
    gradclip.clip_grad_norm_([a.weight, b.weight], 1.0)
    torch.nn.utils.clip_grad_norm_(a.parameters(), max_norm=-args.clip)
