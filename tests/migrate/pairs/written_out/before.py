import math

import torch


def without_epsilon(net, theta):
    params = [p for p in net.parameters() if p.requires_grad]
    norm = torch.sqrt(sum(torch.sum((p.grad ** 2)) for p in params))
    if norm > theta:
        for param in params:
            param.grad[:] *= theta / norm


def with_epsilon(parameters, max_norm):
    """It has a docstring."""
    total_norm = 0.0
    # over all of them
    for p in parameters:
        if p.grad is not None:
            param_norm = p.grad.data.norm(2)
            total_norm += param_norm.item() ** 2
    total_norm = total_norm ** (1.0 / 2)
    clip_coef = max_norm / (total_norm + 1e-6)  # as torch has it
    if clip_coef < 1:
        for p in parameters:
            if p.grad is None:
                continue
            p.grad.data.mul_(clip_coef)
    return total_norm


def stacked(model, c):
    norm = torch.norm(torch.stack([p.grad.detach().norm(2) for p in model.parameters() if p.grad is not None]), 2)
    coefficient = torch.clamp(c / (norm + 1e-6), max=1.0)
    for p in model.parameters():
        p.grad.mul_(coefficient)


def squares(parameters, limit):
    norm = 0
    for p in parameters:
        norm += p.grad.pow(2).sum()
    norm = math.sqrt(norm)
    if norm >= limit:
        scale = limit / norm
        for p in parameters:
            p.grad = p.grad * scale
    for p in parameters:
        print(p)
    return torch.tensor(norm)


def a_minimum(self):
    norm = sum([torch.linalg.vector_norm(p.grad) ** 2 for p in self.params]).sqrt()
    coefficient = min(1.0, self.limit / norm)
    for p in self.params:
        p.grad *= coefficient


def anothers_epsilon(parameters, limit):
    norm = torch.sqrt(sum(torch.sum(p.grad ** 2) for p in parameters))
    coefficient = limit / (norm + 1e-10)
    if coefficient < 1:
        for p in parameters:
            p.grad.mul_(coefficient)


def coefficient_is_wanted(parameters, limit):
    norm = torch.sqrt(sum(torch.square(p.grad).sum() for p in parameters))
    coefficient = limit / (norm + 1e-6)
    if coefficient < 1:
        for p in parameters:
            p.grad.mul_(coefficient)
    return coefficient


def other_parameters(some, others, limit):
    norm = torch.sqrt(sum(torch.sum(p.grad ** 2) for p in some))
    if norm > limit:
        for p in others:
            p.grad *= limit / norm


def of_order_one(parameters, limit):
    norm = sum(p.grad.norm(1) for p in parameters)
    if norm > limit:
        for p in parameters:
            p.grad.mul_(limit / norm, out=p.grad)


def clamps(parameters, c):
    for p in parameters:
        p.grad.data.clamp_(-1, 1)
    for p in parameters:
        p.grad.clamp_(min=-c, max=c)
        p.grad.clamp_(-2, 1)
        p.grad.clamp_(-c)
        p.grad.clamp_(-max_norm, max_norm)
        q = p.grad.clamp_(-c, c)


def only_some(model, max_norm):
    total_norm = torch.sqrt(sum(p.grad.norm() ** 2 for p in model.parameters() if p.is_head and p.grad is not None))
    coef = max_norm / (total_norm + 1e-6)
    if coef < 1:
        for p in model.parameters():
            if p.is_head or p.grad is None:
                continue
            p.grad.mul_(coef)


def not_the_frozen(parameters, frozen, max_norm):
    total_norm = torch.sqrt(sum(p.grad.norm() ** 2 for p in parameters))
    coef = max_norm / (total_norm + 1e-6)
    if coef < 1:
        for p in parameters:
            if p not in frozen and p.grad is not None:
                p.grad.data.mul_(coef)


def read_by_a_function_within(parameters, max_norm):
    total_norm = torch.sqrt(sum(p.grad.norm() ** 2 for p in parameters))
    coef = max_norm / (total_norm + 1e-6)
    if coef < 1:
        for p in parameters:
            p.grad.mul_(coef)

    def scaled_by():
        return coef

    return scaled_by


class Kept:
    def clip(self, parameters, max_norm):
        self.norm = torch.sqrt(sum(p.grad.norm() ** 2 for p in parameters))
        coef = max_norm / (self.norm + 1e-6)
        if coef < 1:
            for p in parameters:
                p.grad.mul_(coef)
