"""The conditions of a handwritten clip: tests around a place, masks in it, and guards before it.

A test bounds a coefficient where it holds only for norms over the limit. Where it holds only for norms under the limit, the
coefficient is at least one: it scales up, and clips nothing.
"""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping

import libcst as cst

from gradclip.source.byhand.algebra import Clip, Form, differ, has_limit, is_trivial, norm_of, ratio
from gradclip.source.byhand.forms import Forms
from gradclip.source.byhand.vocabulary import COMPARES, OPERATORS
from gradclip.source.found import Context
from gradclip.source.source import last_name, receiver

__all__ = ["Conditions"]

_OVER, _UNDER, _EITHER = 1, -1, 0  #: the norms for which a test holds: those over the limit, under it, or unknown
_INVERTS = frozenset({"logical_not", "logical_not_", "bitwise_not", "invert"})
_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
_GUARDS = 3  #: guards before a place that count


class Conditions:
    """The conditions in one source."""

    def __init__(self, context: Context, forms: Forms) -> None:
        self._source, self._values, self._forms = context.source, context.values, forms

    def bound(self, node: cst.CSTNode, clip: Clip) -> bool:
        """Whether a place runs only for norms over the limit."""
        return any(side != _UNDER for side in self._around(node, clip))

    def choose(self, form: Form, clip: Clip) -> bool:
        """Whether a form is a choice that takes the part with the norm only for norms over the limit."""
        if form.op != "choice" or not isinstance(form.node, cst.BaseExpression):
            return False
        sign = 1 if norm_of(form.parts[0]) is not None else -1
        return any(side != _UNDER for side in self._of(form.node, clip, sign))

    def tests(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, int]]:
        """Each ``if``, mask and guard that lets a place run, and 1 if it has to hold, else -1."""
        source = self._source
        for test, holds in source.tests(node, (cst.If, cst.IfExp, cst.While)):
            yield test, 1 if holds else -1
        for mask in (mask for line in source.inside(node) for mask in self._masks.get(line, ())):
            yield mask, 1
        guards = self._guards.get(source.function(node), ())
        last = bisect.bisect_left(guards, source.start(node), key=lambda one: source.end(one[0]))
        for branch, sign in guards[max(0, last - _GUARDS) : last]:
            yield branch.test, sign

    def _around(self, node: cst.CSTNode, clip: Clip) -> Iterator[int]:
        """For which norms each test that compares with the limit lets a place run."""
        for test, sign in self.tests(node):
            yield from self._of(test, clip, sign)

    def _of(self, test: cst.BaseExpression, clip: Clip, sign: int) -> Iterator[int]:
        side = self._side(test, clip)
        if side is not None:
            yield sign * side

    def _side(self, test: cst.BaseExpression, clip: Clip) -> int | None:
        """For which norms a test is true; None if it compares neither the norm with the limit nor the coefficient with one."""
        if isinstance(test, cst.BooleanOperation):
            return _both(self._side(test.left, clip), self._side(test.right, clip))
        if isinstance(test, cst.UnaryOperation):
            side = self._side(test.expression, clip)
            return -side if side is not None else None
        if isinstance(test, cst.Name):
            value = self._values.value_of(test)
            if value is None:
                return _EITHER if has_limit(clip.limit) else None  # a flag from elsewhere
            return self._side(value, clip) if not isinstance(value, cst.Name) else None
        if isinstance(test, cst.Comparison):
            sides = [test.left, *(one.comparator for one in test.comparisons)]
            found: int | None = None
            for left, right, one in zip(sides, sides[1:], test.comparisons, strict=False):
                found = _both(found, self._compared(left, right, OPERATORS.get(type(one.operator), 0), clip))
            return found
        return self._called(test, clip) if isinstance(test, cst.Call) else None

    def _called(self, test: cst.Call, clip: Clip) -> int | None:
        name = last_name(test.func)
        given = [argument.value for argument in test.args[:2]]
        if name in COMPARES:
            if len(given) == 1 and (owner := receiver(test)) is not None:
                given.insert(0, owner)
            return self._compared(given[0], given[1], COMPARES[name], clip) if len(given) == 2 else None
        side = self._side(given[0], clip) if given else None
        return -side if side is not None and name in _INVERTS else side

    def _compared(self, left: cst.BaseExpression, right: cst.BaseExpression, sign: int, clip: Clip) -> int | None:
        found = ratio(self._forms.of(left), self._forms.of(right)) if sign else None
        if found is None or is_trivial(found[0].limit) or differ(found[0].limit, clip.limit):
            return None
        return sign * int(found[1])

    @functools.cached_property
    def _masks(self) -> Mapping[cst.CSTNode, list[cst.BaseExpression]]:
        """The indices by their statement."""
        found: dict[cst.CSTNode, list[cst.BaseExpression]] = defaultdict(list)
        for one in self._source.all(cst.Index):
            line = self._source.within(one, *_LINES)
            if line is not None and isinstance(one.value, (cst.Comparison, cst.Name, cst.UnaryOperation)):
                found[line].append(one.value)
        return found

    @functools.cached_property
    def _guards(self) -> Mapping[cst.CSTNode, list[tuple[cst.If, int]]]:
        """Each ``if`` that leaves, by function, with -1; with 1 where its ``else`` leaves. In the order of their ends."""
        found: dict[cst.CSTNode, list[tuple[cst.If, int]]] = defaultdict(list)
        for one in [*self._source.all(cst.Return), *self._source.all(cst.Continue)]:
            block = self._source.within(one, cst.If, cst.Else)
            branch = self._source.parents.get(block) if isinstance(block, cst.Else) else block
            if isinstance(branch, cst.If):
                found[self._source.function(branch)].append((branch, -1 if block is branch else 1))
        return {function: sorted(ones, key=lambda one: self._source.end(one[0])) for function, ones in found.items()}


def _both(one: int | None, other: int | None) -> int | None:
    """The norms for which two tests say something together."""
    if one is None or other is None:
        return other if one is None else one
    return one if one == other else _EITHER
