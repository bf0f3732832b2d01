"""Every dialect function, on this run's framework, in every dtype and shape, against the formula in float64."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from conftest import load
from frameworks.base import Framework
from oracle import CASES, REAL, Case, norm, ulp, ulps

import gradclip

WIDE = {"float64": "float64", "complex128": "float64"}
# few shapes, in several lists: JAX compiles every operation for every shape
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "scalar": [()],
    "vector": [(7,)],
    "one by one": [(1,), (1, 1)],
    "matrices": [(7, 3), (7, 1), (7, 2, 3)],
    "empty and full": [(0, 3), (0,)],
    "many": [(7, 3), (7,), (7, 1, 2, 2), (7, 2, 1, 3, 2)],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", load(metafunc.config).dtypes)
    if "how" in metafunc.fixturenames:
        metafunc.parametrize("how", load(metafunc.config).jits)


def rule_of(limit_name: str, case: Case, limit: float) -> gradclip.Rule:
    dialect = importlib.import_module(f"gradclip.dialects.{case.dialect}")
    rule: gradclip.Rule = getattr(dialect, case.function)(**{limit_name: limit}, **case.arguments)
    return rule


def sample(shapes: list[tuple[int, ...]], dtype: str, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape) for shape in shapes]
    return [a + 1j * rng.normal(size=a.shape) for a in arrays] if dtype in REAL else arrays


def fits(case: Case, shapes: list[tuple[int, ...]], dtype: str) -> bool:
    """Whether the function is defined for gradients of this dtype and shape."""
    return not (
        ("real" in case.needs and dtype in REAL)
        or ("rank" in case.needs and () in shapes)
        or ("batch" in case.needs and (() in shapes or len({shape[0] for shape in shapes}) > 1))
        or (case.arguments.get("norm_type") == np.inf and any(0 in shape for shape in shapes))
    )


def norm_dtype(dtypes: list[str]) -> str:
    return "float64" if {"float64", "complex128"} & set(dtypes) else "float32"


def check(
    framework: Framework,
    case: Case,
    limit: float,
    exact: list[Any],
    result: gradclip.ClipResult,
    dtypes: list[Any],
    params: Any,
) -> None:
    """The result is within 4 ulp of the formula in each dtype, its norm within 4 ulp of at least float32."""
    arguments = (exact, limit, params) if "params" in case.needs else (exact, limit)
    want, want_norm = case.formula(*arguments)
    got = list(result.grads)
    assert len(got) == len(want)
    for i, (mine, theirs, dtype) in enumerate(zip(got, want, dtypes, strict=True)):
        if theirs is None:
            assert mine is None
            continue
        assert framework.dtype(mine) == dtype
        distance = ulps(framework.read(mine), theirs, dtype)
        if "batch" in case.needs:  # a sum over the examples may cancel, so that the error is relative to its terms
            terms, _ = case.formula([None if g is None else np.abs(g) for g in exact], limit)
            distance = float(np.max(np.abs(framework.read(mine) - theirs) / ulp(terms[i], dtype), initial=0.0))
        assert distance <= 4, f"{distance} ulp: {mine} for {theirs}"
    if want_norm is None:
        assert result.norm is None
        assert result.coefficient is None
        return
    got_norms = result.norm if isinstance(want_norm, list) else [result.norm]
    wanted = want_norm if isinstance(want_norm, list) else [want_norm]
    for mine, theirs, dtype in zip(
        got_norms, wanted, dtypes if isinstance(want_norm, list) else [norm_dtype(dtypes)], strict=True
    ):
        if theirs is not None:
            value = np.asarray(mine) if isinstance(mine, float) else framework.read(mine)
            assert ulps(value, np.asarray(theirs), norm_dtype([dtype])) <= 4, f"norm {value} for {theirs}"


@pytest.mark.drawn(180, torch=90, tensorflow=90, paddle=90, jax=40)
@pytest.mark.parametrize("limit", [0.5, 1e4, 0.015625], ids=["clipped", "unclipped", "small"])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("limit_name", "case"), CASES, ids=[str(case) for _, case in CASES])
def test_formula(
    backend: Framework, limit_name: str, case: Case, shapes: list[tuple[int, ...]], dtype: str, limit: float
) -> None:
    if not fits(case, shapes, dtype):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            gradclip.clip([backend.make(a, dtype) for a in sample(shapes, dtype)], rule_of(limit_name, case, limit))
        return
    tensors = [backend.make(a, dtype) for a in sample(shapes, dtype)]
    params = [backend.make(a, dtype) for a in sample(shapes, dtype, seed=1)]
    exact = [backend.read(t) for t in tensors]
    keywords = {"params": params} if "params" in case.needs else {}
    result = gradclip.clip(tensors, rule_of(limit_name, case, limit), **keywords)
    check(backend, case, limit, exact, result, [dtype] * len(shapes), [backend.read(p) for p in params])
    for tensor, before in zip(tensors, exact, strict=True):
        assert np.array_equal(backend.read(tensor), before), "the functional form wrote to its input"


@pytest.mark.parametrize(("limit_name", "case"), CASES, ids=[str(case) for _, case in CASES])
def test_in_place_is_the_same(backend: Framework, limit_name: str, case: Case, dtype: str) -> None:
    shapes = SHAPES["many"]
    tensors = [backend.make(a, dtype) for a in sample(shapes, dtype)]
    params = [backend.make(a, dtype) for a in sample(shapes, dtype, seed=1)]
    keywords = {"params": params} if "params" in case.needs else {}
    rule = rule_of(limit_name, case, 0.5)
    if not fits(case, shapes, dtype) or not backend.mutable or "batch" in case.needs:
        before = [backend.read(t) for t in tensors]
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            gradclip.clip_(tensors, rule, **keywords)
        assert all(np.array_equal(backend.read(t), b) for t, b in zip(tensors, before, strict=True))
        return
    want = gradclip.clip(tensors, rule, **keywords)
    got = gradclip.clip_(tensors, rule, **keywords)
    for tensor, mine, theirs in zip(tensors, got.grads, want.grads, strict=True):
        assert np.array_equal(backend.read(tensor), backend.read(mine))
        assert ulps(backend.read(tensor), backend.read(theirs), dtype) <= 1


@pytest.mark.parametrize(("limit_name", "case"), CASES, ids=[str(case) for _, case in CASES])
def test_strided_and_expanded(backend: Framework, limit_name: str, case: Case) -> None:
    tensors = [backend.strided(sample([(7, 3)], "float32")[0]), backend.expanded(2.0, (7, 3)), None]
    exact = [backend.read(tensors[0]), backend.read(tensors[1]), None]
    keywords = {"params": tensors} if "params" in case.needs else {}
    result = gradclip.clip(tensors, rule_of(limit_name, case, 0.5), **keywords)
    check(backend, case, 0.5, exact, result, ["float32", "float32", None], exact)


@pytest.mark.drawn(100, torch=60, tensorflow=60, paddle=60, jax=13)
@pytest.mark.parametrize(("limit_name", "case"), CASES, ids=[str(case) for _, case in CASES])
def test_mixed_dtypes(backend: Framework, limit_name: str, case: Case) -> None:
    dtypes = [d for d in backend.dtypes if not ("real" in case.needs and d in REAL)]
    tensors = [backend.make(sample([(7, 3)], d, i)[0], d) for i, d in enumerate(dtypes)]
    exact = [backend.read(t) for t in tensors]
    keywords = {"params": tensors} if "params" in case.needs else {}
    result = gradclip.clip(tensors, rule_of(limit_name, case, 0.5), **keywords)
    check(backend, case, 0.5, exact, result, dtypes, exact)


@pytest.mark.accuracy
@pytest.mark.drawn(24, torch=8)
@pytest.mark.needs("jits")
@pytest.mark.parametrize("limit", [0.5, 1e4], ids=["clipped", "unclipped"])
@pytest.mark.parametrize(("limit_name", "case"), CASES, ids=[str(case) for _, case in CASES])
def test_traced(backend: Framework, limit_name: str, case: Case, how: str, limit: float) -> None:
    """A traced function returns the gradients and the norms."""
    check_traced(backend, limit_name, case, how, limit, "float32")


@pytest.mark.accuracy
@pytest.mark.drawn(12, torch=4)
@pytest.mark.needs("jits")
@pytest.mark.parametrize(
    ("limit_name", "case"), [CASES[0], CASES[7], CASES[8], CASES[16]], ids=lambda x: str(x) if isinstance(x, Case) else ""
)
def test_traced_in_every_dtype(backend: Framework, limit_name: str, case: Case, how: str, dtype: str) -> None:
    check_traced(backend, limit_name, case, how, 0.5, dtype)


def check_traced(backend: Framework, limit_name: str, case: Case, how: str, limit: float, dtype: str) -> None:
    rule = rule_of(limit_name, case, limit)
    shapes = SHAPES["many"][:3]
    tensors = [backend.make(a, dtype) for a in sample(shapes, dtype)]
    exact = [backend.read(t) for t in tensors]
    form: list[Any] = []

    def clipped(grads: list[Any]) -> list[Any]:
        keywords = {"params": grads} if "params" in case.needs else {}
        result = gradclip.clip(grads, rule, **keywords)
        form[:] = [isinstance(result.norm, list), result.norm is None]
        norms = result.norm if isinstance(result.norm, list) else [] if result.norm is None else [result.norm]
        return [*result.grads, *norms]

    out = list(backend.jit(how, clipped)(tensors))
    got, norms = out[: len(shapes)], out[len(shapes) :]
    by_value = any(name in case.arguments for name in ("clip_value_min", "min"))
    if limit == 1e4 and "batch" not in case.needs and not by_value:
        assert all(np.array_equal(backend.read(g), e) for g, e in zip(got, exact, strict=True))
    is_list, is_none = form
    result = gradclip.ClipResult(got, norms if is_list else None if is_none else norms[0], None)
    check(backend, case, limit, exact, result, [dtype] * len(shapes), exact)


@pytest.mark.parametrize("values", [[3e30, 4e30], [3e-30, 4e-30], [3e30, 3e-30], [1.8e19, 1.8e19]])
@pytest.mark.parametrize("form", ["eager", "traced"])
def test_no_overflow(backend: Framework, values: list[float], form: str) -> None:
    """A finite gradient has a finite norm: squares neither overflow nor vanish."""
    tensor = backend.make(values)
    exact = backend.read(tensor)
    limit = float(np.abs(exact).max()) / 8
    rule = rule_of("max_norm", CASES[0][1], limit) if limit > 1 else rule_of("clip_norm", CASES[7][1], limit)
    eager = gradclip.clip([tensor], rule)
    results = (
        [eager.grads]
        if form == "eager"
        else [backend.jit(j, lambda g: gradclip.clip(g, rule).grads)([tensor]) for j in backend.jits]
    )
    for (got,) in results:
        want = exact * (limit / float(norm(exact, 2.0)))
        assert ulps(backend.read(got), want, "float32") <= 4
    measured = eager.norm[0] if isinstance(eager.norm, list) else eager.norm
    value = measured if isinstance(measured, float) else backend.read(measured)
    assert ulps(value, norm(exact, 2.0), "float32") <= 4
