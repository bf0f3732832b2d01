"""Clips by norm that nothing proves: a norm of what may be gradients, under a bound, in a factor of a product with them.

The search is broad and cheap. It follows facts (``facts``) through the statements of one function or class, twice, because a
loop, an attribute or a function further down may add some. What it finds is named, never rewritten.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from gradclip.source.byhand import masks
from gradclip.source.byhand.facts import NOTHING, Fact, Value, either, power, quotient
from gradclip.source.byhand.guesses import Guesses
from gradclip.source.byhand.noted import Place
from gradclip.source.found import Context, Decision, Finding, manual, unchanged
from gradclip.source.hidden import may_mask
from gradclip.source.parsing import parsed

__all__ = ["Kind", "named", "places"]


#: in lower case: what measures; a function without it, or without one of the next two, has no such clip
_MEASURES = re.compile(r"norm|sqrt|\*\*=? ?\(?(?:0?\.5|1)|l2(?<=\bl2)\b|square|\.max\(|amax")
_DIVIDES = re.compile(r"/|div|reciprocal|rsqrt|normalize")
_BOUNDS = re.compile(r"min|max|clamp|clip|where|select|cond|switch|i(?<=\bi)f\b|while|choose")
#: in lower case, and as written: what a name of a gradient has, or one of a norm of gradients, or a derivative
_GRADIENT = re.compile(
    r"g(?:rad(?!\b)|rad(?<!\bno_grad)(?<!\brequires_grad)|_?norm|lobal_?(?:l2_?)?norm)|update|d(?:params|theta)"
    r"|total_?(?:l2_?)?norm|backward|bwd|vjp"
)
_LETTER = re.compile(r"g(?<![a-zA-Z]g)(?:s|vs)?(?![a-z])|G(?<![A-Z]G)(?![a-z])|d(?<=\bd)(?:[A-Z]|[wb]\d?\b)")
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAME = re.compile(r"\w+")
_DERIVATIVE = re.compile(r"(\w*_)?(backward|bwd|grad|vjp)")  #: a function that a framework calls with gradients
_UNBOUNDED = "{} scales gradients, and nothing bounds it by its own limit: this is not a clip by norm."


def named(context: Context, known: Sequence[Decision]) -> list[Decision]:
    """The clips that a broad search finds in the functions where nothing else has found one."""
    source = context.source
    if context.options.lint:
        return []
    taken = {source.function(one.node) for one in known if one.code in ("GM402", "GM113")}
    by_value = {source.function(one.node) for one in known if one.code == "GM401"}
    masked: dict[cst.CSTNode, Decision] = {}
    found: dict[cst.CSTNode, Decision] = {}
    for place, kind in places(source.text):
        end = (place.end_lineno or place.lineno, place.end_col_offset or 0)
        node = source.at((place.lineno, place.col_offset), end)
        function = source.function(node) if node is not None else None
        if node is None or function is None:
            continue
        if kind is Kind.BY_VALUE and function not in by_value:
            masked.setdefault(function, manual(node, _by_value(source.shown(node))))
        if kind is Kind.BY_VALUE or function in taken:
            continue
        if kind is Kind.BY_NORM and (function not in found or found[function].code != "GM402"):
            found[function] = manual(node, _finding(source.shown(node)))
        elif kind is Kind.UNBOUNDED:
            found.setdefault(function, unchanged(node, "GM112", _UNBOUNDED.format(source.shown(node))))
    return [*(one for function, one in found.items() if function not in masked or one.code == "GM402"), *masked.values()]


class Kind(enum.Enum):
    """What a place of a likely clip is."""

    BY_NORM = enum.auto()
    UNBOUNDED = enum.auto()  #: a coefficient that nothing bounds
    BY_VALUE = enum.auto()


@functools.lru_cache(maxsize=1)  # asked before a source is read, and after
def places(source: str) -> Sequence[tuple[Place, Kind]]:
    """The divisions of coefficients, and the masks: a source without one need not be read by LibCST.

    Raises:
        SourceError: if the source is not Python 3.
    """
    return tuple(_places(parsed(source), source)) if _names_gradients(source) and _may_be(source) else ()


def _names_gradients(text: str) -> bool:
    """Whether a text has a name that is a gradient's, or that of a norm of gradients."""
    return bool(_GRADIENT.search(text.lower()) or _LETTER.search(text))


