"""The clip in few calls of gradients in the host's memory, against the engine's steps: the same to the bit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from rules import Make, kinds

import gradclip
from gradclip.backends.host import kernels
from gradclip.backends.host.lane import HostLane
from gradclip.core import engine
from gradclip.core.registry import find
from gradclip.dialects import torch as dialect

RULES = kinds(lambda rule: rule.is_plain and rule.relative_to is None and not rule.mean)
LIMITS = (0.0, 1e-43, 0.01, 1e38, math.inf)


def gradients(backend: Framework, dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    return [backend.make(rng.normal(size=shape), dtype) for shape in ((3, 5), (7,), (300,))]


def bits(backend: Framework, found: Any) -> Any:
    if isinstance(found, (list, tuple)):
        return [bits(backend, x) for x in found]
    return found if found is None else (backend.dtype(found), backend.read(found).tobytes())


def told(backend: Framework, result: gradclip.ClipResult[Any]) -> list[Any]:
    """Everything that a result tells."""
    numbers = [bits(backend, x) for x in (result.grads, result.norm, result.coefficient)]
    return [*numbers, result.is_list, result.culprits, result.skip, result.zeroed, result.bounds()]


def clipped(backend: Framework, grads: list[Any], rule: Any, in_place: bool, is_short: bool, **options: Any) -> list[Any]:
    """Clip, and assert by which way."""
    ways: list[str] = []
    selected = engine._selected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_selected", lambda *args: ways.append("engine") or selected(*args))
        found = told(backend, (gradclip.clip_ if in_place else gradclip.clip)(grads, rule, **options))
    assert ways == ([] if is_short else ["engine"])
    return found


def lane_of(backend: Framework) -> type[Any]:
    """The lane of this framework's eager gradients."""
    x = backend.make([1.0])
    owner = find(x)
    assert owner is not None
    return type(owner.lane([x]))


def is_on_host(backend: Framework) -> bool:
    return bool(kernels.KINDS) and issubclass(lane_of(backend), HostLane)


@pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
def test_as_the_engine(backend: Framework, make_rule: Make, in_place: bool) -> None:
    if (in_place and not backend.mutable) or not is_on_host(backend):
        return
    for dtype, limit in [*itertools.product(["float32"], LIMITS), ("float64", 0.01), ("float16", 0.01), ("bfloat16", 0.01)]:
        rule = make_rule(limit)
        mine = clipped(backend, gradients(backend, dtype), rule, in_place, True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lane_of(backend), "fused", None)
            assert mine == clipped(backend, gradients(backend, dtype), rule, in_place, False)


def test_what_the_engine_takes(backend: Framework) -> None:
    rule = dialect.clip_grad_norm(1.0)
    for spoilt in (math.nan, math.inf):
        found = clipped(backend, [backend.make([3.0]), backend.make([spoilt])], rule, False, False)
        assert not is_on_host(backend) or found[4] == ["1"]
    clipped(backend, gradients(backend, "float32"), [gradclip.Group(rule, "*")], False, False)
    clipped(backend, gradients(backend, "float32"), rule, False, False, reduce=lambda x: x)
    if backend.name != "jax":  # there a gap is no leaf
        clipped(backend, [*gradients(backend, "float32"), None], rule, False, False)


def test_what_cannot_be_written(backend: Framework) -> None:
    if backend.mutable:
        return
    with pytest.raises(gradclip.core.errors.NotWritableError):
        gradclip.clip_(gradients(backend, "float32"), dialect.clip_grad_norm(1.0))
