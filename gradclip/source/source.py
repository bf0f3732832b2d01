"""One source: its LibCST tree, the position of each node in the text, and the enclosing nodes.

Edits change the text at the positions from LibCST, so nothing else can change.
"""

from __future__ import annotations

import ast
import bisect
import dataclasses
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import libcst as cst

from gradclip.source import parsing
from gradclip.source.children import children
from gradclip.source.hidden import hide
from gradclip.source.model import SourceError
from gradclip.source.places import Places

__all__ = ["Edit", "Import", "Source", "dotted", "last_name", "once", "receiver", "root", "target_names", "words"]

Node = TypeVar("Node", bound=cst.CSTNode)
T = TypeVar("T")
P = ParamSpec("P")
_NEWLINE = re.compile(rb"\r\n|\r|\n")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replacement for a span of bytes; an insertion if the span is empty."""

    start: int
    end: int
    rank: int = dataclasses.field(init=False, default=1)  #: of several insertions at one place, the lowest rank comes first
    text: str = ""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Import(Edit):
    """A line that imports something; it precedes other insertions at the same place."""

    rank: int = dataclasses.field(init=False, default=0)


class Source:
    """A parsed source, and the queries of the checks."""

    def __init__(self, text: str, shown: Sequence[int] = ()) -> None:
        """Parse the source.

        Args:
            text: Python 3.
            shown: lines whose functions are read in any case.

        Raises:
            SourceError: if the source is not Python 3, or its nesting is too deep to parse.
        """
        self.text = text
        self.tree = tree = parsing.tree(text)  #: Python's own, which is faster to walk
        self.data = text.encode("utf-8")
        self._lines = [0, *(match.end() for match in _NEWLINE.finditer(self.data))]
        if re.search(r"\r(?!\n)", text):
            raise SourceError("Its lines end in a carriage return alone.")
        read, self._hidden = hide(tree, self.data, self._lines, shown)
        self.module = parsing.module(read.decode())
        self.newline = self.module.default_newline
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._of_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = defaultdict(list)
        self._numbers: dict[int, int] = {}  #: the places in the order of the text, by ``id``: a node's own hash is slow
        self._facts: dict[Hashable, Any] = {}
        self._index()
        self._places = Places(self.module, tree, self._lines, self.parents)

    def _index(self) -> None:
        stack: list[cst.CSTNode] = [self.module]
        while stack:
            node = stack.pop()
            self._of_type[node.__class__].append(node)
            self._numbers[id(node)] = len(self._numbers)
            inner = [*children(node)]
            for child in inner:
                self.parents[child] = node
            stack += reversed(inner)

    def all(self, kind: type[Node]) -> Sequence[Node]:
        """Every node of a type, in the order of the text."""
        found: Sequence[Any] = self._of_type.get(kind, ())
        return found

    def order(self, node: cst.CSTNode) -> float:
        """What compares as the starts of nodes do, and costs less; a node comes before the part of it that has its start."""
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return self._numbers[id(node.name)] - 0.5  # it starts behind its decorators
        return self._numbers[id(node.name if isinstance(node, cst.Param) else node)]

    def between(self, kind: type[Node], start: int, stop: int) -> Sequence[Node]:
        """The nodes of a type that start in a part of the text, in order."""
        ordered = self.all(kind)
        first, last = (bisect.bisect_left(ordered, at, key=self.start) for at in (start, stop))
        return ordered[first:last]

    def of(self, around: cst.CSTNode, *types: type[Node]) -> Iterator[Node]:
        """The nodes of these types in a node, and the node itself, in any order: cheaper, because it computes no position."""
        stack = [around]
        while stack:
            node = stack.pop()
            if isinstance(node, types):
                yield node
            stack += children(node)

    def at(self, first: tuple[int, int], last: tuple[int, int]) -> cst.CSTNode | None:
        """The call, operation, assignment, attribute or item between two places of Python's tree, if it is not hidden."""
        span = self._lines[first[0] - 1] + first[1], self._lines[last[0] - 1] + last[1]
        unit = self._places.around(*span)
        kinds = (cst.BinaryOperation, cst.Call, cst.AugAssign, cst.Attribute, cst.Subscript)
        return next((one for one in self.of(unit, *kinds) if self.span(one) == span), None) if unit is not None else None

    @functools.cached_property
    def calls(self) -> Mapping[str, Sequence[cst.Call]]:
        """The calls by the last name of their function, in any order: a search among all calls, for each clip, is slow."""
        found: dict[str, list[cst.Call]] = defaultdict(list)
        for call in self.all(cst.Call):
            found[last_name(call.func)].append(call)
        return found

    @functools.cached_property
    def named(self) -> Mapping[str, Sequence[cst.Name | cst.Attribute]]:
        """The attributes and the names by their last name, in any order."""
        found: dict[str, list[cst.Name | cst.Attribute]] = defaultdict(list)
        nodes: list[cst.Name | cst.Attribute] = [*self.all(cst.Attribute), *self.all(cst.Name)]
        for node in nodes:
            found[last_name(node)].append(node)
        return found

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """A fact about the whole source, computed for the first clip that asks."""
        if key not in self._facts:
            self._facts[key] = compute()
        fact: T = self._facts[key]
        return fact

    # ---- places ----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def hidden_names(self) -> frozenset[str]:
        """The names in the hidden bodies."""
        nodes = (node for function in self._hidden for statement in function.body for node in ast.walk(statement))
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name))

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The start and the end of a node, in bytes, without the parentheses around an expression."""
        return self._places.of(node)

    def outer_span(self, node: cst.BaseExpression) -> tuple[int, int]:
        """The start and the end of a node, in bytes, with the parentheses around an expression."""
        start, end = self.span(node)
        return (self.start(node.lpar[0]) if node.lpar else start), (self.end(node.rpar[-1]) if node.rpar else end)

    def start(self, node: cst.CSTNode) -> int:
        return self._places.of(node)[0]

    def end(self, node: cst.CSTNode) -> int:
        return self._places.of(node)[1]

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, with its parentheses."""
        start, end = self.outer_span(node) if isinstance(node, cst.BaseExpression) else self.span(node)
        return self.data[start:end].decode()

    def one_line(self, node: cst.CSTNode) -> str:
        """The text of a node in one line, without the comments within it."""
        lines = self.code(node).splitlines()
        if len(lines) > 1 and isinstance(node, cst.BaseExpression):
            lines = [re.sub(r"\s#.*", "", line) for line in lines]
        return " ".join(" ".join(lines).split())

    def shown(self, node: cst.CSTNode) -> str:
        """The text of a node for a message: quoted, on one line, shortened."""
        text = self.one_line(node)
        return f"`{text}`" if len(text) <= 60 else f"`{text[:57]}...`"

    def line_start(self, offset: int) -> int:
        return self._lines[bisect.bisect_right(self._lines, offset) - 1]

    def next_line(self, offset: int) -> int:
        """The start of the line after the one at ``offset``, or the end of the text."""
        number = bisect.bisect_right(self._lines, offset)
        return self._lines[number] if number < len(self._lines) else len(self.data)

    def comments_above(self, line: int) -> list[str]:
        """The comment lines directly above the line at an offset."""
        number = bisect.bisect_left(self._lines, line)
        found = []
        while number and (text := self.data[self._lines[number - 1] : self._lines[number]].decode().strip()).startswith("#"):
            found.append(text)
            number -= 1
        return found

    def position(self, node: cst.CSTNode) -> tuple[int, int]:
        """The line and the column, both from 1; the column counts characters."""
        start = self.start(node)
        line = bisect.bisect_right(self._lines, start)
        return line, len(self.data[self._lines[line - 1] : start].decode()) + 1

    # ---- enclosing nodes --------------------------------------------------------------------------------------------------

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The ancestors, from the parent to the module."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def within(self, node: cst.CSTNode, *types: type[Node]) -> Node | None:
        """The nearest ancestor of these types."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, types)), None)

    def function(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function that contains a node, or the module."""
        return self.within(node, cst.FunctionDef, cst.Lambda) or self.module

    def inside(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The ancestors inside the function that contains a node."""
        return itertools.takewhile(lambda outer: not isinstance(outer, cst.FunctionDef), self.ancestors(node))

    def tests(
        self, node: cst.CSTNode, kinds: tuple[type[cst.CSTNode], ...] = (cst.If, cst.IfExp)
    ) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """The tests of the ``if``s around a node in its function, from the inside, each with whether it holds at the node."""
        inner = node
        for outer in self.inside(node):
            if isinstance(outer, kinds) and isinstance(outer, (cst.If, cst.IfExp, cst.While)) and inner is not outer.test:
                yield outer.test, inner is outer.body
            inner = outer

    def loop(self, node: cst.CSTNode, *names: str) -> cst.For | None:
        """The innermost loop around a node in its function that has one of some names as a variable."""
        loops = (outer for outer in self.inside(node) if isinstance(outer, cst.For))
        return next((loop for loop in loops if not target_names(loop.target).isdisjoint(names)), None)

    def target(self, node: cst.CSTNode) -> cst.BaseExpression | None:
        """What gets the value of an expression: ``x`` of ``x = node``; None for another statement, and for several targets."""
        holder = self.parents[node]
        if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
            return holder.targets[0].target
        return holder.target if isinstance(holder, (cst.AnnAssign, cst.NamedExpr)) else None

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement that contains a node and has its own lines: one in a block or in the module."""
        while not isinstance(self.parents[node], (cst.IndentedBlock, cst.Module)):
            node = self.parents[node]
        return node

    def sides(self, node: cst.CSTNode) -> Mapping[cst.CSTNode, cst.CSTNode]:
        """The side on which a node is in each of its branches; the test of an ``if`` and the body of a ``try`` exclude none."""
        return self.once((node, "sides"), lambda: dict(self._sides(node)))

    def _sides(self, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
        for branch in self.ancestors(node):
            if isinstance(branch, (cst.If, cst.IfExp)):
                excludes = node is not branch.test
            elif isinstance(branch, (cst.Match, cst.Try, cst.TryStar)):
                excludes = isinstance(node, (cst.MatchCase, cst.ExceptHandler, cst.ExceptStarHandler))
            else:
                excludes = False
            if excludes:
                yield branch, node
            node = branch

    def excluding(self, one: cst.CSTNode, other: cst.CSTNode) -> cst.CSTNode | None:
        """The ``if``, ``match`` or ``try`` with the two nodes on different sides, so that at most one of them runs."""
        theirs = self.sides(other)
        return next((branch for branch, side in self.sides(one).items() if theirs.get(branch, side) is not side), None)

    # ---- the edited text -------------------------------------------------------------------------------------------------

    def edited(self, edits: Sequence[Edit]) -> str:
        """The text with the edits applied; they must not overlap."""
        return self.cut(0, len(self.data), edits)

    def cut(self, position: int, stop: int, edits: Sequence[Edit]) -> str:
        """A part of the text, with the edits inside it applied."""
        parts = []
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end, edit.rank, edit.text)):
            if edit.start < position:
                raise AssertionError(f"Two edits overlap at byte {edit.start}.")
            parts += [self.data[position : edit.start], edit.text.encode("utf-8")]
            position = edit.end
        return b"".join([*parts, self.data[position:stop]]).decode()


