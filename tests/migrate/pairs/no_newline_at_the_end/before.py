import torch
torch.nn.utils.clip_grad_norm_(params, 1.0)