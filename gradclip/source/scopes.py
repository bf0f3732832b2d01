"""The bindings of a name by Python's rules of scope; computed per name, because few names need them."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping

import libcst as cst

from gradclip.source.source import Source

__all__ = ["Scopes"]

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_FUNCTIONS = (cst.FunctionDef, cst.Lambda)
_PARTS = (cst.Element, cst.StarredElement, cst.Tuple, cst.List)  # the parts of an assignment target


class Scopes:
    """The scopes of one source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._grouped: dict[str, Mapping[cst.CSTNode, list[cst.CSTNode]]] = {}  # by name, then by scope
        self._found: dict[tuple[cst.CSTNode, str], list[cst.CSTNode]] = {}

    def assigned(self, node: cst.CSTNode, name: str) -> list[cst.CSTNode]:
        """The nodes that bind a name for a place: names, parameters, functions, classes, imports. The same list each time."""
        first = self._scope(node)
        key = (first, name)
        if key not in self._found:
            self._found[key] = self._assigned(first, name)
        return self._found[key]

    def _assigned(self, first: cst.CSTNode, name: str) -> list[cst.CSTNode]:
        scope = first
        places = self._by_scope(name)
        while True:
            visible = scope is first or not isinstance(scope, cst.ClassDef)
            if visible and (found := places.get(scope)):
                return found
            if scope is self._source.module:
                return []
            scope = self._scope(scope)

    def _by_scope(self, name: str) -> Mapping[cst.CSTNode, list[cst.CSTNode]]:
        if name not in self._grouped:
            found: dict[cst.CSTNode, list[cst.CSTNode]] = defaultdict(list)
            for place in self._places.get(name, ()):
                found[self._owner(place, name)].append(place)
            self._grouped[name] = found
        return self._grouped[name]

    @functools.cached_property
    def _places(self) -> Mapping[str, list[cst.CSTNode]]:
        """The places that bind a name, by name."""
        found: dict[str, list[cst.CSTNode]] = defaultdict(list)
        for name in self._source.all(cst.Name):
            place = self._binds(name)
            if place is not None:
                found[name.value].append(place)
        imports: list[cst.Import | cst.ImportFrom] = [*self._source.all(cst.Import), *self._source.all(cst.ImportFrom)]
        for statement in imports:
            if isinstance(statement.names, cst.ImportStar):
                continue
            for alias in statement.names:
                local: cst.BaseExpression = alias.asname.name if alias.asname is not None else alias.name
                while isinstance(local, cst.Attribute):
                    local = local.value
                if isinstance(local, cst.Name) and statement not in found[local.value]:
                    found[local.value].append(statement)
        return found

    def _binds(self, name: cst.Name) -> cst.CSTNode | None:
        """The node that binds a name, in LibCST's terms; None if the source reads the name."""
        parents = self._source.parents
        parent = parents[name]
        if isinstance(parent, cst.Param):
            return parent if parent.name is name else None
        if isinstance(parent, (cst.FunctionDef, cst.ClassDef)):
            return parent if parent.name is name else None
        outer: cst.CSTNode = name
        while isinstance(parent, _PARTS):
            outer, parent = parent, parents[parent]
        if isinstance(parent, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr)):
            return name if parent.target is outer else None
        if isinstance(parent, cst.AsName):
            return None if isinstance(parents[parent], cst.ImportAlias) else name
        return None

    def _owner(self, place: cst.CSTNode, name: str) -> cst.CSTNode:
        """The scope of a name's binding."""
        if isinstance(place, cst.Param):
            function = self._source.within(place, *_FUNCTIONS)
            return function if function is not None else self._source.module
        scope = self._scope(place)
        if isinstance(self._source.parents[place], cst.NamedExpr):
            while isinstance(scope, _COMPREHENSIONS):
                scope = self._scope(scope)
        while not isinstance(scope, cst.Module):
            kind = self._declared.get((scope, name))
            if kind is None:
                return scope
            if kind is cst.Global:
                return self._source.module
            scope = self._scope(scope)
            while not isinstance(scope, (*_FUNCTIONS, cst.Module)):
                scope = self._scope(scope)
        return scope

    @functools.cached_property
    def _declared(self) -> Mapping[tuple[cst.CSTNode, str], type[cst.CSTNode]]:
        """The names in ``global`` and ``nonlocal`` statements."""
        found: dict[tuple[cst.CSTNode, str], type[cst.CSTNode]] = {}
        statements: list[cst.Global | cst.Nonlocal] = [*self._source.all(cst.Global), *self._source.all(cst.Nonlocal)]
        for statement in statements:
            for item in statement.names:
                found[self._scope(statement), item.name.value] = type(statement)
        return found

    def _scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function, class, comprehension or module in whose scope a node is evaluated."""
        inner = node
        for outer in self._source.ancestors(node):
            if isinstance(outer, (cst.ClassDef, cst.FunctionDef, cst.Lambda)):
                if inner is outer.body:
                    return outer
            elif isinstance(outer, _COMPREHENSIONS) and not self._is_first_iterable(node, outer):
                return outer
            inner = outer
        return self._source.module

    def _is_first_iterable(self, node: cst.CSTNode, comprehension: cst.CSTNode) -> bool:
        first = comprehension.for_in.iter  # type: ignore[attr-defined]
        return any(one is first for one in (node, *self._source.ancestors(node)))
