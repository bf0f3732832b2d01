"""The monitor as a pure function of a state, on any framework's tensors, for traced code.

The state has a fixed size. Norms count in float32: a norm below its smallest normal number counts as 0, and a norm above its
largest number counts as that number. Sums are compensated, so they are as accurate after a million steps as after one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import LARGEST, promote
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.gradients import Gradients, open_
from gradclip.core.registry import find
from gradclip.core.result import ClipResult
from gradclip.core.tracing import untraced
from gradclip.limits.histogram import EDGES, ROUNDED
from gradclip.steps.monitor import each_state
from gradclip.steps.monitor.pure_state import LEAST, MOST
from gradclip.steps.monitor.values import changed, flat

__all__ = ["observed", "observed_before"]


@untraced
def observed(state: Mapping[str, Any], result: ClipResult[Any], *, grads: Any = None) -> dict[str, Any]:
    """The state of a monitor after one more step: a pure function of tensors, for ``jax.jit``, ``scan`` and the like.

    It counts the same as :meth:`Monitor.update <gradclip.Monitor.update>`.

    Args:
        state: from ``monitor.init()``, or from this function.
        result: of :func:`gradclip.clip` or :func:`gradclip.clip_`.
        grads: the gradients, for a rule by value whose result has none. For a state with ``each=`` the gradients before the
            clip; without it those in the result.

    Returns:
        A state of the same structure, shapes and dtypes.

    Raises:
        TypeError: for an object that is not a result.
        ValueError: for a result with another number of groups.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> monitor = gradclip.Monitor()
        >>> state = monitor.init(like=np.zeros(()))
        >>> for size in (0.5, 2.0):
        ...     result = gradclip.clip(np.array([size]), torch.clip_grad_norm(max_norm=1.0))
        ...     state = gradclip.observed(state, result)
        >>> monitor.merge(state)
        >>> monitor.report()["steps"], monitor.report()["clipped_steps"]
        (2, 1)
    """
    return observed_before(state, result, grads, None)


def observed_before(state: Mapping[str, Any], result: Any, grads: Any, opened: Gradients | None) -> dict[str, Any]:
    """:func:`observed`, where the gradients before the clip have been opened."""
    if not isinstance(result, ClipResult):
        raise ArgumentTypeError("The result of a clip is needed.", f"result={shown(result)}", "gradclip.clip returns one.")
    backend = find(next((x for section in state["sections"] for x in section.values()), None))
    if backend is None:
        hint = "monitor.init(like=a tensor) makes one; monitor.state_dict() is for files."
        raise ArgumentTypeError("The state is not made of tensors.", f"version={state['version']!r}", hint)
    norms, factors = (x if result.is_list else [x] for x in result.found())
    if len(norms) != len(state["sections"]):
        hint = "monitor.init(groups=2) makes a state for two."
        raise ArgumentError("The state is for another number of groups.", f"{len(norms)} norms", hint)
    with backend.arithmetic(False):
        many = changed(result, result.grads if grads is None else grads, len(norms))
        parts = zip(state["sections"], norms, factors, many, strict=True)
        sections = [_Step(backend, seen, result.skip).after(n, c, k) for seen, n, c, k in parts]
    after = {"version": state["version"], "groups": state["groups"], "sections": sections}
    if "each" not in state:
        return after
    opened = open_(result.grads if grads is None else grads) if opened is None else opened
    return after | {"each": each_state.observed(state["each"], opened, state["sections"][0]["steps"])}


def _is_number(x: Any) -> bool:
    return isinstance(x, (float, int))


def _within(x: float) -> float:
    """A number in float32's range: a finite number stays finite."""
    return min(x, MOST) if x < math.inf else x


