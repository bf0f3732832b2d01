"""Which assignment reaches a name: the one that certainly ran last, or none."""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import libcst as cst

from gradclip.code.byhand.measures import none_test
from gradclip.code.found import Context

__all__ = ["LOOPS", "Reaching"]

LOOPS = (cst.For, cst.While)
_BLOCKS = (cst.IndentedBlock, cst.Module, cst.SimpleStatementSuite)


class Reaching:
    """The values that reach the names of one source."""

    def __init__(self, context: Context) -> None:
        self._source, self._resolver = context.source, context.resolver

    def place(self, name: cst.Name) -> cst.CSTNode | None:
        """The node whose binding of a name certainly reaches it."""
        if name.value in self._shared:
            return None
        places, starts = self._ordered(self._resolver.assigned_at(name))
        around = {name, *self._source.ancestors(name)}
        number = bisect.bisect_left(starts, self._source.start(name)) - 1
        while number >= 0 and self._is_of(places[number], around):
            number -= 1
        if number < 0 and len(places) == 1 and isinstance(self._source.parents.get(places[0]), cst.CompFor):
            return places[0]  # `g` in `[g * 2 for g in grads]`
        return places[number] if number >= 0 and self._certain(number, around, places, starts) else None

    @functools.cached_property
    def _shared(self) -> frozenset[str]:
        """The names that are ``global`` or ``nonlocal`` somewhere: any call may bind them."""
        statements: list[cst.Global | cst.Nonlocal] = [*self._source.any(cst.Global), *self._source.any(cst.Nonlocal)]
        return frozenset(item.name.value for one in statements for item in one.names)

    def _ordered(self, places: Sequence[cst.CSTNode]) -> tuple[list[cst.CSTNode], list[int]]:
        """The places in the order of the text, and their starts."""

        def made() -> tuple[list[cst.CSTNode], list[int]]:
            ordered = sorted(places, key=self._source.start)
            return ordered, [self._source.start(one) for one in ordered]

        found: tuple[list[cst.CSTNode], list[int]] = self._source.once((Reaching._ordered, id(places)), made)
        return found

    def _is_of(self, place: cst.CSTNode, around: set[cst.CSTNode]) -> bool:
        """Whether a place is a target of the assignment that contains the name: it binds after its value."""
        holder = self._source.parents.get(place)
        while isinstance(holder, (cst.Element, cst.StarredElement, cst.Tuple, cst.List, cst.AssignTarget)):
            holder = self._source.parents.get(holder)
        return isinstance(holder, (cst.Assign, cst.AugAssign, cst.AnnAssign)) and holder in around

    def _certain(self, number: int, around: set[cst.CSTNode], places: Sequence[cst.CSTNode], starts: Sequence[int]) -> bool:
        last = places[number]
        if isinstance(last, (cst.FunctionDef, cst.ClassDef, cst.Import, cst.ImportFrom)):
            return len(places) == 1
        holder = self._source.parents.get(last)
        if isinstance(holder, cst.CompFor) or isinstance(last, cst.Param):
            block: cst.CSTNode | None = None
        elif isinstance(holder, cst.For):
            block = holder.body
        elif isinstance(holder, cst.AugAssign):  # a total: its loop has ended, or it is no total
            loop = self._source.within(last, *LOOPS)
            block = self._source.within(loop if loop is not None else last, *_BLOCKS)
        else:
            block = self._source.within(last, *_BLOCKS)
        if block is not None and block not in around:
            return False
        inside = {last, *self._source.ancestors(last)}
        return not any(self._binds(one, starts) for one in around if isinstance(one, LOOPS) and one not in inside)

    def _binds(self, loop: cst.CSTNode, starts: Sequence[int]) -> bool:
        """Whether one of some places lies within a loop."""
        first = bisect.bisect_left(starts, self._source.start(loop))
        return first < len(starts) and starts[first] < self._source.end(loop)

    def before(self, loop: cst.For, place: cst.CSTNode) -> cst.CSTNode | None:
        """The binding that reaches a loop, for a name that the loop binds only at ``place``."""
        if not isinstance(place, cst.Name):
            return None
        places, starts = self._ordered(self._resolver.assigned_at(place))
        number = bisect.bisect_left(starts, self._source.start(loop))
        inside = bisect.bisect_left(starts, self._source.end(loop)) - number
        last = places[number - 1] if number and inside == 1 else None
        return last if last is not None and self._source.within(last, *_BLOCKS) is self._source.within(loop, *_BLOCKS) else None

    def is_unguarded(self, node: cst.CSTNode, loop: cst.For) -> bool:
        """Whether a statement runs in each pass of a loop in which there is a gradient."""
        for outer in self._source.ancestors(node):
            if outer is loop:
                return not any(self._leaves(one) for one in loop.body.body)
            if isinstance(outer, cst.If) and (none_test(outer.test) != "is not" or outer.orelse is not None):
                return False
            if isinstance(outer, (cst.For, cst.While, cst.Try, cst.Else, cst.FunctionDef)):
                return False
        return False

    @staticmethod
    def _leaves(statement: cst.CSTNode) -> bool:
        """Whether a statement of a loop may skip the rest; ``if p.grad is None: continue`` skips nothing that counts."""
        if isinstance(statement, cst.If):
            return not none_test(statement.test)
        return isinstance(statement, (cst.For, cst.While, cst.Try, cst.With, cst.Match))

    def value(self, place: cst.CSTNode) -> cst.BaseExpression | None:
        """The value that ``name = value`` binds; of ``leaves, tree = tree_flatten(x)``, the first part."""
        holder = self._source.parents.get(place)
        statement = self._source.parents.get(holder) if isinstance(holder, cst.AssignTarget) else None
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            return statement.value
        return None

    def statement(self, place: cst.CSTNode) -> cst.SimpleStatementLine | None:
        """The line of ``name = value``, if it has nothing else."""
        line = self._source.within(place, cst.SimpleStatementLine)
        return line if line is not None and len(line.body) == 1 and self.value(place) is not None else None

    def function(self, node: cst.BaseExpression) -> tuple[Sequence[cst.Param], cst.BaseExpression] | None:
        """The parameters and the returned value of a lambda, or of a function with one ``return``, at its end."""
        if isinstance(node, cst.Name):
            place = self.place(node)
            if place is None:
                return None
            value = place if isinstance(place, cst.FunctionDef) else self.value(place)
        else:
            value = node
        if isinstance(value, cst.Lambda):
            return (value.params.params, value.body) if _is_simple(value.params) else None
        if not isinstance(value, cst.FunctionDef) or not _is_simple(value.params) or value.decorators:
            return None
        by_function: Mapping[cst.CSTNode, list[cst.Return]] = self._source.once(Reaching.function, self._returns)
        returns = by_function.get(value, [])
        last = value.body.body[-1] if isinstance(value.body, cst.IndentedBlock) else None
        if len(returns) != 1 or self._source.parents[returns[0]] is not last or returns[0].value is None:
            return None
        return value.params.params, returns[0].value

    def _returns(self) -> Mapping[cst.CSTNode, list[cst.Return]]:
        found: dict[cst.CSTNode, list[cst.Return]] = defaultdict(list)
        for one in self._source.any(cst.Return):
            found[self._source.function(one)].append(one)
        return found


def _is_simple(parameters: cst.Parameters) -> bool:
    others = (parameters.kwonly_params, parameters.posonly_params, parameters.star_kwarg)
    plain = not any(others) and not isinstance(parameters.star_arg, cst.Param)
    return plain and all(one.default is None for one in parameters.params)
