"""``reduce=`` with a function, on processes without gradients."""

from __future__ import annotations

import math

import pytest
import torch

import gradclip
from gradclip.dialects import torch as dialect


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2, dtype=dtype)) for _ in range(2)]


@pytest.mark.filterwarnings("ignore:None of the parameters has a gradient")
@pytest.mark.parametrize("order", [-1.0, -2.0, -0.5, -math.inf, 1.0, 2.0, math.inf, 0.0])
def test_without_gradients_anywhere_the_norm_is_zero(order: float) -> None:
    rule = dialect.clip_grad_norm(1.0, order)
    assert float(gradclip.norm(parameters(), rule, reduce=lambda power: power)) == 0.0
    params = dict(zip("ab", parameters(), strict=True))
    found = gradclip.norm(params, [gradclip.Group(rule, "a"), gradclip.Group(rule, "b")], reduce=lambda powers: powers)
    assert list(map(float, found)) == [0.0, 0.0]


@pytest.mark.parametrize("order", [-1.0, -2.0, -math.inf, 2.0])
def test_only_other_processes_have_gradients(order: float) -> None:
    """Another process has a gradient of 4."""
    other = 4.0 if math.isinf(order) else 4.0**order

    def reduce(power: torch.Tensor) -> torch.Tensor:
        return torch.minimum(power, torch.full_like(power, other)) if math.isinf(order) else power + other

    rule = dialect.clip_grad_norm(1.0, order)
    assert float(gradclip.norm(parameters(), rule, reduce=reduce)) == 4.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_norms_of_groups_have_the_dtype_of_the_parameters(dtype: torch.dtype) -> None:
    rule = dialect.clip_grad_norm(1.0)
    params = dict(zip("ab", parameters(dtype), strict=True))
    groups = [gradclip.Group(rule, "a"), gradclip.Group(rule, "b")]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert [n.dtype for n in gradclip.norm(params, groups, reduce=lambda powers: powers + 16.0)] == [wide, wide]
    assert gradclip.norm(params, rule, reduce=lambda power: power + 16.0).dtype == wide
    result = gradclip.clip_(params, groups, reduce=lambda powers: powers + 16.0)
    assert [n.dtype for n in result.norm] == [wide, wide]
    assert [c.dtype for c in result.coefficient] == [wide, wide]