class _Step:
    """One step of one section. Truth values are 0.0 and 1.0."""

    def __init__(self, backend: Backend, seen: Mapping[str, Tensor], skip: Any = False) -> None:
        self.backend, self.now = backend, dict(seen)
        self.like = seen["before_total"]
        skips = backend.asarray(float(skip), "float32", self.like) if isinstance(skip, bool) else self._truth(skip)
        self.skipped, self.taken = skips, 1 - skips

    def after(self, norm: Any, coefficient: Any, changed: Any = None) -> dict[str, Tensor]:
        """The section after this step."""
        nothing = self.backend.asarray(0.0, "float32", self.like)  # not a product with 0: a sum may be infinite
        broken, measured, clipped = nothing, nothing, nothing
        if changed is not None:
            many = self.backend.asarray(changed, "float32", self.like)
            measured, clipped = nothing + 1, many * self.taken
            self._count("changed", many)
        for n, c in self._pairs(norm, coefficient):
            finite, n = self._finite(n)
            _, c = self._finite(c)
            is_clipped = finite * self._truth(c < 1.0) * self.taken
            self._add(finite, n, c, is_clipped)
            broken = broken + self._sum(1 - finite)
            measured, clipped = measured + self._sum(finite), clipped + self._sum(is_clipped)
        step, where = self.now["steps"], self.backend.where
        first, last = self.now["not_finite_first"], self.now["not_finite_last"]
        self.now["not_finite_first"] = where(first >= 0, first, where(broken > 0, step, first))
        self.now["not_finite_last"] = where(broken > 0, step, last)
        self._count("not_finite", broken)
        self._count("measured", self._truth(measured > 0))
        self._count("clipped", self._truth(clipped > 0))
        self._count("skipped", self.skipped)
        self._count("steps", nothing + 1)
        return self.now

    def _pairs(self, norm: Any, coefficient: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Norms and coefficients as arrays of at least one dimension; single numbers together."""
        pairs = list(zip(flat(norm), flat(coefficient), strict=True))
        single = [pair for pair in pairs if _is_number(pair[0]) or not self.backend.shape(pair[0])]
        if single:
            yield self._vector([n for n, _ in single]), self._vector([c for _, c in single])
        for n, c in pairs:
            if not _is_number(n) and self.backend.shape(n):
                yield n, self._vector([c]) if _is_number(c) else c

    def _vector(self, given: list[Any]) -> Tensor:
        numbers = [_within(float(x)) for x in given if _is_number(x)]
        if len(numbers) == len(given):
            return self.backend.asarray(numbers, "float32", self.like)
        return self.backend.stack(given, promote([self.backend.dtype(x) for x in given]))

    def _finite(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Which values are finite, and the values in float32 with 0 for the others."""
        backend = self.backend
        x = backend.detach(x)
        is_finite = x <= backend.constant(LARGEST[backend.dtype(x)], x)
        bounded = backend.clip(backend.where(is_finite, x, 0.0), 0.0, MOST)
        return self._truth(is_finite), backend.asarray(bounded, "float32", self.like)

    def _add(self, finite: Tensor, n: Tensor, c: Tensor, is_clipped: Tensor) -> None:
        after, kept = n * c * self.taken, finite * self.taken
        self._count("norms", self._sum(finite))
        self._count("coefficients", self._sum(kept))
        self._count("limits", self._sum(is_clipped))
        self._histogram("before", n)
        self._histogram("after", after * (1 + is_clipped * (ROUNDED - 1)))
        for name, values, counts in (("before", n, finite), ("after", after, kept)):
            self._total(f"{name}_total", self._sum(values))
            self._extreme(f"{name}_least", -self.backend.max(-self.backend.where(counts > 0, values, MOST), None))
            self._extreme(f"{name}_largest", self.backend.max(values, None))
        self._total("coefficient_total", self._sum(c * kept))
        self._total("limit_total", self._sum(after * is_clipped))

    def _histogram(self, name: str, values: Tensor) -> None:
        """Count the values that are not below each edge."""
        rank = len(self.backend.shape(values) or ())
        edges = self.backend.asarray(EDGES, "float32", self.like)[(slice(None), *[None] * rank)]
        reached = self.backend.sum(self._truth(values[None] >= edges), tuple(range(1, rank + 1)))
        self.now[name] = self.now[name] + self.backend.cast(reached[(slice(None), *[0] * rank)], "int32")

    def _count(self, name: str, many: Tensor) -> None:
        self.now[name] = self.now[name] + self.backend.cast(many, "int32")

    def _total(self, name: str, x: Tensor) -> None:
        """Add to a sum of two parts; the second is the rounding error of the first (Knuth's two-sum)."""
        seen = self.now[name]
        total = seen + x
        added = total - seen
        self.now[name] = total
        self.now[f"{name}_rest"] = self.now[f"{name}_rest"] + ((seen - (total - added)) + (x - added))

    def _extreme(self, name: str, x: Tensor) -> None:
        seen = self.now[name]
        self.now[name] = self.backend.clip(seen, None, x) if name in LEAST else self.backend.clip(seen, x, None)

    def _truth(self, condition: Tensor) -> Tensor:
        return self.backend.asarray(self.backend.cast(condition, "float32"), "float32", self.like)

    def _sum(self, x: Tensor) -> Tensor:
        return self.backend.sum(x, None)
