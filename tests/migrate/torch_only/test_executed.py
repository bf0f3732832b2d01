"""A training step with torch, before and after the migration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from migrate.codemods import migrate
from migrate.executed import agree

STEP = """
import torch
import torch.nn as nn
{imports}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = nn.functional.mse_loss(model(torch.randn(16, 20)), 100 * torch.randn(16, 5))
loss.backward()
RAW = [p.grad.numpy().copy() for p in model.parameters()]
{clip}
GRADIENTS = [p.grad.numpy().copy() for p in model.parameters()]
optimizer.step()
"""

CLIPS = {
    "the norm": ("", "norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)\nNORMS = [norm.numpy()]", ["GT101"]),
    "a norm of order 1": ("", "nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5, norm_type=1)", ["GT101"]),
    "a norm of order inf": ("", "nn.utils.clip_grad_norm_(model.parameters(), 0.5, float('inf'), True)", ["GT101"]),
    "a norm of order 3": ("", "nn.utils.clip_grad_norm_(model.parameters(), 0.5, 3.0, foreach=False)", ["GT101"]),
    "an iterator": (
        "import itertools",
        "nn.utils.clip_grad_norm_(itertools.chain(model.parameters()), 0.5)",
        ["GT101"],
    ),
    "a group at a time": (
        "",
        "for group in optimizer.param_groups:\n    nn.utils.clip_grad_norm_(group['params'], 0.01)",
        ["GT101"],
    ),
    "another name": (
        "from torch.nn.utils.clip_grad import clip_grad_norm_ as clip",
        "clip(model.parameters(), 0.5).item()",
        ["GT101"],
    ),
    "a limit that is not reached": ("", "MEASURES = nn.utils.clip_grad_norm_(model.parameters(), 1e6)", ["GT101"]),
    "an infinite limit": ("", "MEASURES = nn.utils.clip_grad_norm_(model.parameters(), float('inf'))", ["GT101"]),
    "the values": ("", "nn.utils.clip_grad_value_(model.parameters(), 0.01)", ["GT103"]),
    "two stages": (
        "from torch.nn.utils import clip_grads_with_norm_, get_total_norm",
        "norm = get_total_norm([p.grad for p in model.parameters()])\n"
        "clip_grads_with_norm_(model.parameters(), 0.5, 2 * norm)\nNORMS = [norm.numpy()]",
        ["GT104", "GT105"],
    ),
}


@pytest.mark.parametrize("name", CLIPS)
def test_the_step_is_the_same(name: str) -> None:
    imports, clip, codes = CLIPS[name]
    agree(STEP.format(imports=imports, clip=clip), codes)


@pytest.mark.filterwarnings("ignore:.*clip_grad_norm. is now deprecated:FutureWarning")
@pytest.mark.parametrize("to", ["gradclip", "torch"])
def test_the_deprecated_name(to: str) -> None:
    source = STEP.format(imports="", clip="nn.utils.clip_grad_norm(model.parameters(), 0.5)")
    agree(source, ["GT102"], to=to)


def test_several_steps() -> None:
    loop = """
import torch
torch.manual_seed(0)
weights = [torch.nn.Parameter(torch.zeros(3, 4)), torch.nn.Parameter(torch.zeros(4))]
optimizer = torch.optim.Adam(weights, lr=0.1)
RAW, GRADIENTS, NORMS = [], [], []
for step in range(5):
    optimizer.zero_grad()
    sum((p * torch.randn(p.shape)).sum() for p in weights).backward()  # gradients that no rounding of the weights moves
    RAW += [p.grad.numpy().copy() for p in weights]
    norm = torch.nn.utils.clip_grad_norm_(weights, max_norm=step / 2)
    NORMS.append(norm.numpy())
    GRADIENTS += [p.grad.numpy().copy() for p in weights]
    optimizer.step()
"""
    agree(loop, ["GT101"])


WRITTEN_OUT = (Path(__file__).parents[1] / "pairs" / "written_out" / "before.py").read_text(encoding="utf-8")
CALLS = {
    "without_epsilon": lambda f, parameters, limit: f(Holder(parameters), limit),
    "with_epsilon": lambda f, parameters, limit: f(parameters, limit),
    "stacked": lambda f, parameters, limit: f(Holder(parameters), limit),
    "squares": lambda f, parameters, limit: f(parameters, limit),
    "a_minimum": lambda f, parameters, limit: f(SimpleNamespace(params=parameters, limit=limit)),
    "clamps": lambda f, parameters, limit: f(parameters, limit),
}


class Holder(torch.nn.Module):
    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__()
        self.held = torch.nn.ParameterList(parameters)


@pytest.mark.parametrize("limit", [0.5, 100.0])
@pytest.mark.parametrize("name", CALLS)
def test_a_clip_that_is_written_out_does_the_same_as_one_call(name: str, limit: float) -> None:
    found = []
    for source in (WRITTEN_OUT, migrate(WRITTEN_OUT).source):
        scope: dict[str, object] = {"max_norm": 1.0}
        exec(compile(source, "written_out", "exec"), scope)
        torch.manual_seed(3)
        parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 2))]
        for one in parameters:
            one.grad = torch.randn_like(one) * 3
        result = CALLS[name](scope[name], parameters, limit)
        found.append([one.grad for one in parameters] + ([] if result is None else [torch.as_tensor(result)]))
    for before, after in zip(*found, strict=True):
        torch.testing.assert_close(after, before, check_dtype=False, rtol=1e-6, atol=0)
