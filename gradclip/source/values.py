"""The values of one source: which a name probably has, what a function returns, and what its parameters get."""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Mapping

import libcst as cst

from gradclip.source.bind import keywords
from gradclip.source.resolve import Resolver
from gradclip.source.source import Source, last_name, target_names

__all__ = ["Values"]

Function = cst.FunctionDef | cst.Lambda
_BLOCKS = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)


class Values:
    """The values of one source. They are guesses: the last one in the text, whatever may run in between."""

    def __init__(self, source: Source, resolver: Resolver) -> None:
        self._source, self._resolver = source, resolver

    # ---- of names and attributes -----------------------------------------------------------------------------------------

    def last(self, name: cst.Name | cst.Attribute) -> cst.CSTNode | None:
        """The node that binds a name: the only one, or the last one before it in the same function."""
        if isinstance(name, cst.Attribute):
            return self._before(name)
        places, orders = self._resolver.ordered_at(name)
        if len(places) < 2:
            return places[0] if places else None
        around = (name, *self._source.ancestors(name))
        before = reversed(places[: bisect.bisect_left(orders, self._source.order(name))])
        function = self._source.function(name)
        binding = self._source.once((Values.last, id(places)), lambda: frozenset(map(self._source.function, places)))
        while isinstance(function, cst.Lambda) and function not in binding:
            function = self._source.function(function)
        here = (place for place in before if self._source.function(place) is function)
        return next((place for place in here if self._source.within(place, cst.Assign) not in around), None)

    def value_of(self, node: cst.CSTNode | None) -> cst.BaseExpression | None:
        """The value that the :meth:`last` binding gives to a name or an attribute."""
        return self._resolver.value(self.last(node)) if isinstance(node, (cst.Name, cst.Attribute)) else None

    def run(self, node: cst.CSTNode) -> cst.BaseExpression | None:
        """The same, if the assignment stands in no branch that the name is not in: it has run by then."""
        place = self.last(node) if isinstance(node, (cst.Name, cst.Attribute)) else None
        block = self._source.within(place, *_BLOCKS) if place is not None else None
        return self._resolver.value(place) if block in (*self._source.ancestors(node),) else None

    def only(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """The only value that a class gives to an attribute such as ``self.opt``; None switches off, and does not count."""
        values = map(self._resolver.value, self._assigned(node, self._class(node)))
        others = [value for value in values if last_name(value) != "None"]
        return others[0] if len(others) == 1 else None

    def _class(self, node: cst.CSTNode) -> cst.CSTNode:
        return self._source.within(node, cst.ClassDef) or self._source.module

    def _before(self, node: cst.Attribute) -> cst.CSTNode | None:
        """The target to which the function has assigned the value of an attribute before."""
        places = self._assigned(node, self._source.function(node))
        number = bisect.bisect_left(places, self._source.order(node), key=self._source.order)
        around = (node, *self._source.ancestors(node))
        return next((one for one in reversed(places[:number]) if self._source.within(one, cst.Assign) not in around), None)

    def _assigned(self, node: cst.Attribute, around: cst.CSTNode) -> list[cst.Attribute]:
        """The places in a function or a class that assign to the same attribute, in order."""
        name = node.attr.value
        if name not in self._attributes:
            return []
        return self._source.once((Values._assigned, name), lambda: self._grouped(name)).get(
            (around, self._source.code(node)), []
        )

    def _grouped(self, name: str) -> Mapping[tuple[cst.CSTNode, str], list[cst.Attribute]]:
        """The places that assign to attributes of a name, by their functions and classes, and their text."""
        found: dict[tuple[cst.CSTNode, str], list[cst.Attribute]] = defaultdict(list)
        for one in sorted(self._attributes[name], key=self._source.order):
            for around in {self._source.function(one), self._class(one)}:
                found[around, self._source.code(one)].append(one)
        return found

    @functools.cached_property
    def _attributes(self) -> Mapping[str, list[cst.Attribute]]:
        """The attributes to which the source assigns, by their last name: their text takes long to find."""
        found: dict[str, list[cst.Attribute]] = defaultdict(list)
        for one in self._source.all(cst.AssignTarget):
            if isinstance(one.target, cst.Attribute):
                found[one.target.attr.value].append(one.target)
        return found

    # ---- what functions return --------------------------------------------------------------------------------------------

    def returned(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a lambda returns, or the only function of this source, or the only method, that has a name."""
        value = node if isinstance(node, cst.Lambda) else self.value_of(node)
        if isinstance(value, cst.Lambda):
            return value.body
        own = isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and last_name(node.value) == "self")
        functions = self._named.get(last_name(node), ()) if own else ()
        values = [one.value for function in functions for one in self.returns.get(function, ()) if one.value is not None]
        return values[0] if len(values) == 1 else None

    @functools.cached_property
    def returns(self) -> Mapping[cst.CSTNode, list[cst.Return]]:
        """The ``return``s of each function."""
        found: dict[cst.CSTNode, list[cst.Return]] = defaultdict(list)
        for one in self._source.all(cst.Return):
            found[self._source.function(one)].append(one)
        return found

    @functools.cached_property
    def _named(self) -> Mapping[str, list[cst.FunctionDef]]:
        found: dict[str, list[cst.FunctionDef]] = defaultdict(list)
        for one in self._source.all(cst.FunctionDef):
            found[one.name.value].append(one)
        return found

    # ---- what parameters get ----------------------------------------------------------------------------------------------

    def given(self, place: cst.Param) -> list[cst.BaseExpression]:
        """The values that the source passes for a parameter: in calls, and in maps such as ``map(function, values)``."""
        function = self._source.function(place)
        if not isinstance(function, (cst.FunctionDef, cst.Lambda)) or place not in function.params.params:
            return []
        parameters = function.params.params
        index = parameters.index(place)
        method = parameters[0].name.value in ("self", "cls")
        found = []
        for call in self._calls(function):
            positional = [one.value for one in call.args if one.keyword is None and not one.star]
            told = keywords(call).get(place.name.value)
            found += [told] if told is not None else positional[index - method : index - method + 1] if index >= method else []
        for call in self.takers(function):
            if "map" in last_name(call.func):
                found += [one.value for one in call.args[1 + index : 2 + index]]
        return found

    def takers(self, function: cst.CSTNode) -> list[cst.Call]:
        """The calls whose first argument is a function, by its name or written out: ``map(function, values)``."""
        arguments = [self._source.parents.get(function), *map(self._source.parents.get, self._uses(function))]
        calls = [self._source.parents.get(one) for one in arguments if isinstance(one, cst.Arg)]
        return [one for one in calls if isinstance(one, cst.Call) and one.args[0] in arguments]

    def _calls(self, function: Function) -> list[cst.Call]:
        return [call for name in self._names(function) for call in self._source.calls.get(name, ())]

    def _uses(self, function: cst.CSTNode) -> list[cst.Name]:
        return [use for name in self._names(function) for use in self._resolver.uses.get(name, ())]

    def _names(self, function: cst.CSTNode) -> frozenset[str]:
        """The name of a function, or those of a lambda: ``f`` of ``f = lambda g: ...``."""
        if isinstance(function, cst.FunctionDef):
            return frozenset({function.name.value})
        holder = self._source.parents.get(function)
        targets = holder.targets if isinstance(holder, cst.Assign) else ()
        return frozenset(name for one in targets for name in target_names(one.target))
