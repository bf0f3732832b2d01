"""Clips by norm written out in Paddle: each is rewritten, and both versions give the same gradients."""

from __future__ import annotations

import paddle
import pytest
from migrate.by_hand import agrees, refuses, source
from migrate.forms import PADDLE_NORMS as NORMS
from migrate.forms import PADDLE_SCALES as SCALES

HEADER = "import paddle"
NORM = NORMS["a generator"]


def make() -> list[paddle.Tensor]:
    paddle.seed(3)
    params = [paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False), paddle.to_tensor([[1.0, -2.0]], stop_gradient=False)]
    sum((one**3).sum() for one in params).backward()
    return params


@pytest.mark.parametrize("scale", SCALES)
def test_a_clip_written_out_is_one_call_of_the_same_value(scale: str) -> None:
    agrees(source(HEADER, NORM, SCALES[scale]), make, lambda params: [one.grad for one in params])


@pytest.mark.parametrize("change", [("limit / n", "limit / n ** 2"), ("max=1.0", "min=1.0"), ("n > limit", "n < limit")])
def test_another_meaning_is_not_rewritten(change: tuple[str, str]) -> None:
    for scale in SCALES.values():
        if change[0] in scale:
            refuses(source(HEADER, NORM, scale.replace(*change)))