def _may_be(text: str) -> bool:
    """Whether a text may have a clip: by a coefficient, or by comparing the elements of gradients with a limit."""
    scales = _DIVIDES.search(text) and _BOUNDS.search(text) and _MEASURES.search(text.lower())
    return bool(scales) or may_mask(text)


def _finding(shown: str) -> Finding:
    reason = f"{shown} has a norm of what may be gradients, and scales them under a bound: likely a clip by norm, written out."
    advice = "If it is one, pass the gradients and a rule to gradclip.clip: for one norm over all of them"
    return Finding("GM402", reason, f"{advice} gradclip.dialects.torch.clip_grad_norm(limit).")


def _by_value(shown: str) -> Finding:
    reason = f"{shown} takes out the elements of what may be gradients that are over a limit: likely a clip by value."
    advice = "If each gets the limit instead, pass the gradients and a rule to gradclip.clip: for one limit of all of them"
    return Finding("GM401", reason, f"{advice} gradclip.dialects.torch.clip_grad_value(limit).")


def _places(module: ast.Module, text: str) -> Iterator[tuple[Place, Kind]]:
    """The divisions in the functions, the classes and the rest of a module, the bounded ones first."""
    lines = text.splitlines(keepends=True)
    codes = {one: "".join(lines[one.lineno - 1 : one.end_lineno]) for one in module.body}
    blocks = [one for one in module.body if isinstance(one, _BLOCKS)]
    rest = [one for one in module.body if not isinstance(one, _BLOCKS)]
    likely = [one for one in blocks if _may_be(codes[one])]
    names = {one: frozenset(_NAME.findall(codes[one])) for one in blocks} if likely else {}
    called = frozenset().union(*(names[one] for one in likely))
    callers, stored = {one.name for one in likely}, _stored(likely)
    for one in names.keys() - {*likely}:  # what they call, what calls them, and what reads an attribute that they store
        is_called = one.name in called and not isinstance(one, ast.ClassDef)
        calls = not callers.isdisjoint(names[one]) and _MEASURES.search(codes[one].lower())
        if is_called or calls or not stored.isdisjoint(names[one]):
            likely.append(one)
    likely.sort(key=lambda one: one.lineno)
    functions = [one for one in likely if not isinstance(one, ast.ClassDef)]
    units: list[list[ast.stmt]] = [[*functions, *(rest if _may_be("".join(codes[one] for one in rest)) else ())]]
    for one in likely:
        if isinstance(one, ast.ClassDef):
            units.append([*(f for f in functions if f.name in names[one]), one])
    for unit in units:
        if any(_names_gradients(codes[one]) for one in unit):
            yield from _Unit().read(unit)


def _stored(blocks: Iterable[ast.stmt]) -> set[str]:
    """The attributes of other objects than ``self`` that functions store."""
    functions = (one for one in blocks if not isinstance(one, ast.ClassDef))
    nodes = (node for one in functions for node in ast.walk(one) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if isinstance(node.ctx, ast.Store)} - {"grad", "data"}


