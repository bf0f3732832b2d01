"""The monitor as a pure function of a state, on any framework's tensors, for traced code.

The state has a fixed size. Norms count in float32: a norm below its smallest normal number counts as 0, and a norm above its
largest number counts as that number. Sums are compensated, so they are as accurate after a million steps as after one.
"""

from __future__ import annotations

import array
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import LARGEST, promote
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.gradients import Gradients, open_
from gradclip.core.registry import find, home
from gradclip.core.result import ClipResult
from gradclip.core.tracing import untraced
from gradclip.limits.histogram import EDGES, FIRST, ROUNDED
from gradclip.limits.stored import Stored
from gradclip.steps.monitor import each_state
from gradclip.steps.monitor.section import Section, Window
from gradclip.steps.monitor.values import changed, flat, read

__all__ = ["BLANK", "init", "loaded_state", "observed", "observed_before", "of_state"]

VERSION = 1
_MOST = LARGEST["float32"]
_COUNTS = ("steps", "measured", "clipped", "skipped", "changed", "norms", "coefficients", "limits", "not_finite")
_STEPS = ("not_finite_first", "not_finite_last")  #: -1 for none
_SUMS = ("before_total", "after_total", "coefficient_total", "limit_total")
_LEAST, _LARGEST = ("before_least", "after_least"), ("before_largest", "after_largest")

#: an empty section: name -> (length, or 0 for a single number; dtype; value)
BLANK: dict[str, tuple[int, str, float]] = {
    **dict.fromkeys(("before", "after"), (len(EDGES), "int32", 0)),  # the number of norms not below each edge
    **dict.fromkeys(_COUNTS, (0, "int32", 0)),
    **dict.fromkeys(_STEPS, (0, "int32", -1)),
    **dict.fromkeys([name + part for name in _SUMS for part in ("", "_rest")], (0, "float32", 0.0)),
    **dict.fromkeys(_LEAST, (0, "float32", _MOST)),
    **dict.fromkeys(_LARGEST, (0, "float32", 0.0)),
}


def _made(backend: Backend, length: int, dtype: str, value: float, like: Tensor | None) -> Tensor:
    return backend.asarray([value] * length if length else value, dtype, like)


def init(like: Tensor | None, groups: int | None, opened: Gradients | None = None, each: int | None = None) -> dict[str, Any]:
    """An empty state, as tensors on the device of ``like``; with ``each`` also for each of these gradients."""
    backend = home("jax") if like is None else find(like)
    if backend is None:
        hint = "init(like=a tensor); without it the state is made of JAX arrays, and jax must have been imported."
        raise ArgumentTypeError("The state is made of a framework's tensors.", f"like={like!r}", hint)
    sections = [{name: _made(backend, *how, like) for name, how in BLANK.items()} for _ in range(groups or 1)]
    version, many = (backend.asarray(x, "int32", like) for x in (VERSION, groups or 0))
    made = {"version": version, "groups": many, "sections": sections}
    return made if each is None or opened is None else made | {"each": each_state.blank(backend, opened, each, like)}


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
    return min(x, _MOST) if x < math.inf else x


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
        bounded = backend.clip(backend.where(is_finite, x, 0.0), 0.0, _MOST)
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
            self._extreme(f"{name}_least", -self.backend.max(-self.backend.where(counts > 0, values, _MOST), None))
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
        self.now[name] = self.backend.clip(seen, None, x) if name in _LEAST else self.backend.clip(seen, x, None)

    def _truth(self, condition: Tensor) -> Tensor:
        return self.backend.asarray(self.backend.cast(condition, "float32"), "float32", self.like)

    def _sum(self, x: Tensor) -> Tensor:
        return self.backend.sum(x, None)


# ---- back on the host ------------------------------------------------------------------------------------------------------


def of_state(state: Mapping[str, Any]) -> tuple[list[Section], bool, dict[str, list[float]]]:
    """The sections of a state, whether they belong to groups, and the sums of each gradient.

    Raises:
        ValueError: for a state of another version, or with an entry that is missing or wrong.
    """
    stored = Stored(state, "monitor", maker="monitor.init()")
    groups, sections = _checked(stored)
    return list(map(_section, sections)), groups > 0, each_state.sums(stored["each"]) if "each" in state else {}


def loaded_state(stored: Stored, state: dict[str, Any], groups: int | None, like: Tensor) -> dict[str, Any]:
    """A state whose tensors were made numbers, as tensors again: in an empty one on the device of ``like``.

    The ``state_dict()`` of a monitor, which an eager optimizer saves, is one too: without its timeline.

    Raises:
        ValueError: as :func:`of_state`, and for a state of another number of groups.
    """
    each: dict[str, list[float]] = {}
    if isinstance(stored.given, Mapping) and "every" in stored.given:
        each = {name: [x.number() for x in numbers.entries()] for name, numbers in stored["each"].items()}
        stored = _of_monitor(stored, groups)
    elif isinstance(stored.given, Mapping) and "each" in stored.given:
        each = each_state.sums(stored["each"])
    many, sections = _checked(stored)
    if many != (groups or 0):
        raise stored["groups"].wrong(f"this step has {groups or 'no'} groups")
    backend = find(like)
    assert backend is not None
    if "each" in state:
        state["each"] = each_state.loaded(state["each"], each)
    for made, found in zip(state["sections"], sections, strict=True):
        for name, (length, dtype, _) in BLANK.items():
            numbers = list(map(int, found[name])) if dtype == "int32" else found[name]
            made[name] = backend.asarray(numbers if length else numbers[0], dtype, like)
    return state


