import torch

torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
torch.nn.utils.clip_grad_norm_(model.parameters(), 0)
torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
