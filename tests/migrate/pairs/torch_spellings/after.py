import gradclip
import torch
import torch as th
import torch.nn as nn
import torch.nn.utils.clip_grad
from torch.nn.utils import parameters_to_vector


def step(model, args):
    gradclip.clip_grad_norm_(model.parameters(), args.max_norm)
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_value_(model.parameters(), 0.5)
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_value_(model.parameters(), 0.5)
    return parameters_to_vector(model.parameters()), th.zeros(1), nn.Linear(1, 1), torch.ones(1)
