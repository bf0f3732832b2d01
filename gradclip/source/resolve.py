"""The meaning of a name in a source: the qualified names from its imports, and whether other code may bind it."""

from __future__ import annotations

import builtins
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from gradclip.natives import BY_NAME, KEYWORDS
from gradclip.source.scopes import Scopes
from gradclip.source.source import Source, dotted

__all__ = ["Binding", "Given", "Names", "Resolver", "module_of"]

# the parents of a name that the source certainly reads and does not bind
_READERS = (
    cst.Arg,
    cst.Assert,
    cst.Assign,
    cst.Attribute,
    cst.Await,
    cst.BinaryOperation,
    cst.BooleanOperation,
    cst.Call,
    cst.Comparison,
    cst.ComparisonTarget,
    cst.Decorator,
    cst.DictElement,
    cst.Expr,
    cst.FormattedStringExpression,
    cst.If,
    cst.IfExp,
    cst.Index,
    cst.Raise,
    cst.Return,
    cst.Subscript,
    cst.UnaryOperation,
    cst.While,
)


@dataclass(frozen=True, slots=True)
class Binding:
    """One name that an import statement binds."""

    local: str  #: "nn"
    qualified: str  #: "torch.nn"; a relative import starts with dots
    node: cst.Import | cst.ImportFrom
    alias: cst.ImportAlias


@dataclass(frozen=True, slots=True)
class Names:
    """The possible meanings of an expression."""

    qualified: frozenset[str] = frozenset()  #: from imports
    local: bool = False  #: whether an object that this source makes is also, or the only, possible meaning
    unbound: bool = False  #: whether nothing in the source binds it
    bound_at: tuple[Binding, ...] = ()  #: the imports
    renamed: bool = False  #: whether an assignment to another name is involved

    @property
    def single(self) -> str:
        """The only possible qualified name; "" if there is none or several."""
        return next(iter(self.qualified)) if len(self.qualified) == 1 and not self.local else ""


@dataclass(frozen=True, slots=True)
class Given:
    """What a statement gives to a name or an attribute: a value, or each item of it; the whole or a part."""

    value: cst.BaseExpression
    each: bool = False  #: whether it is each item: of a loop
    part: tuple[int, ...] = ()  #: (1,) for ``v`` of ``g, v = value``; () for the whole


