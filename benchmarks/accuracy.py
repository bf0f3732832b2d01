"""The largest errors of gradclip's and the native's norms, over a set of distributions and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import gradclip
from benchmarks import exact
from benchmarks.case import EAGER, SIDES, said
from benchmarks.subjects.base import Sample, Subject
from gradclip.dialects import torch as dialect

__all__ = ["DISTRIBUTIONS", "DTYPES", "ORDERS", "Exact", "layouts", "worst"]

#: the exact norm of each order, by distribution, dtype and size; the division into tensors and tracing do not change it
Exact = dict[tuple[str, str, int], dict[float, float]]

ORDERS = (1.0, 2.0, 3.0, math.inf)
DTYPES = ("float32", "float16", "bfloat16")
DRAWN = 2**22  #: numbers drawn; longer arrays repeat them
MANY, MANY_TRACED = 2000, 20  #: tensors; each is compiled separately, which takes minutes for thousands


def _drawn(draw: Callable[[np.random.Generator, int], Any]) -> Callable[[int], np.ndarray]:
    def make(size: int) -> np.ndarray:
        return np.resize(draw(np.random.default_rng(0), min(size, DRAWN)).astype(np.float32), size)

    return make


def _one_huge(size: int) -> np.ndarray:
    """1, and so small numbers that the square of each is lost beside 1 in float32, but not their sum."""
    x = np.full(size, 1e-4, np.float32)
    x[size // 2] = 1.0
    return x


def _heavy(rng: np.random.Generator, size: int) -> Any:
    """A Pareto tail of exponent 2.5, of either sign: the squares have a mean, and no variance."""
    return (1 - rng.random(size)) ** -0.4 * rng.choice([-0.01, 0.01], size)


DISTRIBUTIONS: dict[str, Callable[[int], np.ndarray]] = {
    "normal": _drawn(lambda rng, size: rng.standard_normal(size) * 0.01),
    "uniform": _drawn(lambda rng, size: rng.random(size)),
    "heavy-tailed": _drawn(_heavy),
    "one huge, many tiny": _one_huge,
    "all equal": lambda size: np.full(size, 0.1, np.float32),
    "ascending": lambda size: np.linspace(1e-3, 1, size, dtype=np.float32),
    "alternating scales": lambda size: np.resize(np.array([1, 1e-3], np.float32), size),
}


def layouts(mode: str, quick: bool) -> Iterator[tuple[int, int]]:
    """Numbers of elements, and of tensors that they are divided into."""
    large = 2**20 if quick else 2**26
    yield from ((1000, 1), (large, 1))
    if mode == EAGER:
        yield large, MANY
    elif not quick:
        yield large // 4, MANY_TRACED


def worst(subject: Subject, mode: str, quick: bool, known: Exact, report: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The worst cases of one mode: for each dtype, order and side, the error in ulp of float32, and where.

    Args:
        subject: the framework.
        mode: eager, or a way to trace.
        quick: with fewer elements.
        known: the exact norms that are known so far; it adds to them.
        report: told of each step.
    """
    for dtype in DTYPES[:1] if quick and mode != EAGER else DTYPES:
        found: dict[float, dict[str, Any]] = {order: _entry(subject, mode, dtype, order) for order in ORDERS}
        for size, count in layouts(mode, quick):
            report(f"{mode}, {dtype}, {size} elements in {count}")
            _over(subject, mode, dtype, size, count, known, found)
        yield from found.values()


def _entry(subject: Subject, mode: str, dtype: str, order: float) -> dict[str, Any]:
    return {"framework": subject.name, "mode": mode, "dtype": dtype, "order": str(order), "failures": {}}


def _over(
    subject: Subject, mode: str, dtype: str, size: int, count: int, known: Exact, found: dict[float, dict[str, Any]]
) -> None:
    """All distributions in one layout; compiled once."""
    sample: Sample | None = None
    calls: dict[tuple[float, str], Callable[[], Any]] = {}
    for name, make in DISTRIBUTIONS.items():
        arrays = np.array_split(make(size), count)
        if sample is None or mode == EAGER:
            sample = Sample(subject, arrays, dtype)
            calls = _calls(subject, mode, sample, found)
        else:
            sample.pristine[:] = [subject.make(array, dtype) for array in arrays]
            subject.restore(sample)
        what = (name, dtype, size)
        if what not in known:
            known[what] = _exact(map(subject.read, sample.tensors))
        for order, entry in found.items():
            for side in SIDES:
                if (order, side) in calls:
                    _note(entry, side, calls[order, side], subject, known[what][order], f"{name}, {size} in {count}")
    subject.forget()


def _exact(arrays: Iterable[np.ndarray]) -> dict[float, float]:
    each = [[exact.norm(x, order) for order in ORDERS] for x in arrays]
    return {order: exact.total(norms, order) for order, norms in zip(ORDERS, zip(*each, strict=True), strict=True)}


def _ours(order: float) -> Callable[[Any], Any]:
    rule = dialect.clip_grad_norm(max_norm=1.0, norm_type=order)
    return lambda grads: gradclip.norm(grads, rule)


def _calls(
    subject: Subject, mode: str, sample: Sample, found: dict[float, dict[str, Any]]
) -> dict[tuple[float, str], Callable[[], Any]]:
    calls = {}
    for order in found:
        calls[order, "gradclip"] = subject.call(_ours(order), mode, "tensors", sample)
        native = subject.native_norm(order)
        if native is not None and (mode == EAGER or native[0] == "tensors"):
            calls[order, "native"] = subject.call(native[1], mode, native[0], sample)
    return calls


def _note(entry: dict[str, Any], side: str, call: Callable[[], Any], subject: Subject, want: float, where: str) -> None:
    """Keep an error that is larger than all before."""
    try:
        result = call()
        error = exact.ulps(float(result if isinstance(result, float) else subject.read(result)), want)
    except Exception as failure:  # a native may lack the dtype or the order
        entry["failures"].setdefault(side, said(failure))
        return
    if error >= entry.get(f"{side} error", 0.0):
        entry |= {f"{side} error": error, f"{side} where": where}
