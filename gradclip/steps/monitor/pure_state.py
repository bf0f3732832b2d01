"""The state of the pure monitor, of fixed size: empty, as tensors; read on the host, as sections; and loaded from numbers."""

from __future__ import annotations

import array
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import LARGEST
from gradclip.core.errors import ArgumentTypeError
from gradclip.core.gradients import Gradients
from gradclip.core.registry import find, home
from gradclip.limits.histogram import EDGES, FIRST
from gradclip.limits.stored import Stored
from gradclip.steps.monitor import each_state
from gradclip.steps.monitor.section import Section, Window
from gradclip.steps.monitor.values import read

__all__ = ["BLANK", "LEAST", "MOST", "VERSION", "init", "loaded_state", "of_state"]

VERSION = 1  #: of a monitor's state, this one and the eager one's
MOST = LARGEST["float32"]
_COUNTS = ("steps", "measured", "clipped", "skipped", "changed", "norms", "coefficients", "limits", "not_finite")
_STEPS = ("not_finite_first", "not_finite_last")  #: -1 for none
_SUMS = ("before_total", "after_total", "coefficient_total", "limit_total")
LEAST, _LARGEST = ("before_least", "after_least"), ("before_largest", "after_largest")
#: an empty section: name -> (length, or 0 for a single number; dtype; value)
BLANK: dict[str, tuple[int, str, float]] = {
    **dict.fromkeys(("before", "after"), (len(EDGES), "int32", 0)),  # the number of norms not below each edge
    **dict.fromkeys(_COUNTS, (0, "int32", 0)),
    **dict.fromkeys(_STEPS, (0, "int32", -1)),
    **dict.fromkeys([name + part for name in _SUMS for part in ("", "_rest")], (0, "float32", 0.0)),
    **dict.fromkeys(LEAST, (0, "float32", MOST)),
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
        found[name] = array.array("f", [total])[0] if total <= MOST else math.inf
        found[f"{name}_rest"] = total - found[name] if total <= MOST else 0.0
    for name, histogram in (("before", before), ("after", after)):
        many = [0] * len(EDGES)
        for k, count in histogram.bins.items():
            if k >= FIRST:
                many[min(k - FIRST, len(EDGES) - 1)] += count
        found[name] = list(itertools.accumulate(many[::-1]))[::-1]
        found[f"{name}_least"], found[f"{name}_largest"] = min(histogram.least, MOST), min(histogram.largest, MOST)
    return found


def _total(numbers: Mapping[str, float], name: str) -> float:
    """A sum of two parts; one that overflowed counts as the largest float."""
    total = numbers[name] + numbers[f"{name}_rest"]
    return total if math.isfinite(total) else LARGEST["float64"]