class _Unit(Guesses):
    """One class with the functions that it calls, or the statements of a module outside of classes."""

    def read(self, body: Sequence[ast.stmt]) -> Iterator[tuple[Place, Kind]]:
        self._block(body)
        known = [
            *self._values.values(),
            *self._returned.values(),
            *(v for given in self._given.values() for v in given.values()),
        ]
        if self._found or any(one.has(Fact.MEASURED | Fact.SCALES) for one in known):
            self._found.clear()
            self._block(body)
        for place, bounded in sorted(self._found.items(), key=lambda one: not one[1]):
            yield place, Kind.BY_NORM if bounded else Kind.UNBOUNDED
        for place in sorted(self._masked, key=lambda one: (one.lineno, one.col_offset)):
            yield place, Kind.BY_VALUE

    # ---- statements ------------------------------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                self._bind(node.targets, self._of(node.value), node.value)
            case ast.AnnAssign() if node.value is not None:
                self._bind([node.target], self._of(node.value), node.value)
            case ast.AugAssign():
                self._augmented(node)
            case ast.For() | ast.AsyncFor():
                self._bind([node.target], self._of(node.iter), node.iter)
                self._block(node.body + node.orelse)
            case ast.If() | ast.While():
                if self._of(node.test).has(Fact.OVER) and isinstance(node.test, ast.Compare):
                    self._replaced(node.test, node.body)
                self._branches(node.body + node.orelse)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.Return() if node.value is not None:
                made = self._of(node.value)
                self._returned[self._here] = either((self._returned.get(self._here, NOTHING), made))
                if made.has(Fact.SCALES) and not made.has(Fact.NORM):
                    self._reached(made)
            case ast.ClassDef() | ast.With() | ast.AsyncWith():
                self._block(node.body)
            case ast.Try():
                self._block([*node.body, *(one for h in node.handlers for one in h.body), *node.orelse, *node.finalbody])
            case ast.Expr():
                self._of(node.value)

    def _replaced(self, test: ast.Compare, body: Sequence[ast.stmt]) -> None:
        """Note an element that gets another value where it is over a limit: ``if g[i] > limit: g[i] = limit``."""
        compared = {ast.unparse(one) for one in (test.left, *test.comparators) if isinstance(one, ast.Subscript)}
        for one in body:
            for target in one.targets if isinstance(one, ast.Assign) else ():
                self._noted(target, isinstance(target, ast.Subscript) and ast.unparse(target) in compared)

    def _branches(self, body: Sequence[ast.stmt]) -> None:
        """What may not run: a name also keeps the value that it had before."""
        before = self._values.copy()
        self._block(body)
        for key, value in before.items():
            if (made := self._values.get(key, NOTHING)) is not value:
                self._values[key] = either((made, value))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._values
        self._values = dict(outer)
        given = self._given.get(node.name, {})
        for number, parameter in enumerate([*node.args.posonlyargs, *node.args.args]):
            self._values.pop(parameter.arg, None)
            if number in given:
                self._values[parameter.arg] = given[number]
            elif _DERIVATIVE.fullmatch(node.name) and parameter.arg not in ("self", "ctx", "res"):
                self._values[parameter.arg] = Value(Fact.GRADIENT)
        self._functions.append(node.name)
        self._block(node.body)
        self._functions.pop()
        shared = {name for one in node.body if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}
        outer.update({key: value for key, value in self._values.items() if "." in key or key in shared})  # attributes, too
        self._values = outer

    def _augmented(self, node: ast.AugAssign) -> None:
        made, before = self._of(node.value), self._of(node.target)
        if isinstance(node.op, ast.Mult):
            self._noted(node, masks.keeps_small([before, made]))
            self._multiplied(before, made)
            if isinstance(node.target, ast.Attribute) and not before.has(Fact.GRADIENT) and made.has(Fact.SCALES):
                self._reached(made)
        elif isinstance(node.op, (ast.Div, ast.FloorDiv)):
            self._divided(before, made, node)
            made = quotient(before, made, node)
        elif isinstance(node.op, ast.Pow):
            self._bind([node.target], power(before, node.value, ast.Name("")), node.value)
            return
        elif isinstance(node.op, ast.Add):
            made = made.only(Fact.MEASURED | Fact.GRADIENTS)
        else:
            return
        self._bind([node.target], either((before, made)), node.value)
