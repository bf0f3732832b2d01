"""What a user of PyTorch writes."""

from collections.abc import Iterable
from typing import assert_type

import torch
from torch import Tensor, nn

import gradclip
from gradclip import dialects
from gradclip.backends.torch import step_pre_hook

model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rule = dialects.torch.clip_grad_norm(max_norm=torch.tensor(1.0))
monitor = gradclip.Monitor()


def train(batches: list[Tensor]) -> Tensor:
    norm = torch.zeros(())
    for batch in batches:
        optimizer.zero_grad()
        loss: Tensor = model(batch).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = gradclip.clip_grad_norm_(model.parameters(), 1.0)
        norm = gradclip.clip_grad_norm_(list(model.parameters()), max_norm=1.0, norm_type=2.0, error_if_nonfinite=True)
        norm = gradclip.clip_grad_norm_(model[0].parameters(), 1.0, foreach=True)
        gradclip.clip_grad_value_(model.parameters(), 0.5)
        total = gradclip.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        gradclip.clip_grads_with_norm_(model.parameters(), 1.0, total)
        monitor.update(gradclip.clip_(model.parameters(), rule))
        optimizer.step()
    return norm


linear = nn.Linear(2, 1)
assert_type(gradclip.clip_grad_norm_(linear.weight, 1.0), Tensor)
assert_type(gradclip.clip_grad_norm_(linear.named_parameters(), 1.0), Tensor)
assert_type(gradclip.clip_grad_norm_(dict(linear.named_parameters()), 1.0), Tensor)
assert_type(gradclip.clip_(linear.parameters(), rule).grads, list[Tensor | None])
assert_type(gradclip.clip_(linear.named_parameters(), rule).grads, dict[str, Tensor | None])
assert_type(gradclip.clip(torch.ones(2), rule).grads, Tensor)
assert_type(gradclip.clip([torch.ones(2)], rule).grads, list[Tensor])
assert_type(gradclip.clip_by_norm(torch.ones(2), 1.0), Tensor)
assert_type(gradclip.clip_by_global_norm([torch.ones(2)], 1.0), tuple[list[Tensor], Tensor])

hook = step_pre_hook(rule, fused=False, monitor=monitor)
handle = optimizer.register_step_pre_hook(hook)
if hook.last is not None:
    print(float(hook.last.norm))
handle.remove()
optimizer = gradclip.clipped(optimizer, rule, monitor=monitor, patience=3)
sgd: torch.optim.SGD = gradclip.clipped(torch.optim.SGD(linear.parameters()), rule)
slotted = gradclip.clipped(torch.optim.SGD(model.parameters()), rule)
print(f"norm before: {slotted.gradclip.last.norm:.3f}", slotted.param_groups[0]["lr"])


def clipped_list(grads: list[Tensor]) -> list[Tensor]:
    return gradclip.clip(grads, rule).grads


def norm_of(grads: dict[str, Tensor]) -> Tensor:
    return gradclip.clip(grads, rule).norm


def of_any(parameters: Iterable[Tensor]) -> Tensor:
    return gradclip.clip_grad_norm_(parameters, 1.0)
