"""Which expressions leave a clip by hand alone: a call is harmless only if it is known, so an unknown one ends a proof."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator

import libcst as cst

from gradclip.migrate.byhand.called import KNOWN
from gradclip.source.bind import keyword
from gradclip.source.byhand import vocabulary
from gradclip.source.found import Context
from gradclip.source.source import dotted, last_name, receiver, words

__all__ = ["Harmless", "aliased", "is_of"]

_ONE = vocabulary.SUMS | vocabulary.NORMS | vocabulary.GLOBAL_NORMS | vocabulary.POWERS.keys() | vocabulary.JOINS
_ALIASES = (
    vocabulary.CASTS
    | vocabulary.LEAVES
    | vocabulary.FLAT
    | words("zip enumerate reversed iter sorted dict set getattr min max")
)
_TWO = (
    vocabulary.EXTREMES | vocabulary.PRODUCTS.keys() | vocabulary.COMPARES.keys() | vocabulary.DOTS | words("pow power add sub")
)
_THREE = vocabulary.CHOICES | vocabulary.CLAMPS
_MORE = words(
    "isfinite isnan isinf any all mean abs numel size dim zeros ones zeros_like ones_like print tree_flatten ravel_pytree"
)
#: how many arguments a function reads; NumPy writes to one that comes after them
_READS = {**dict.fromkeys(_ONE | _ALIASES | _MORE, 1), **dict.fromkeys(_TWO, 2), **dict.fromkeys(_THREE, 3)}
_MAPS = vocabulary.REDUCES | words("map tree_map tree_multimap map_structure")
_BUILTINS = (
    words("print len float int str repr bool abs round isinstance type range format sum any all hasattr divmod") | _ALIASES
)
_FRESH = re.compile(r"builtins\.(float|int|str|bool|abs|len)|.*\.item")
_SAYS = re.compile(r"logging\.|warnings\.warn|math\.|time\.|jax\.debug\.print")
_SHARED = re.compile(r"distributed|collective|multihost|^torch\.ops\.")
_LOGS = words("debug info warning error critical log log_metric log_metrics log_dict add_scalar add_scalars append write")
_READERS = re.compile(
    r"(get_|named_|trainable_|master_)*(parameters|params|variables|weights|trainable_variables)"
    r"|items|values|keys|get|time|format|join|size|numel|dim"
)
_KINDS: tuple[type[cst.CSTNode], ...] = (cst.Call, cst.Attribute, cst.NamedExpr, cst.Await, cst.Yield, cst.CompFor)
_ELEMENTS = (cst.Element, cst.StarredElement, cst.DictElement, cst.StarredDictElement)
_SHAPES = words("shape dtype ndim device size")


def is_of(path: str, others: Collection[str]) -> bool:
    """Whether a name or a dotted name is, holds or is part of one of some others."""
    return any(path == one or path.startswith(f"{one}.") or one.startswith(f"{path}.") for one in others)


def aliased(node: cst.CSTNode | None) -> set[str]:
    """The names, with their attributes, whose objects the value of an expression may be, or may hold."""
    if isinstance(node, (cst.Name, cst.Attribute)) and (parts := dotted(node)) is not None:
        plain = (len(parts) > 1 and parts[-1] in _SHAPES) or parts in (("None",), ("True",), ("False",))
        return set() if plain else {".".join(parts)}
    if isinstance(node, cst.Call):
        inner = [argument.value for argument in node.args]
        owner = receiver(node)
        name = last_name(node.func)
        if (name in _READS and name not in _ALIASES) or name == "item" or (owner is None and _FRESH.match(f"builtins.{name}")):
            return set()
        return set().union(*map(aliased, [*inner, owner]))
    if isinstance(node, (cst.ListComp, cst.GeneratorExp, cst.SetComp)):
        return aliased(node.elt) and aliased(node.elt) | aliased(node.for_in.iter)
    if isinstance(node, cst.NamedExpr):
        return aliased(node.value) | aliased(node.target)
    parts_of: tuple[str, ...] = ()
    if isinstance(node, (cst.Subscript, cst.Attribute, *_ELEMENTS)):
        parts_of = ("value",)
    elif isinstance(node, (cst.IfExp, cst.BooleanOperation)):
        parts_of = ("body", "orelse") if isinstance(node, cst.IfExp) else ("left", "right")
    elements = node.elements if isinstance(node, (cst.List, cst.Tuple, cst.Set, cst.Dict)) else ()
    return set().union(*(aliased(getattr(node, part)) for part in parts_of), *map(aliased, elements))


class Harmless:
    """Judges the expressions of one source."""

    def __init__(self, context: Context, tracked: Collection[str], entered: Collection[cst.CSTNode]) -> None:
        """Take the names of the clip's objects, and the functions of the source that are part of the proof."""
        self._source, self._resolver, self._values = context.source, context.resolver, context.values
        self.tracked, self._entered = tracked, entered

    def is_loose(self, node: cst.CSTNode | None) -> bool:
        """Whether a value is none of the clip's objects, and holds none."""
        return not any(is_of(path, self.tracked) for path in aliased(node))

    def is_fresh(self, node: cst.CSTNode | None) -> bool:
        """Whether a value is surely a new object or a number."""
        if isinstance(node, cst.Call) and (self._is_entered(node) or last_name(node.func).endswith("_")):
            return self._is_entered(node) or self.is_fresh(receiver(node))
        known = not isinstance(node, cst.Call) or self.resolved(node) or last_name(node.func) in ("item", *_ONE, *_TWO, *_THREE)
        return node is not None and known and not aliased(node)

    def resolved(self, node: cst.Call) -> str:
        """The name of a function of a known library that runs on this process alone; "" for another."""
        name = self._resolver.name(node.func)
        return name if KNOWN.match(name) and not _SHARED.search(name) else ""

    def is_built_in(self, node: cst.Call) -> bool:
        return self._resolver.name(node.func).startswith("builtins.")

    def expression(self, node: cst.BaseExpression | None) -> bool:
        """Whether the value of an expression can be taken without a change of the clip's objects."""
        return node is None or not self.unproved(*self._source.outer_span(node))

    def unproved(self, start: int, stop: int, but: Collection[cst.CSTNode] = ()) -> list[cst.CSTNode]:
        """The parts of the text that are not proved harmless, but for some."""
        nodes = (one for kind in _KINDS for one in self._source.between(kind, start, stop))
        return [one for one in nodes if one not in but and not self._node(one)]

    def _node(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Call):
            return self.call(node)
        if isinstance(node, cst.Attribute):
            made = last_name(node.value) == "self" and node.attr.value in self._made
            return node.attr.value not in self._properties and not made
        if isinstance(node, cst.NamedExpr):
            return not is_of(last_name(node.target), self.tracked)
        return not isinstance(node, (cst.Await, cst.Yield)) and not (isinstance(node, cst.CompFor) and node.asynchronous)

    def call(self, node: cst.Call) -> bool:
        """Whether a call is harmless, if its arguments are."""
        name, qualified = last_name(node.func), self._resolver.name(node.func)
        if any(argument.star or keyword(argument) in ("out", "key", "file") for argument in node.args):
            return False
        if self._is_entered(node):
            return True
        if name.endswith("_"):
            return self.is_fresh(receiver(node)) and all(self.expression(one.value) for one in node.args)
        if not qualified:
            return self._method(node, name)
        if not self.resolved(node):
            logs = name in _LOGS and all(self.is_loose(argument.value) for argument in node.args)
            return logs or _SAYS.match(qualified) is not None
        if qualified.startswith("builtins."):
            return name in _BUILTINS or self._maps(node, name)
        return _SAYS.match(qualified) is not None or self._maps(node, name) or self._reads(node, name)

    def _reads(self, node: cst.Call, name: str, before: int = 0) -> bool:
        """Whether a function reads those of its arguments that are the clip's objects."""
        return name in _READS and all(self.is_loose(one.value) for one in node.args[_READS[name] - before :] if not one.keyword)

    def _maps(self, node: cst.Call, name: str) -> bool:
        """``map(lambda g: ..., grads)``: with a function that is written out, part of the proof, or known."""
        function = node.args[0].value if name in _MAPS and len(node.args) > 1 else None
        if isinstance(function, cst.Name) and self._is_part(function):
            return True
        known = self._resolver.name(function) if function is not None else ""
        reads = KNOWN.match(known) is not None and (last_name(function) in _READS or known == "operator.add")
        return isinstance(function, cst.Lambda) or reads

    def _method(self, node: cst.Call, name: str) -> bool:
        owner = receiver(node)
        is_tensor = last_name(owner) in ("grad", "data") or not isinstance(owner, (cst.Name, cst.Attribute))
        if owner is None or (name in self._methods and not is_tensor):
            return False
        if name in _LOGS:
            known = self._values.value_of(owner)
            standard = isinstance(known, cst.Call) and self._resolver.name(known.func) == "logging.getLogger"
            return self.is_loose(owner) and (standard or all(self.is_loose(one.value) for one in node.args))
        if isinstance(owner, cst.Name) and owner.value in ("self", "cls"):
            return _READERS.fullmatch(name) is not None and not node.args
        if name == "add" and not self.is_fresh(self._values.value_of(owner) or owner):
            return False  # a set's changes it
        loose = all(self.is_loose(one.value) for one in node.args)
        if _READERS.fullmatch(name):
            return loose
        return self._reads(node, name, 1) and (
            loose or not self.is_loose(owner) or not isinstance(owner, (cst.Name, cst.Attribute))
        )

    def _is_entered(self, node: cst.Call) -> bool:
        return self._is_part(node.func) if isinstance(node.func, cst.Name) else node.func in self._entered

    def _is_part(self, function: cst.Name) -> bool:
        """Whether a name stands for a function that is part of the proof."""
        places = self._resolver.assigned_at(function)
        return any(place in self._entered or self._resolver.value(place) in self._entered for place in places)

    @functools.cached_property
    def _methods(self) -> frozenset[str]:
        """The methods of this source's classes: no known functions, whatever their names."""
        return self._source.once((Harmless, False), lambda: frozenset(self._methods_of(decorated=False)))

    @functools.cached_property
    def _properties(self) -> frozenset[str]:
        return self._source.once((Harmless, True), lambda: frozenset(self._methods_of(decorated=True)))

    @functools.cached_property
    def _made(self) -> frozenset[str]:
        """The attributes that nothing stores, in a source with a class that makes its attributes."""
        if self._methods.isdisjoint(("__getattr__", "__getattribute__")):
            return frozenset()
        stored = {last_name(one.target) for one in self._source.all(cst.AssignTarget)}
        return frozenset(one.attr.value for one in self._source.all(cst.Attribute)) - stored

    def _methods_of(self, *, decorated: bool) -> Iterator[str]:
        for one in self._source.all(cst.FunctionDef):
            in_class = isinstance(self._source.within(one, cst.FunctionDef, cst.ClassDef), cst.ClassDef)
            if in_class and (one.decorators or not decorated):
                yield one.name.value