def _of_monitor(stored: Stored, groups: int | None) -> Stored:
    """The ``state_dict()`` of a monitor in the form of a state."""
    stored.check_version(VERSION)
    sections = list(map(Section.loaded, stored["sections"].entries()))
    many = len(sections) if stored["is_list"].truth() else 0
    if not any(section.steps for section in sections):
        many, sections = groups or 0, [Section() for _ in range(groups or 1)]
    state = {"version": VERSION, "groups": many, "sections": list(map(_numbers, sections))}
    return Stored(state, stored.kind, stored.path, stored.maker)


def _checked(stored: Stored) -> tuple[int, list[dict[str, list[float]]]]:
    """The number of groups in a state, and the numbers of its sections."""
    stored.check_keys(("version", "groups", "sections"), ("each",))
    stored.check_version(VERSION)
    groups = stored["groups"].whole()
    return groups, list(map(_read, stored["sections"].entries(groups or 1)))


def _read(section: Stored) -> dict[str, list[float]]:
    """The numbers of a section: its tensors in one transfer for each dtype."""
    section.check_keys(BLANK)
    found: dict[str, list[float]] = {}
    tensors = {}
    for name, x in section.given.items():
        if isinstance(x, (list, tuple)):
            found[name] = [entry.number() for entry in section[name].entries()]
        elif isinstance(x, (int, float)):
            found[name] = [x if type(x) is float else section[name].number()]
        elif find(x) is None:
            raise section[name].wrong("this must be a tensor")
        else:
            tensors[name] = x
    found |= dict(zip(tensors, read(list(tensors.values())), strict=True))
    for name, (length, dtype, least) in BLANK.items():
        may_overflow = name.removesuffix("_rest") in _SUMS
        if len(found[name]) != max(length, 1) or not (may_overflow or all(map(math.isfinite, found[name]))):
            raise section[name].wrong(f"this must be {length} finite numbers" if length else "this must be a finite number")
        if dtype == "int32" and not all(x.is_integer() and x >= least for x in found[name]):
            raise section[name].wrong(f"this must be of whole numbers from {least:g} on")
    return found


def _section(found: Mapping[str, Sequence[float]]) -> Section:
    numbers = {name: values[0] for name, values in found.items()}
    made, window = Section(), Window()
    for name in ("steps", "measured", "clipped", "skipped", "changed", "coefficients", "limits", "not_finite"):
        setattr(made, name, int(numbers[name]))
    made.not_finite_steps = [int(numbers[name]) for name in _STEPS if numbers[name] >= 0]
    made.coefficient_total, made.limit_total = (_total(numbers, x) for x in _SUMS[2:])
    for name, histogram in (("before", made.before), ("after", made.after)):
        reached = [*map(int, found[name]), 0]
        many = {FIRST + i: a - b for i, (a, b) in enumerate(itertools.pairwise(reached))}
        histogram.bins = {k: n for k, n in many.items() if n}
        histogram.count = int(numbers["norms" if name == "before" else "coefficients"])
        histogram.zeros = histogram.count - reached[0]
        histogram.total = _total(numbers, f"{name}_total")
        if histogram.count:
            histogram.least, histogram.largest = numbers[f"{name}_least"], numbers[f"{name}_largest"]
    window.steps, window.clipped, window.not_finite = made.steps, made.clipped, made.not_finite
    window.limits, window.limit = made.limits, made.limit_total
    window.bins, window.zeros = dict(made.before.bins), made.before.zeros
    made.windows = [window] if made.steps else []
    return made


def _numbers(section: Section) -> dict[str, Any]:
    """The numbers of a section in a state: the inverse of :func:`_section`."""
    before, after = section.before, section.after
    found: dict[str, Any] = {name: getattr(section, name) for name in _COUNTS if name != "norms"} | {"norms": before.count}
    steps = section.not_finite_steps or [-1]
    found |= {"not_finite_first": steps[0], "not_finite_last": steps[-1]}
    totals = (before.total, after.total, section.coefficient_total, section.limit_total)
    for name, total in zip(_SUMS, totals, strict=True):
        found[name] = array.array("f", [total])[0] if total <= _MOST else math.inf
        found[f"{name}_rest"] = total - found[name] if total <= _MOST else 0.0
    for name, histogram in (("before", before), ("after", after)):
        many = [0] * len(EDGES)
        for k, count in histogram.bins.items():
            if k >= FIRST:
                many[min(k - FIRST, len(EDGES) - 1)] += count
        found[name] = list(itertools.accumulate(many[::-1]))[::-1]
        found[f"{name}_least"], found[f"{name}_largest"] = min(histogram.least, _MOST), min(histogram.largest, _MOST)
    return found


def _total(numbers: Mapping[str, float], name: str) -> float:
    """A sum of two parts; one that overflowed counts as the largest float."""
    total = numbers[name] + numbers[f"{name}_rest"]
    return total if math.isfinite(total) else LARGEST["float64"]
