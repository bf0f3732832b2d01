"""Clips by norm that nothing proves: a norm of what may be gradients, under a bound, in a factor of a product with them.

The search is broad and cheap. It follows facts (``facts``) through the statements of one function or class, twice, because a
loop, an attribute or a function further down may add some. What it finds is named, never rewritten.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import libcst as cst

from gradclip.source.byhand.facts import NOTHING, Fact, either, quotient
from gradclip.source.byhand.guesses import Guesses, Place
from gradclip.source.found import Context, Decision, Finding, manual, unchanged

__all__ = ["named"]


_MAY_BE = [  #: a function without one of these has no such clip
    re.compile(pattern)
    for pattern in (
        r"(?i)grad|update|gnorm|\bg\b|\bd[A-Z]|\bd[wb]\b",
        r"(?i)norm|sqrt|\*\* ?\(?(0?\.5|1)|\bl2\b|square",
        r"/|div|reciprocal|rsqrt",
        r"min|max|clamp|clip|where|select|cond|switch|\bif\b|while|choose",
    )
]
_UNBOUNDED = "{} scales gradients, and nothing bounds it by its own limit: this is no clip by norm."


def named(context: Context, known: Sequence[Decision]) -> list[Decision]:
    """The clips that a broad search finds in the functions where nothing else has found one."""
    source = context.source
    if context.options.lint or not all(one.search(source.text) for one in _MAY_BE):
        return []
    taken = {source.function(one.node) for one in known if one.code in ("GM402", "GM113")}
    found: dict[cst.CSTNode, Decision] = {}
    for place, bounded in _places(source.tree, source.text):
        node = source.at(place)
        function = source.function(node) if node is not None else None
        if node is None or function is None or function in taken:
            continue
        if bounded and (function not in found or found[function].code != "GM402"):
            found[function] = manual(node, _finding(source.shown(node)))
        elif not bounded:
            found.setdefault(function, unchanged(node, "GM112", _UNBOUNDED.format(source.shown(node))))
    return list(found.values())


def _finding(shown: str) -> Finding:
    reason = f"{shown} has a norm of what may be gradients, and scales them under a bound: likely a clip by norm, written out."
    advice = "If it is one, pass the gradients and a rule to gradclip.clip: for one norm over all of them"
    return Finding("GM402", reason, f"{advice} gradclip.dialects.torch.clip_grad_norm(limit).")


def _places(tree: ast.Module, text: str) -> Iterator[tuple[Place, bool]]:
    """The divisions of coefficients, in the functions, the classes and the rest of a module, the bounded ones first."""
    lines = text.splitlines(keepends=True)
    rest: list[ast.stmt] = []
    for statement in tree.body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            rest.append(statement)
            continue
        code = "".join(lines[statement.lineno - 1 : statement.end_lineno])
        if all(one.search(code) for one in _MAY_BE):
            yield from _Unit().read([statement])
    yield from _Unit().read(rest)


class _Unit(Guesses):
    """One function, one class, or the statements of a module outside of them."""

    def read(self, body: Sequence[ast.stmt]) -> Iterator[tuple[Place, bool]]:
        for _ in range(2):
            self._found.clear()
            self._block(body)
        yield from sorted(self._found.items(), key=lambda one: not one[1])

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
                self._of(node.test)
                self._block(node.body + node.orelse)
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

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._values
        self._values = dict(outer)
        given = self._given.get(node.name, {})
        for number, parameter in enumerate([*node.args.posonlyargs, *node.args.args]):
            self._values.pop(parameter.arg, None)
            if number in given:
                self._values[parameter.arg] = given[number]
        self._functions.append(node.name)
        self._block(node.body)
        self._functions.pop()
        outer.update({key: value for key, value in self._values.items() if "." in key})  # attributes of an object
        self._values = outer

    def _augmented(self, node: ast.AugAssign) -> None:
        made, before = self._of(node.value), self._of(node.target)
        if isinstance(node.op, ast.Mult):
            self._multiplied(before, made)
            if isinstance(node.target, ast.Attribute) and not before.has(Fact.GRADIENT) and made.has(Fact.SCALES):
                self._reached(made)
        elif isinstance(node.op, (ast.Div, ast.FloorDiv)):
            self._divided(before, made, node)
            made = quotient(before, made, node)
        elif isinstance(node.op, ast.Add):
            made = made.only(Fact.MEASURED | Fact.GRADIENTS)
        else:
            return
        self._bind([node.target], either((before, made)), node.value)
