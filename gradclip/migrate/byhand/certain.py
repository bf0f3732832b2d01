"""Which binding certainly reaches a name: the one that ran last wherever the name is read."""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from gradclip.source.found import Context

__all__ = ["LOOPS", "Certain"]

LOOPS = (cst.For, cst.While)
_BLOCKS = (cst.IndentedBlock, cst.Module, cst.SimpleStatementSuite)


class Certain:
    """The bindings that certainly reach the names of one source."""

    def __init__(self, context: Context) -> None:
        self._source, self._resolver, self._values = context.source, context.resolver, context.values

    def place(self, name: cst.Name | cst.Attribute) -> cst.CSTNode | None:
        """The node whose binding of a name certainly reaches it; of an attribute, only in the line just above."""
        if isinstance(name, cst.Attribute):
            return self._above(name)
        if name.value in self._shared:
            return None
        places, orders = self._resolver.ordered_at(name)
        around = {name, *self._source.ancestors(name)}
        number = bisect.bisect_left(orders, self._source.order(name)) - 1
        while number >= 0 and self._is_of(places[number], around):
            number -= 1
        if number < 0 and len(places) == 1 and isinstance(self._source.parents.get(places[0]), cst.CompFor):
            return places[0]  # `g` in `[g * 2 for g in grads]`
        return places[number] if number >= 0 and self._certain(number, around, places, orders) else None

    def value(self, place: cst.CSTNode | None) -> cst.BaseExpression | None:
        """The value that ``name = value`` binds."""
        return self._resolver.value(place)

    def function_at(self, place: cst.CSTNode | None) -> cst.CSTNode | None:
        """The function or the value that a place binds."""
        return place if isinstance(place, cst.FunctionDef) else self.value(place)

    def called(self, node: cst.BaseExpression) -> cst.CSTNode | None:
        """The function that an expression is: a lambda, or what its name stands for."""
        return self.function_at(self.place(node)) if isinstance(node, cst.Name) else node

    def function(self, node: cst.BaseExpression) -> tuple[Sequence[cst.Param], cst.BaseExpression] | None:
        """The parameters and the returned value of a lambda, or of a function with one ``return``, at its end."""
        value = self.called(node)
        if not isinstance(value, (cst.FunctionDef, cst.Lambda)) or not _is_simple(value.params):
            return None
        if isinstance(value, cst.Lambda):
            return value.params.params, value.body
        returns = self._values.returns.get(value, [])
        last = value.body.body[-1] if isinstance(value.body, cst.IndentedBlock) else None
        if value.decorators or len(returns) != 1 or self._source.parents[returns[0]] is not last or returns[0].value is None:
            return None
        return value.params.params, returns[0].value

    def statement(self, place: cst.CSTNode) -> cst.SimpleStatementLine | None:
        """The line of ``name = value``, if it has nothing else."""
        line = self._source.within(place, cst.SimpleStatementLine)
        only = line.body[0] if line is not None and len(line.body) == 1 else None
        return line if isinstance(only, cst.Assign) and len(only.targets) == 1 and self.value(place) is only.value else None

    def before(self, loop: cst.For, place: cst.CSTNode) -> cst.CSTNode | None:
        """The binding that reaches a loop, for a name that the loop binds only at ``place``."""
        if not isinstance(place, cst.Name):
            return None
        places, orders = self._resolver.ordered_at(place)
        number = bisect.bisect_left(orders, self._source.order(loop))
        is_inside = [loop in self._source.ancestors(one) for one in places[number : number + 2]]
        last = places[number - 1] if number and sum(is_inside) == 1 else None
        return last if last is not None and self._source.within(last, *_BLOCKS) is self._source.within(loop, *_BLOCKS) else None

    @functools.cached_property
    def _shared(self) -> frozenset[str]:
        """The names that are ``global`` or ``nonlocal`` somewhere: any call may bind them."""
        statements: list[cst.Global | cst.Nonlocal] = [*self._source.all(cst.Global), *self._source.all(cst.Nonlocal)]
        return frozenset(item.name.value for one in statements for item in one.names)

    def _is_of(self, place: cst.CSTNode, around: set[cst.CSTNode]) -> bool:
        """Whether a place is a target of the assignment that contains the name: it binds after its value."""
        holder = self._source.parents.get(place)
        while isinstance(holder, (cst.Element, cst.StarredElement, cst.Tuple, cst.List, cst.AssignTarget)):
            holder = self._source.parents.get(holder)
        return isinstance(holder, (cst.Assign, cst.AugAssign, cst.AnnAssign)) and holder in around

    def _certain(self, number: int, around: set[cst.CSTNode], places: Sequence[cst.CSTNode], orders: Sequence[float]) -> bool:
        last = places[number]
        if isinstance(last, (cst.FunctionDef, cst.ClassDef, cst.Import, cst.ImportFrom)):
            return len(places) == 1
        return self._has_run(last, around) and not any(True for _ in self._again(last, around, places, orders))

    def _has_run(self, place: cst.CSTNode, around: set[cst.CSTNode]) -> bool:
        """Whether a binding has run wherever a later place of the text, with these nodes around it, runs."""
        holder = self._source.parents.get(place)
        if isinstance(holder, cst.CompFor) or isinstance(place, cst.Param):
            return True
        if isinstance(holder, cst.For):
            return holder.body in around
        loop = self._source.within(place, *LOOPS) if isinstance(holder, cst.AugAssign) else None
        return self._source.within(loop or place, *_BLOCKS) in around  # of a total: its loop has ended, or it is no total

    def _again(
        self, place: cst.CSTNode, around: set[cst.CSTNode], places: Sequence[cst.CSTNode], orders: Sequence[float]
    ) -> Iterator[cst.CSTNode]:
        """The bindings in the loops that begin between a binding and a use: they reach the use in a later pass."""
        inside = {place, *self._source.ancestors(place)}
        for loop in around:
            if isinstance(loop, LOOPS) and loop not in inside:
                for one in places[bisect.bisect_left(orders, self._source.order(loop)) :]:
                    if loop not in self._source.ancestors(one):
                        break
                    yield one

    def readers(self, place: cst.CSTNode) -> Sequence[cst.Name]:
        """The uses of its name that a binding may reach."""
        name = place.name if isinstance(place, cst.FunctionDef) else place
        if not isinstance(name, cst.Name):
            return ()
        return self._source.once((Certain.readers, name.value), lambda: self._readers(name.value)).get(place, ())

    def _readers(self, name: str) -> Mapping[cst.CSTNode, list[cst.Name]]:
        found: dict[cst.CSTNode, list[cst.Name]] = defaultdict(list)
        for use in self._resolver.uses.get(name, ()):
            for place in self._may_reach(use):
                found[place].append(use)
        return found

    def _may_reach(self, use: cst.Name) -> Iterator[cst.CSTNode]:
        """The bindings that a use may read: back to one that has certainly run, or all of them."""
        parent = self._source.parents[use]
        places, orders = self._resolver.ordered_at(use)
        number = bisect.bisect_left(orders, self._source.order(use))
        binds = number < len(places) and places[number] is use and not isinstance(parent, cst.AugAssign)
        if binds or (isinstance(parent, (cst.Param, cst.FunctionDef, cst.ClassDef)) and parent.name is use):
            return iter(())
        around = {use, *self._source.ancestors(use)}
        found = []
        for place in reversed(places[:number]):
            if self._source.function(place) is not self._source.function(use) or use.value in self._shared:
                break
            if not self._is_of(place, around):
                found.append(place)
                if self._has_run(place, around):
                    return iter((*found, *self._again(place, around, places, orders)))
        return iter(places)

    def _above(self, node: cst.Attribute) -> cst.CSTNode | None:
        """The target in the line just above that gives an attribute its value: further away, other code may change it."""
        inner: cst.CSTNode = node
        for outer in self._source.ancestors(node):
            if isinstance(outer, (cst.FunctionDef, cst.Lambda)):
                break
            if isinstance(outer, (cst.IndentedBlock, cst.Module)):
                above = self._source.once((Certain._above, outer), functools.partial(_above, outer.body)).get(inner)
                last = above.body[-1] if isinstance(above, cst.SimpleStatementLine) else None
                target = last.targets[0].target if isinstance(last, cst.Assign) else None
                if target is not None and self._source.code(target) == self._source.code(node):
                    return target
            inner = outer
        return None


def _above(body: Sequence[cst.CSTNode]) -> Mapping[cst.CSTNode, cst.CSTNode]:
    return dict(zip(body[1:], body, strict=False))


def _is_simple(parameters: cst.Parameters) -> bool:
    others = (parameters.kwonly_params, parameters.posonly_params, parameters.star_kwarg)
    plain = not any(others) and not isinstance(parameters.star_arg, cst.Param)
    return plain and all(one.default is None for one in parameters.params)
