"""Every lane against the reference: a clip gives the same results with and without the framework's lanes, eager and traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip import Rule
from gradclip.dialects import keras, optax, tensorflow, torch
from gradclip.registry import find

SIZES = (1, 3, 256, 1000, 5000, 20000, (1 << 16) + 300)
RULES: dict[str, Callable[[float], Rule]] = {
    "global norm": torch.clip_grad_norm,
    "global norm, p = 1": lambda limit: torch.clip_grad_norm(limit, 1.0),
    "global norm, p = 3": lambda limit: torch.clip_grad_norm(limit, 3.0),
    "global norm, p = inf": lambda limit: torch.clip_grad_norm(limit, math.inf),
    "global norm, p = -1": lambda limit: torch.clip_grad_norm(limit, -1.0),
    "each norm": keras.clipnorm,
    "each root mean square": optax.clip_by_block_rms,
    "value": lambda limit: tensorflow.clip_by_value(-limit, limit / 2),
}


@contextmanager
def the_reference_alone(backend: Framework) -> Iterator[None]:
    """Disable the framework's lanes."""
    owner = find(backend.make([1.0]))
    assert owner is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(owner), "lane", lambda self, tensors: None)
        for kind in owner.whole:
            patch.setattr(kind, "whole", None)
        yield


def normal(dtype: str, scale: float = 1.0) -> Callable[[Framework], list[Any]]:
    def make(backend: Framework) -> list[Any]:
        rng = np.random.default_rng(0)
        return [backend.make(rng.normal(size=size) * scale, dtype) for size in SIZES]

    return make


def several_dtypes(backend: Framework) -> list[Any]:
    rng = np.random.default_rng(1)
    return [backend.make(rng.normal(size=n), dtype) for n in (3, 300) for dtype in backend.dtypes if "complex" not in dtype]


def odd(backend: Framework) -> list[Any]:
    """Return one list of gradients that no fast path may take."""
    rng = np.random.default_rng(2)
    twice = backend.make(rng.normal(size=(3, 5)))
    strided = backend.strided(rng.normal(size=(70, 300)), "bfloat16")
    return [strided, twice, twice, backend.make(-2.0), backend.make(np.full((4, 3), 0.5))]


def huge(backend: Framework) -> list[Any]:
    """Return gradients whose squares overflow and underflow in float32."""
    rng = np.random.default_rng(3)
    return [backend.make(rng.normal(size=n) * 1e24) for n in SIZES] + [backend.make(rng.normal(size=9) * 1e-30)]


SETS: dict[str, Callable[[Framework], list[Any]]] = {
    **{dtype: normal(dtype) for dtype in ("float32", "float64", "float16", "bfloat16", "complex64")},
    "huge": huge,
    "tiny": normal("float32", 1e-30),
    "several dtypes": several_dtypes,
    "odd": odd,
    "many": lambda backend: [backend.make(np.full(5, i / 7)) for i in range(120)],
}


def compared(backend: Framework, got: list[Any], want: list[Any], given: list[Any], limit: float) -> None:
    for mine, theirs, was in zip(got, want, given, strict=True):
        dtype = backend.dtype(was)
        assert backend.dtype(mine) == dtype
        assert ulps(backend.read(mine), backend.read(theirs), dtype) <= 4
        if limit >= 1:  # the limit clips nothing
            assert backend.read(mine).tobytes() == backend.read(was).tobytes()


@pytest.fixture(params=SETS.values(), ids=SETS)
def make(request: pytest.FixtureRequest, backend: Framework) -> Callable[[], list[Any]]:
    if request.param is SETS["complex64"] and "complex64" not in backend.dtypes:
        return list
    return lambda: request.param(backend)


def fits(make: Callable[[], list[Any]], backend: Framework, name: str) -> bool:
    return not (name == "value" and any("complex" in backend.dtype(x) for x in make()))


@pytest.mark.drawn(60, jax=20)
@pytest.mark.parametrize("rule_of", RULES.values(), ids=RULES)
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
def test_eager(backend: Framework, make: Callable[[], list[Any]], in_place: bool, rule_of: Callable[[float], Rule]) -> None:
    name = next(name for name, known in RULES.items() if known is rule_of)
    if not make() or not fits(make, backend, name) or (in_place and not backend.mutable):
        return
    clip = gradclip.clip_ if in_place else gradclip.clip
    for limit in (0.01, 1e38):
        mine = clip(make(), rule_of(limit))
        with the_reference_alone(backend):
            theirs = clip(make(), rule_of(limit))
        compared(backend, mine.grads, theirs.grads, make(), limit)
        for n, m in zip(*(x if isinstance(x, list) else [x] for x in (mine.norm, theirs.norm)), strict=True):
            assert n is None or ulps(np.array(float(n)), np.array(float(m)), "float32") <= 4


@pytest.mark.needs("jits")
@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", ["global norm", "each norm", "value"])
@pytest.mark.parametrize("given", ["float32", "bfloat16", "several dtypes", "huge"])
def test_traced(backend: Framework, given: str, name: str) -> None:
    def clipped(tensors: list[Any]) -> list[Any]:
        return list(gradclip.clip(tensors, RULES[name](0.01)).grads)

    make = SETS[given]
    for how in backend.jits:
        mine = backend.jit(how, clipped)(make(backend))
        with the_reference_alone(backend):
            theirs = backend.jit(how, clipped)(make(backend))
        compared(backend, mine, theirs, make(backend), 0.01)
