import torch
import torch as th
import torch.nn as nn
import torch.nn.utils as U
import torch.nn.utils.clip_grad
from torch import nn as network
from torch.nn import utils
from torch.nn.utils import clip_grad, clip_grad_norm_, parameters_to_vector
from torch.nn.utils.clip_grad import clip_grad_value_ as clip_value


def step(model, args):
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
    th.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    U.clip_grad_norm_(model.parameters(), 1.0)
    torch.nn.utils.clip_grad.clip_grad_norm_(model.parameters(), 1.0)
    network.utils.clip_grad_norm_(model.parameters(), 1.0)
    utils.clip_grad_value_(model.parameters(), 0.5)
    clip_grad.clip_grad_norm_(model.parameters(), 1.0)
    clip_grad_norm_(model.parameters(), 1.0)
    clip_value(model.parameters(), 0.5)
    return parameters_to_vector(model.parameters()), th.zeros(1), nn.Linear(1, 1), torch.ones(1)
