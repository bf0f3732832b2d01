"""What an expression stands for, as far as a source tells: objects with an identity, functions, parameters, gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gradclip.rounds import NO_PARAMS, UNKNOWN, Backward, Clip, Condition, Event, Params

if TYPE_CHECKING:
    from gradclip.source.reading.scope import Scope

__all__ = [
    "MOST",
    "SCALED",
    "Bound",
    "Call",
    "Class",
    "Constant",
    "Context",
    "Elements",
    "Formula",
    "Function",
    "Gradients",
    "Instance",
    "Library",
    "Made",
    "Origin",
    "Product",
    "Table",
    "Thing",
    "Token",
    "Tuple",
    "Value",
    "always",
    "atoms",
    "joined",
    "last_of",
    "marks",
    "name_of",
    "named",
    "number_of",
    "origin",
    "parameters",
    "scaled_by",
]


class Origin(NamedTuple):
    """Where an object comes from: the name that it has first, and what tells it from others of this name."""

    name: str
    number: object

    def __str__(self) -> str:
        return self.name


Token = tuple[object, ...]


@dataclass(eq=False, slots=True)
class Value:
    """Anything."""

    token: Token = ()  #: its identity: equal tokens are one object
    marks: frozenset[str] = frozenset()  #: "every", "finite", "process", "norm", "varies"


@dataclass(eq=False, slots=True)
class Thing(Value):
    """An object that the source does not make."""


@dataclass(eq=False, slots=True)
class Product(Thing):
    """A product, as of a loss and its scale."""

    sides: frozenset[object] = frozenset()  #: their identities


@dataclass(eq=False, slots=True)
class Constant(Value):
    """A literal."""

    value: object = None
    name: str = ""  #: of the setting that holds it


@dataclass(eq=False, slots=True)
class Library(Value):
    """Something that is imported from outside of the project."""

    name: str = ""
    given: tuple[tuple[Value, ...], Mapping[str, Value]] = ((), {})  #: by functools.partial


@dataclass(eq=False, slots=True)
class Made(Value):
    """What a call of a library makes: an optimizer, a module, a scaler, a chain."""

    name: str = ""  #: of the function
    args: tuple[Value, ...] = ()
    given: Mapping[str, Value] = field(default_factory=dict)
    node: ast.Call | None = None
    is_open: bool = False  #: whether it may have parameters of its arguments
    where: object = None  #: the place of the call
    tests: frozenset[Condition] = frozenset()  #: those around the call
    text: str = ""  #: as it is shown


@dataclass(eq=False, slots=True)
class Tuple(Value):
    """A tuple or a list."""

    items: tuple[Value, ...] = ()


@dataclass(eq=False, slots=True)
class Table(Value):
    """A dictionary with keys that are known."""

    items: dict[object, Value] = field(default_factory=dict)
    is_of_lists: bool = False  #: a key that is not there gets an empty list


@dataclass(eq=False, slots=True)
class Elements(Value):
    """Parameters, or one of them in a loop over all."""

    params: Params = UNKNOWN
    is_one: bool = False
    loop: object = None  #: the loop, for one of them
    of: Value | None = None  #: the optimizer whose groups they are
    is_exempt: bool = False  #: all are marked as not to be clipped


@dataclass(eq=False, slots=True)
class Gradients(Value):
    """Gradients that are values, with all that has happened to them."""

    history: tuple[Event, ...] = ()
    is_one: bool = False
    is_update: bool = False  #: what an optimizer has made of them
    after: int = 0  #: the steps that were before the last clip
    unless: Clip | None = None  #: they are scaled to a limit, whether their norm is above it or not
    sources: Token = ()  #: the identity of the list of their variables
    variables: Params = NO_PARAMS  #: others than theirs, with which they are paired
    row: tuple[Value, ...] = ()  #: what a loop over a zip takes in one pass, in its order
    by: Value | None = None  #: a number that they are multiplied with, or a norm that they are divided by
    pairs: str = ""  #: "filtered" (some are left out), "shifted" (and their variables are not)
    factors: frozenset[object] = frozenset()  #: the identities of the factors of their loss

    @property
    def backward(self) -> Backward | None:
        return next((x for x in self.history if isinstance(x, Backward)), None)

    def has(self, clip: Clip) -> bool:
        return any(x is clip for x in self.history)


@dataclass(eq=False, slots=True)
class Context(Value):
    """What a ``with`` enters."""

    kind: str = ""  #: "local" (no_sync), "accumulate", "scaled"
    text: str = ""
    inner: Value | None = None
    said: frozenset[Condition] = frozenset()  #: what holds where the program makes it


@dataclass(eq=False, slots=True)
class Function(Value):
    """A function of the project, or a lambda."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda = None  # type: ignore[assignment]
    scope: Scope = None  # type: ignore[assignment]
    given: tuple[tuple[Value, ...], Mapping[str, Value]] = ((), {})  #: by functools.partial
    specs: Value | None = None  #: by shard_map: how its arguments are sharded


