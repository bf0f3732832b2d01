"""The functions of one source: what they return, what their parameters get, and which calls get a function."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import libcst as cst

from gradclip.code.bind import keywords
from gradclip.code.reaching import Reaching
from gradclip.code.resolve import Resolver
from gradclip.code.source import Source, last_name, target_names

__all__ = ["Functions"]

Function = cst.FunctionDef | cst.Lambda


class Functions:
    """The functions of one source."""

    def __init__(self, source: Source, resolver: Resolver, reaching: Reaching) -> None:
        self._source, self._resolver, self._reaching = source, resolver, reaching

    # ---- what they return ------------------------------------------------------------------------------------------------

    def certain(self, node: cst.BaseExpression) -> tuple[Sequence[cst.Param], cst.BaseExpression] | None:
        """The parameters and the returned value of a lambda, or of a function with one ``return``, at its end."""
        place = self._reaching.certain(node) if isinstance(node, cst.Name) else node
        value = place if isinstance(place, cst.FunctionDef) or place is node else self._reaching.value(place)
        if not isinstance(value, (cst.FunctionDef, cst.Lambda)) or not _is_simple(value.params):
            return None
        if isinstance(value, cst.Lambda):
            return value.params.params, value.body
        returns = self._returns.get(value, [])
        last = value.body.body[-1] if isinstance(value.body, cst.IndentedBlock) else None
        if value.decorators or len(returns) != 1 or self._source.parents[returns[0]] is not last or returns[0].value is None:
            return None
        return value.params.params, returns[0].value

    def returned(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a lambda returns, or the only function of this source, or the only method, that has a name."""
        value = node if isinstance(node, cst.Lambda) else self._reaching.value_of(node)
        if isinstance(value, cst.Lambda):
            return value.body
        own = isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and last_name(node.value) == "self")
        functions = self._named.get(last_name(node), ()) if own else ()
        values = [one.value for function in functions for one in self._returns.get(function, ()) if one.value is not None]
        return values[0] if len(values) == 1 else None

    @functools.cached_property
    def _returns(self) -> Mapping[cst.CSTNode, list[cst.Return]]:
        found: dict[cst.CSTNode, list[cst.Return]] = defaultdict(list)
        for one in self._source.any(cst.Return):
            found[self._source.function(one)].append(one)
        return found

    @functools.cached_property
    def _named(self) -> Mapping[str, list[cst.FunctionDef]]:
        found: dict[str, list[cst.FunctionDef]] = defaultdict(list)
        for one in self._source.any(cst.FunctionDef):
            found[one.name.value].append(one)
        return found

    # ---- what they get ---------------------------------------------------------------------------------------------------

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


def _is_simple(parameters: cst.Parameters) -> bool:
    others = (parameters.kwonly_params, parameters.posonly_params, parameters.star_kwarg)
    plain = not any(others) and not isinstance(parameters.star_arg, cst.Param)
    return plain and all(one.default is None for one in parameters.params)
