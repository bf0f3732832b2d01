import math

import gradclip
import torch
from gradclip.dialects import paddle as paddle_rules


def without_epsilon(net, theta):
    params = [p for p in net.parameters() if p.requires_grad]
    gradclip.clip_(params, paddle_rules.clip_grad_by_global_norm(theta))


def with_epsilon(parameters, max_norm):
    """It has a docstring."""
    # over all of them
    # as torch has it
    total_norm = gradclip.clip_grad_norm_(parameters, max_norm).item()
    return total_norm


def stacked(model, c):
    gradclip.clip_grad_norm_(model.parameters(), c)


def squares(parameters, limit):
    norm = gradclip.clip_(parameters, paddle_rules.clip_grad_by_global_norm(limit)).norm.item()
    for p in parameters:
        print(p)
    return torch.tensor(norm)


def a_minimum(self):
    gradclip.clip_(self.params, paddle_rules.clip_grad_by_global_norm(self.limit))


def anothers_epsilon(parameters, limit):
    gradclip.clip_(parameters, paddle_rules.clip_grad_by_global_norm(limit))


def coefficient_is_wanted(parameters, limit):
    norm = torch.sqrt(sum(torch.square(p.grad).sum() for p in parameters))
    coefficient = limit / (norm + 1e-6)
    gradclip.clip_grad_norm_(parameters, limit)
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
        gradclip.clip_grad_value_(p, 1)
    for p in parameters:
        gradclip.clip_grad_value_(p, c)
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
    gradclip.clip_grad_norm_(parameters, max_norm)

    def scaled_by():
        return coef

    return scaled_by


class Kept:
    def clip(self, parameters, max_norm):
        self.norm = gradclip.clip_grad_norm_(parameters, max_norm)