class Resolver:
    """Resolves names by Python's scopes to an import, a local object, several of them, or nothing."""

    def __init__(self, source: Source, stars: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Resolve the names of a source; ``stars`` maps its star imports to the names that they bind, if known."""
        self._source = source
        self._known_stars = stars or {}
        self._scopes = Scopes(source)
        self._cache: dict[cst.CSTNode, Names] = {}

    def names(self, node: cst.CSTNode, depth: int = 4) -> Names:
        """The possible meanings of a name or a dotted name."""
        found = self._cache.get(node)
        if found is None:
            parts = dotted(node)
            found = self._cache[node] = Names(local=True) if parts is None else self._of(node, parts, depth)
        return found

    def name(self, node: cst.CSTNode) -> str:
        """The only possible qualified name of an expression; "" if there is none or several."""
        return self.names(node).single

    def _of(self, node: cst.CSTNode, parts: tuple[str, ...], depth: int) -> Names:
        first = node
        while isinstance(first, cst.Attribute):
            first = first.value
        rest = "".join(f".{part}" for part in parts[1:])
        if parts[0] not in self._scoped:
            return self._unscoped(parts[0], rest)
        places = self._scopes.assigned(first, parts[0])
        if not places:
            return self._outside(parts[0], rest)
        key = (Resolver._of, id(places))  # the scopes keep the list
        bindings, others = self._source.once(key, lambda: self._meanings(places, parts[0]))
        qualified = {binding.qualified + rest for binding in bindings}
        if not qualified and len(others) == 1 and depth:
            value = self.value(others[0])
            if value is not None:
                renamed = self.names(value, depth - 1)
                names = frozenset(name + rest for name in renamed.qualified)
                return Names(names, renamed.local, renamed.unbound, renamed.bound_at, renamed=bool(names))
        return Names(frozenset(qualified), bool(others) or parts[0] in self._matched, bound_at=bindings)

    def _meanings(self, places: Sequence[cst.CSTNode], name: str) -> tuple[tuple[Binding, ...], list[cst.CSTNode]]:
        """The imports among the bindings of a name, and the other bindings."""
        imports = [place for place in places if isinstance(place, (cst.Import, cst.ImportFrom))]
        bindings = tuple(binding for node in imports for binding in self.bindings_of(node) if binding.local == name)
        others = [place for place in places if place not in imports]
        return bindings, [other for other in others if not self._is_none(other)] if bindings else others

    def _unscoped(self, name: str, rest: str) -> Names:
        """The meanings of a name that only imports at the module's top level may bind: the meaning is the same everywhere."""
        bindings = tuple(binding for binding in self.bindings if binding.local == name)
        if not bindings:
            return self._outside(name, rest)
        return Names(frozenset(binding.qualified + rest for binding in bindings), bound_at=bindings)

    def _outside(self, name: str, rest: str) -> Names:
        """The meaning of a name that this source does not bind."""
        builtin = Names(frozenset({f"builtins.{name}{rest}"})) if hasattr(builtins, name) else Names(unbound=True)
        return self._by_star(name, rest) or builtin

    def _by_star(self, name: str, rest: str) -> Names | None:
        """The meaning from a star import: from the last one that binds the name, if no later one may bind it."""
        for star in reversed(self.stars):
            bound = self._known_stars.get(module_of(star))
            if bound is None:
                qualified = f"{module_of(star)}.{name}"
                return Names(frozenset({qualified + rest})) if qualified in BY_NAME or qualified in KEYWORDS else None
            if name in bound:
                return Names(frozenset({bound[name] + rest})) if bound[name] else Names(local=True)
        return None

    def may_bind(self, star: cst.ImportFrom, name: str) -> bool:
        """Whether a star import may bind a name."""
        return name in self._known_stars.get(module_of(star), {name: ""})

    @functools.cached_property
    def _scoped(self) -> frozenset[str]:
        """The names whose meaning may depend on the place; only these need the slow analysis of scopes."""
        source = self._source
        within = (b.local for b in self.bindings if source.within(b.node, cst.FunctionDef, cst.ClassDef) is not None)
        return self.assigned | frozenset(within)

    @functools.cached_property
    def assigned(self) -> frozenset[str]:
        """Every name that code other than an import may bind."""
        found = set(self._matched)
        for name, uses in self.uses.items():
            parents = (self._source.parents[use] for use in uses)
            if not all(isinstance(parent, _READERS) for parent in parents):
                found.add(name)
        return frozenset(found)

    @functools.cached_property
    def taken(self) -> frozenset[str]:
        """Every name that this source reads or binds."""
        return frozenset(self.uses) | self._matched | self._source.hidden_names | {b.local for b in self.bindings}

    def bindings_of(self, node: cst.Import | cst.ImportFrom) -> list[Binding]:
        """The names that one import statement binds, without a star."""
        if isinstance(node.names, cst.ImportStar):
            return []
        prefix = module_of(node) + "." if isinstance(node, cst.ImportFrom) else ""
        found = []
        for alias in node.names:
            name = ".".join(dotted(alias.name) or ())
            if alias.asname is not None:
                local = ".".join(dotted(alias.asname.name) or ())
            else:
                local = name.partition(".")[0]
                name = name if prefix else local
            qualified = prefix + name if not prefix.endswith("..") else prefix[:-1] + name
            found.append(Binding(local, qualified, node, alias))
        return found

    @functools.cached_property
    def imports(self) -> Sequence[cst.Import | cst.ImportFrom]:
        """Every import statement, in any order."""
        return [*self._source.all(cst.Import), *self._source.all(cst.ImportFrom)]

    @functools.cached_property
    def bindings(self) -> Sequence[Binding]:
        return [binding for node in self.imports for binding in self.bindings_of(node)]

    @functools.cached_property
    def stars(self) -> Sequence[cst.ImportFrom]:
        """``from x import *``, in the order of the text."""
        found = (node for node in self._source.all(cst.ImportFrom) if isinstance(node.names, cst.ImportStar))
        return sorted(found, key=self._source.start)

    @functools.cached_property
    def modules(self) -> frozenset[str]:
        """The top-level modules that the source imports, anywhere."""
        stars = (module_of(node) for node in self.stars)
        return frozenset(name.partition(".")[0] for name in (*(b.qualified for b in self.bindings), *stars))

    @functools.cached_property
    def uses(self) -> Mapping[str, Sequence[cst.Name]]:
        """The places where the source reads each name, or binds it without an import."""
        found: dict[str, list[cst.Name]] = defaultdict(list)
        for name in self._source.all(cst.Name):
            if not self._is_no_use(name):
                found[name.value].append(name)
        return found

    def _is_no_use(self, name: cst.Name) -> bool:
        parent = self._source.parents[name]
        if isinstance(parent, cst.Attribute):
            if parent.attr is name:
                return True
            while isinstance(parent, cst.Attribute):
                parent = self._source.parents[parent]
        if isinstance(parent, cst.Arg):
            return parent.keyword is name
        if isinstance(parent, cst.AsName):
            return isinstance(self._source.parents[parent], cst.ImportAlias)
        return isinstance(parent, (cst.ImportAlias, cst.ImportFrom))

    @functools.cached_property
    def _matched(self) -> frozenset[str]:
        """The names that patterns of ``match`` bind; the scopes omit them."""
        patterns = [node.name for node in self._source.all(cst.MatchAs)]
        patterns += [node.name for node in self._source.all(cst.MatchStar)]
        patterns += [node.rest for node in self._source.all(cst.MatchMapping)]
        return frozenset(name.value for name in patterns if name is not None)

    def _is_none(self, place: cst.CSTNode) -> bool:
        """Whether it is an assignment like ``torch = None``: None has no functions to call."""
        value = self.value(place)
        return isinstance(value, cst.Name) and value.value == "None"

    def assigned_at(self, node: cst.Name) -> Sequence[cst.CSTNode]:
        """The nodes that bind a name where it is read: the same list each time."""
        return self._scopes.assigned(node, node.value)

    def ordered_at(self, node: cst.Name) -> tuple[list[cst.CSTNode], list[float]]:
        """The same nodes in the order of the text, each with its :meth:`Source.order`."""
        places = self.assigned_at(node)

        def made() -> tuple[list[cst.CSTNode], list[float]]:
            ordered = sorted(places, key=self._source.order)
            return ordered, [*map(self._source.order, ordered)]

        return self._source.once((Resolver.ordered_at, id(places)), made)

    # ---- what a statement gives to a name --------------------------------------------------------------------------------

    def value(self, place: cst.CSTNode | None) -> cst.BaseExpression | None:
        """The right side of ``name = value``."""
        given = self.given(place) if place is not None else None
        return given.value if given is not None and not given.each and not given.part else None

    def given(self, place: cst.CSTNode) -> Given | None:
        """What an assignment or a loop gives to one of its targets; None for a parameter, an import, ``+=``."""
        parents = self._source.parents
        part: tuple[int, ...] = ()
        while isinstance(element := parents.get(place), (cst.Element, cst.StarredElement)):
            place = parents[element]
            part = (list(place.elements).index(element), *part) if isinstance(place, (cst.Tuple, cst.List)) else part
        if isinstance(element, cst.AssignTarget):
            element = parents[element]
        if isinstance(element, (cst.For, cst.CompFor)):
            return self._item(element.iter, part)
        is_value = isinstance(element, (cst.Assign, cst.AnnAssign, cst.NamedExpr)) and element.value is not None
        return Given(element.value, part=part) if is_value else None  # type: ignore[union-attr]

    def _item(self, iterable: cst.BaseExpression, part: tuple[int, ...]) -> Given | None:
        """A part of each item: that of ``zip(grads, variables)`` or ``enumerate(grads)`` is an item of ``grads``."""
        if isinstance(iterable, cst.Call) and part and not any(one.star for one in iterable.args):
            name = self.name(iterable.func).rpartition(".")[2]
            given = [one.value for one in iterable.args if one.keyword is None]
            if name == "zip" and part[0] < len(given):
                return self._item(given[part[0]], part[1:])
            if name == "enumerate" and given:
                return self._item(given[0], part[1:]) if part[0] else None  # the first part is the number
        return Given(iterable, True, part)


def module_of(node: cst.ImportFrom) -> str:
    """``torch.nn`` for ``from torch.nn import utils``, with the dots of a relative import."""
    parts = () if node.module is None else dotted(node.module) or ()
    return "." * len(node.relative) + ".".join(parts)
