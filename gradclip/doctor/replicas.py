"""What one process saw of its parameters, to tell whether replicas stay equal: two numbers for each, step by step.

A parameter is a replica if it was equal on all processes before the first step, and the framework says so or its gradients had
one direction. Experts are none: their weights were never equal, and their biases, zeros at first, have gradients of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Course", "Drift", "Mark", "Replicas", "apart", "drifts", "farthest", "kept"]

Mark = tuple[float, float]  #: of a tensor: its norm, and a sum with other weights, each in float64
_START = 1e-12  #: the relative difference of equal parameters before the first step: only the sums are rounded
_DIRECTION = 1e-5  #: of gradients that have one direction, whatever their length
DRIFT = 1e-6  #: of parameters that are no longer equal


@dataclass(slots=True)
class Course:
    """One parameter in one process."""

    marks: list[Mark] = field(default_factory=list)  #: before the first step, and after each
    slope: float = math.nan  #: of its first gradient other than 0: the second number of its mark for a norm of 1
    is_replica: bool = False  #: the framework says so


class Replicas:
    """The parameters of this process. ``mark`` returns nothing for a tensor of which the process holds a shard only."""

    def __init__(self, mark: Callable[[Any], Mark | None]) -> None:
        self.courses: dict[int, Course] = {}
        self._mark = mark

    def before(self, params: Mapping[int, Any], grad: Callable[[Any], Any]) -> None:
        """Look before a step; ``grad`` tells a parameter's gradient."""
        for key, param in params.items():
            course = self.courses.setdefault(key, Course())
            if not course.marks and (mark := self._mark(param)) is not None:
                course.marks.append(mark)
            if course.marks and math.isnan(course.slope) and math.prod(param.shape) > 1 and grad(param) is not None:
                norm, other = self._mark(grad(param)) or (0.0, 0.0)
                course.slope = other / norm if 0 < norm < math.inf else math.nan

    def after(self, params: Mapping[int, Any]) -> None:
        """Look after it."""
        for key, param in params.items():
            course = self.courses.get(key)
            if course is not None and course.marks and (mark := self._mark(param)) is not None:
                course.marks.append(mark)

    def named(self, names: Mapping[int, str]) -> dict[str, Course]:
        """By names, which other processes have too; a name that stands for several has a number behind it."""
        made: dict[str, Course] = {}
        for key, course in self.courses.items():
            name = first = names.get(key, "a parameter without a name")
            count = 1
            while name in made:
                count += 1
                name = f"{first} ({count})"
            made[name] = course
        return {name: course for name, course in made.items() if course.marks}


@dataclass(frozen=True, slots=True)
class Drift:
    """A replica that is no longer equal."""

    name: str
    step: int  #: the first after which it is not, from 1
    rank: int  #: the process that differs from process 0
    far: float  #: by how much at the end, relative to its norm


def kept(ranks: Sequence[Mapping[str, Course]]) -> Iterator[tuple[str, list[Course]]]:
    """The replicas, each with its course on all processes."""
    for name in ranks[0]:
        courses = [rank[name] for rank in ranks if name in rank]
        if len(courses) == len(ranks) and _are_replicas(courses):
            yield name, courses


def _are_replicas(courses: Sequence[Course]) -> bool:
    first = courses[0]
    if any(apart(first.marks[0], x.marks[0]) > _START for x in courses):
        return False
    return all(x.is_replica for x in courses) or all(abs(x.slope - first.slope) <= _DIRECTION for x in courses)


def apart(one: Mark, other: Mark) -> float:
    """The difference of two marks, relative to the norm.

    >>> apart((2.0, 1.0), (2.0, 1.0)), apart((2.0, 1.0), (1.0, 0.5)), apart((math.nan, 0.0), (1.0, 0.0))
    (0.0, 0.5, inf)
    """
    if one == other or all(map(math.isnan, (one[0], other[0]))):
        return 0.0
    far = max(abs(one[0] - other[0]), abs(one[1] - other[1])) / max(one[0], other[0])
    return math.inf if math.isnan(far) else far


def drifts(ranks: Sequence[Mapping[str, Course]]) -> list[Drift]:
    """The replicas that do not stay equal."""
    return [x for name, courses in kept(ranks) if (x := _drift(name, courses)) is not None]


def _drift(name: str, courses: Sequence[Course]) -> Drift | None:
    for step, marks in enumerate(_in_turn(courses)):
        far, rank = _farthest(marks)
        if far > DRIFT:
            return Drift(name, step, rank, _farthest(_in_turn(courses)[-1])[0])
    return None


def farthest(courses: Sequence[Course]) -> float:
    """The largest difference of a parameter on two processes, in all steps."""
    return max(_farthest(marks)[0] for marks in _in_turn(courses))


def _farthest(marks: Sequence[Mark]) -> tuple[float, int]:
    """The largest difference from the first process, and whose it is."""
    return max((apart(marks[0], mark), rank) for rank, mark in enumerate(marks))


def _in_turn(courses: Sequence[Course]) -> list[tuple[Mark, ...]]:
    """The marks of all processes, step by step, as far as all have come."""
    return list(zip(*(x.marks for x in courses), strict=False))
