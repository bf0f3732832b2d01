"""Which Paddle tensors use the host lane, which use the reference, and how much memory a clip needs."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from frameworks.paddle import framework
from oracle import ulps
from rules import KINDS

import gradclip
from gradclip.backends.paddle import PaddleBackend, versions
from gradclip.dialects import torch


def lane(*tensors: Any) -> Any:
    return PaddleBackend().lane(list(tensors))


def test_one_gradient_twice_goes_by_the_reference() -> None:
    x = paddle.to_tensor([3.0, 4.0])
    assert lane(x, x.clone()).dtype == "float32"
    assert lane(x, x.detach()) is None
    assert gradclip.norm([x, x.detach()], torch.clip_grad_norm(1.0)) == 5.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: framework.expanded(1.0, (2, 3)),
        lambda: paddle.ones([4])[::2],
        lambda: framework.sparse([1, 2], [[1.0, 2.0], [3.0, 4.0]], 5),
        lambda: paddle.sparse.sparse_coo_tensor([[0, 1]], [3.0, 4.0], [4]),
        lambda: paddle.ones([2], "complex64"),
        lambda: paddle.ones([2], "int32"),
        lambda: paddle.zeros([0]),
        lambda: paddle.to_tensor([1.0], stop_gradient=False),
        lambda: paddle.create_parameter([2], "float32"),
    ],
    ids=["expanded", "strided", "rows", "COO", "complex", "integer", "empty", "recorded", "parameter"],
)
@pytest.mark.filterwarnings(r"ignore:\s*Non compatible API:Warning")  # Paddle 3.2's own sparse tensors raise it
def test_what_goes_by_the_reference(make: Callable[[], Any]) -> None:
    assert lane(make(), paddle.ones([2])) is None


def test_a_weight_beside_a_gradient_goes_by_the_reference() -> None:
    """Even under no_grad: the lane assumes that all tensors can be written if one can."""
    weight = paddle.to_tensor([3.0, 4.0], stop_gradient=False)
    (weight * 2).sum().backward()
    with paddle.no_grad():
        assert lane(weight._grad_ivar()) is not None
        assert lane(weight._grad_ivar(), weight) is None


def test_several_dtypes_and_a_dtype_that_is_another_object() -> None:
    """In Paddle 3.0 to 3.2 each tensor has its own object for its dtype."""
    assert lane(paddle.ones([2]), paddle.ones([2], "bfloat16")).dtype == "float32"
    found = lane(paddle.ones([2]), paddle.ones([2], "float64"))
    assert (found.dtype, sorted(found.kinds)) == ("float64", ["float32", "float64"])

    class Other:
        def __eq__(self, other: object) -> bool:
            return other is paddle.float64 or isinstance(other, Other)

        def __hash__(self) -> int:
            return hash(paddle.float64)

        def __str__(self) -> str:
            return "paddle.float64"

    tensors = [types.SimpleNamespace(dtype=Other()) for _ in range(3)]
    assert versions.dtypes(tensors) == ["float64"]


def test_a_transposed_matrix() -> None:
    """An embedding has such a gradient if the model also uses ``embedding.weight.t()``."""
    weight = paddle.create_parameter([5, 3], "float32")
    paddle.matmul(paddle.ones([2, 3]), weight.t()).sum().backward()
    assert not weight.grad.is_contiguous()
    assert lane(weight.grad.detach()).dtype == "float32"
    gradclip.clip_grad_norm_([weight], 1.0)
    assert ulps(framework.read(weight.grad), np.full((5, 3), 1 / (15**0.5 + 5e-7)), "float32") <= 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["global", "global, p = 1", "tensor", "value"])
def test_memory_in_place(name: str, dtype: str) -> None:
    """A clip needs less than 1 % of 8 Mi elements, in one large and many small tensors."""
    grads: list[Any] = [paddle.full([127 * 2**16], 0.5, dtype), *(paddle.full([2**9], 0.5, dtype) for _ in range(2**7))]
    rule = KINDS[name](0.01)
    core = paddle.base.core
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    before = core.host_memory_stat_current_value("Allocated", 0)
    gradclip.clip_(grads, rule)
    taken = core.host_memory_stat_peak_value("Allocated", 0) - before
    assert 0 <= taken < 0.01 * sum(math.prod(x.shape) * x.element_size() for x in grads)
