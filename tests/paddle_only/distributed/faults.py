"""One process has a NaN gradient, or none: all processes raise or return alike, and none waits for ever."""

from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.distributed as dist
import pytest
from paddle_only.distributed.common import Shard, agree, as_on_a_device, local, placed, random, world

import gradclip
from gradclip.core.errors import GradclipWarning, NonFiniteError
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(1.0)


def spoilt(value: float) -> dict[str, paddle.Tensor]:
    """Return gradients; on the last process ``b`` has one such value."""
    bad = np.ones(8, np.float32)
    bad[-1] = value
    made = {"a": paddle.ones([8]), "b": paddle.to_tensor(bad), "c": paddle.ones([4])}
    return {name: placed(x, world(), Shard(0)) for name, x in made.items()}


def check_every_process_raises_and_names_the_culprit() -> None:
    last, part = dist.get_world_size() - 1, 8 // dist.get_world_size()
    rule = dialect.clip_grad_norm(0.1, error_if_nonfinite=True)
    for value in (math.nan, math.inf):
        gradients = spoilt(value)
        with pytest.raises(NonFiniteError) as error:
            gradclip.clip_(gradients, rule)
        assert f"Received: rank {last}: ['b']: 1 of {part} elements\n" in str(error.value)
        agree(str(error.value))
        for name, x in spoilt(value).items():
            assert np.array_equal(local(gradients[name]), local(x), equal_nan=True)
    with as_on_a_device(), pytest.raises(NonFiniteError, match=rf"rank {last}: \['b'\]"):
        gradclip.clip_(spoilt(math.nan), rule)


def check_without_an_error_all_scale_alike() -> None:
    gradients = spoilt(math.nan)
    norm = gradclip.clip_(gradients, dialect.clip_grad_norm(0.1)).norm
    assert math.isnan(float(norm))
    assert all(np.isnan(local(x)).all() for x in gradients.values())


def check_several_culprits_over_a_group() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = {f"p{rank}": paddle.to_tensor([math.inf, 1.0])}
    rule = dialect.clip_grad_norm(1.0, error_if_nonfinite=True)
    for reduce in (dist.get_group(), world()):
        with pytest.raises(NonFiniteError) as error:
            gradclip.clip_(mine, rule, reduce=reduce)
        for r in range(n):
            assert f"rank {r}: ['p{r}']: 1 of 2 elements" in str(error.value)
        agree(str(error.value))


def check_a_process_without_gradients() -> None:
    layer = paddle.nn.Linear(2, 2)
    if dist.get_rank() == 0:
        layer(random((1, 2), 0)).sum().backward()
    norm = gradclip.norm(layer.parameters(), dialect.clip_grad_norm(1.0), reduce=world())
    assert float(norm) > 0
    agree(float(norm))
    assert gradclip.norm([], dialect.clip_grad_norm(1.0), reduce=world()) == 0.0


def check_what_one_process_refuses_is_told_to_all() -> None:
    x = placed(paddle.ones([8]), world(), Shard(0))
    wrong = {"w": x, "b": paddle.ones([2])}
    if dist.get_rank() == 0:
        wrong["b"] = paddle.ones([2], "int64")
    with pytest.raises(TypeError if dist.get_rank() == 0 else ValueError) as error:
        gradclip.norm(wrong, RULE)
    if dist.get_rank():
        assert "Another process has refused this clip" in str(error.value)
        assert "rank 0: " in str(error.value)


def check_replicas_that_are_added_up() -> None:
    with pytest.warns(GradclipWarning, match=r"reduce= adds up gradients that are the same on every process"):
        gradclip.norm([random([5], 3)], RULE, reduce=world())
