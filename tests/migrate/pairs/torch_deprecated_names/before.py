from torch.nn.utils import clip_grad_norm, weight_norm
from torch.nn.utils.clip_grad import clip_grad_norm as clip


def train(model):
    clip_grad_norm(model.parameters(), 0.25)
    clip(weight_norm(model).parameters(), 0.25)
