"""Every lane against the reference: a clip gives the same results with and without the framework's lanes, eager and traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps
from rules import Make, is_dense, kinds

import gradclip
from gradclip.core.registry import find

pytestmark = pytest.mark.accuracy

RULES = kinds(is_dense)
SIZES = (1, 3, 256, 1000, 5000, 20000, (1 << 16) + 300)


@contextmanager
def the_reference_alone(backend: Framework) -> Iterator[None]:
    """Disable the framework's lanes."""
    owner = find(backend.make([1.0]))
    assert owner is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(owner), "lane", lambda self, tensors: None)
        for kind in owner.fused:
            patch.setattr(kind, "fused", None)
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


def fits(make: Callable[[], list[Any]], backend: Framework, rule: gradclip.Rule) -> bool:
    return not (rule.is_by_value and any("complex" in backend.dtype(x) for x in make()))


@pytest.fixture(params=["as it is", "soon large", "not compiled"])
def way_to_lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes as they are; with low thresholds; and as after an installation without a C compiler."""
    if request.param == "soon large":
        request.getfixturevalue("soon_large")
    elif request.param == "not compiled":
        monkeypatch.setattr("gradclip.backends.host.kernels.KINDS", {})


@pytest.mark.drawn(90, torch=40, tensorflow=48, paddle=48, jax=12)
@pytest.mark.usefixtures("way_to_lanes")
@pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
def test_eager(backend: Framework, make: Callable[[], list[Any]], in_place: bool, make_rule: Make) -> None:
    if not make() or not fits(make, backend, make_rule(1.0)) or (in_place and not backend.mutable):
        return
    clip = gradclip.clip_ if in_place else gradclip.clip
    for limit in (0.01, 1e38):
        mine = clip(make(), make_rule(limit))
        with the_reference_alone(backend):
            theirs = clip(make(), make_rule(limit))
        compared(backend, mine.grads, theirs.grads, make(), limit)
        for n, m in zip(*(x if isinstance(x, list) else [x] for x in (mine.norm, theirs.norm)), strict=True):
            assert n is None or ulps(np.array(float(n)), np.array(float(m)), "float32") <= 4


@pytest.mark.needs("jits")
@pytest.mark.drawn(3, torch=2)
@pytest.mark.parametrize("thresholds", ["as they are", "soon_large"])
@pytest.mark.parametrize("name", ["global", "tensor", "value"])
@pytest.mark.parametrize("given", ["float32", "bfloat16", "several dtypes", "huge"])
def test_traced(backend: Framework, given: str, name: str, thresholds: str, request: pytest.FixtureRequest) -> None:
    if thresholds == "soon_large":
        request.getfixturevalue(thresholds)

    def clipped(tensors: list[Any]) -> list[Any]:
        return list(gradclip.clip(tensors, RULES[name](0.01)).grads)

    make = SETS[given]
    for how in backend.jits:
        mine = backend.jit(how, clipped)(make(backend))
        with the_reference_alone(backend):
            theirs = backend.jit(how, clipped)(make(backend))
        compared(backend, mine, theirs, make(backend), 0.01)
