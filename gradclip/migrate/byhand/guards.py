"""Tests for None around gradients: a parameter without a gradient counts in no norm, and nothing scales it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst

from gradclip.source.source import Source, dotted, last_name, target_names

__all__ = ["guard", "is_unguarded", "items", "none_test", "without_guard"]


def none_test(test: cst.BaseExpression) -> str:
    """ "is not" or "is" for a test against None; "" for any other."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return ""
    one = test.comparisons[0]
    if last_name(one.comparator) != "None":
        return ""
    return "is not" if isinstance(one.operator, cst.IsNot) else "is" if isinstance(one.operator, cst.Is) else ""


def guard(test: cst.BaseExpression, names: Collection[str]) -> str:
    """The same for a test of one of these names, or of its ``grad``."""
    tested = dotted(test.left) if isinstance(test, cst.Comparison) else None
    return none_test(test) if tested is not None and tested[0] in names and tested[1:] in ((), ("grad",)) else ""


def items(loop: cst.For | cst.CompFor) -> frozenset[str]:
    """The names of a loop's items, and of their gradients: ``p``, and ``g`` after ``g = p.grad``."""
    names = target_names(loop.target)
    grads = {(name, "grad") for name in names}
    for line in loop.body.body if isinstance(loop, cst.For) else ():
        for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.Assign) and dotted(small.value) in grads:
                names = names.union(*(target_names(one.target) for one in small.targets))
    return names


def without_guard(loop: cst.For) -> Sequence[cst.CSTNode]:
    """The statements of a loop for the gradients that there are: below ``if p.grad is not None``, after ``... is None``."""
    lines = loop.body.body
    first = lines[0]
    if not isinstance(first, cst.If) or first.orelse is not None or not (test := guard(first.test, items(loop))):
        return lines
    if test == "is not":
        return first.body.body if len(lines) == 1 else lines
    return lines[1:] if _continues(first.body) else lines


def _continues(block: cst.BaseSuite) -> bool:
    line = block.body[0]
    return len(block.body) == 1 and isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Continue)


def is_unguarded(node: cst.CSTNode, loop: cst.For, source: Source) -> bool:
    """Whether a statement runs in each pass of a loop in which there is a gradient."""
    names = items(loop)
    for outer in source.ancestors(node):
        if outer is loop:
            return not any(_leaves(one, names) for one in loop.body.body)
        if isinstance(outer, cst.If) and (guard(outer.test, names) != "is not" or outer.orelse is not None):
            return False
        if isinstance(outer, (cst.For, cst.While, cst.Try, cst.Else, cst.FunctionDef)):
            return False
    return False


def _leaves(statement: cst.CSTNode, names: Collection[str]) -> bool:
    """Whether a statement of a loop may skip the rest; ``if p.grad is None: continue`` skips nothing that counts."""
    if isinstance(statement, cst.If):
        return not guard(statement.test, names)
    return isinstance(statement, (cst.For, cst.While, cst.Try, cst.With, cst.Match))