class _HasSource(Protocol):
    @property
    def source(self) -> Source: ...


Of = TypeVar("Of", bound="Source | _HasSource")


def once(function: Callable[Concatenate[Of, P], T]) -> Callable[Concatenate[Of, P], T]:
    """Decorate a function of a source, or of an object with one: it computes each fact once. Other arguments have hashes."""

    @functools.wraps(function)
    def asked(of: Of, /, *args: P.args, **named: P.kwargs) -> T:
        source = of if isinstance(of, Source) else of.source
        return source.once((function, *args, *named.items()), lambda: function(of, *args, **named))

    return asked


def dotted(node: cst.CSTNode) -> tuple[str, ...] | None:
    """The parts of ``a.b.c``; None for anything but a name with attributes."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    return (node.value, *reversed(parts)) if isinstance(node, cst.Name) else None


def root(node: cst.CSTNode) -> cst.CSTNode:
    """The leftmost expression of a chain of attributes, calls and subscripts."""
    while isinstance(node, (cst.Attribute, cst.Call, cst.Subscript)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node


def last_name(node: cst.CSTNode | None) -> str:
    """``c`` of ``a.b().c``; "" if there is none."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def receiver(node: cst.CSTNode | None, *methods: str) -> cst.BaseExpression | None:
    """``a.b`` of the call ``a.b.c()``, of any method or of one of some; None for anything else."""
    func = node.func if isinstance(node, cst.Call) else None
    return func.value if isinstance(func, cst.Attribute) and (not methods or func.attr.value in methods) else None


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


def target_names(node: cst.BaseExpression) -> frozenset[str]:
    """The names that a target binds: ``i``, ``g`` and ``v`` of ``i, (g, v)``."""
    if isinstance(node, cst.Name):
        return frozenset({node.value})
    elements = node.elements if isinstance(node, (cst.Tuple, cst.List)) else ()
    return frozenset(name for element in elements for name in target_names(element.value))
