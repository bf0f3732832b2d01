import torch

torch.nn.utils.clip_grad_norm_([*a.parameters(), *a.parameters()], 1.0)
torch.nn.utils.clip_grad_norm_([*a.parameters()], 1.0)