@dataclass(eq=False, slots=True)
class Class(Value):
    """A class of the project."""

    node: ast.ClassDef = None  # type: ignore[assignment]
    scope: Scope = None  # type: ignore[assignment]


@dataclass(eq=False, slots=True)
class Instance(Value):
    """An object of a class of the project."""

    of: Class = None  # type: ignore[assignment]
    base: Made | None = None  #: the library's optimizer that it is
    fields: dict[str, Value] = field(default_factory=dict)
    is_open: bool = False
    late: frozenset[str] = frozenset()  #: the names of modules that others have put into it


@dataclass(eq=False, slots=True)
class Bound(Value):
    """A method of an object."""

    owner: Value = None  # type: ignore[assignment]
    name: str = ""
    function: Function | None = None  #: of the project, if it has it


@dataclass(eq=False, slots=True)
class Formula(Value):
    """A test: ``op`` is "not", "and", "or" or "atom", whose key is the token."""

    op: str = "atom"
    parts: tuple[Formula, ...] = ()
    text: str = ""


def always(value: Value) -> bool | None:
    """The truth of a value, if it is certain."""
    if isinstance(value, Constant):
        return bool(value.value)
    return None


def atoms(formula: Formula) -> list[Formula]:
    """The tests that a formula consists of."""
    return [formula] if formula.op == "atom" else [x for part in formula.parts for x in atoms(part)]


MOST = 64  #: elements of a list that are told apart
SCALED = "scaled:"  #: the mark of a loss that a scaler has scaled, with the scaler's text
_GROUPS = ("params", "parameters")


def parameters(value: Value | None, depth: int = 6) -> Params:
    """The parameters that an expression lists."""
    if isinstance(value, Elements):
        return value.params
    if isinstance(value, Tuple) and depth:
        return Params.joined(parameters(x, depth - 1) for x in value.items)
    if isinstance(value, Table) and depth:
        return next((parameters(value.items[x], depth - 1) for x in _GROUPS if x in value.items), UNKNOWN)
    if isinstance(value, Made) and value.name.rpartition(".")[2] == "Parameter":
        return Params(frozenset({value.token}))
    if isinstance(value, Thing) and value.token:
        return Params(unseen=frozenset({value.token}))
    return UNKNOWN


@dataclass(frozen=True, slots=True)
class Call:
    """A call with the values of its arguments."""

    node: ast.Call
    args: tuple[Value, ...]
    given: Mapping[str, Value]
    is_starred: bool = False  #: whether some arguments are not known

    def get(self, place: int, *names: str) -> Value | None:
        """An argument, by its place or by one of its names."""
        named = next((self.given[name] for name in names if name in self.given), None)
        return named if named is not None else (self.args[place] if 0 <= place < len(self.args) else None)

    def written(self, place: int, *names: str) -> ast.expr | None:
        """The expression of an argument; None if the call does not show it."""
        named = next((x.value for x in self.node.keywords if x.arg in names), None)
        plain = self.node.args if not any(isinstance(x, ast.Starred) for x in self.node.args[: place + 1]) else []
        return named if named is not None else (plain[place] if 0 <= place < len(plain) else None)


def origin(name: str, number: object) -> Origin:
    return Origin(name, hash(number))


def marks(values: Iterable[Value]) -> frozenset[str]:
    """What several values say together."""
    return frozenset().union(*(x.marks for x in values))


def named(one: Value, name: str) -> Value:
    """A number with the name of the setting that holds it."""
    is_number = isinstance(one, Constant) and isinstance(one.value, (int, float)) and not isinstance(one.value, bool)
    return replace(one, name=name) if is_number and isinstance(one, Constant) else one


def number_of(value: Value | None) -> float | None:
    """The number that a value is known to be."""
    return value.value if isinstance(value, Constant) and isinstance(value.value, (int, float)) else None


def scaled_by(one: Value) -> str:
    """The mark of a scaled loss; "" if it is none."""
    return next((x for x in one.marks if x.startswith(SCALED)), "")


def joined(values: Iterable[Value]) -> Value:
    """A list of several parts."""
    parts = list(values)
    first = parts[0].token[:4] if parts else ()
    if all(isinstance(x, Tuple) for x in parts) and not any(isinstance(y, Elements) for x in parts for y in x.items):  # type: ignore[attr-defined]
        items = tuple(islice((y for x in parts for y in x.items), MOST))  # type: ignore[attr-defined]
        return Tuple(("tuple", *first, len(items)), items=items)
    return Elements(("+", *first, len(parts)), params=Params.joined(parameters(x) for x in parts))


def name_of(owner: Value) -> str:
    """The last name in an identity: ``opt`` of ``self.opt["actor"]``."""
    names = [str(x) for x in owner.token if (isinstance(x, str) and x.isidentifier()) or hasattr(x, "name")]
    return names[-1] if names else ""


def last_of(one: Value) -> str:
    """The last name of an object."""
    return str(one.token[-1]) if one.token else ""
