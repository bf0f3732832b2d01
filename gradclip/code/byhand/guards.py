"""Tests for None around gradients: a parameter without a gradient counts in no norm, and nothing scales it."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from gradclip.code.source import Source, last_name

__all__ = ["is_unguarded", "none_test", "without_guard"]


def none_test(test: cst.BaseExpression) -> str:
    """ "is not" or "is" for a test against None; "" for any other."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return ""
    one = test.comparisons[0]
    if last_name(one.comparator) != "None":
        return ""
    return "is not" if isinstance(one.operator, cst.IsNot) else "is" if isinstance(one.operator, cst.Is) else ""


def without_guard(block: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    """The statements of a loop for the gradients that there are: below ``if p.grad is not None``, after ``... is None``."""
    first = block.body[0]
    if not isinstance(first, cst.If) or first.orelse is not None or not (test := none_test(first.test)):
        return block.body
    if test == "is not":
        return first.body.body if len(block.body) == 1 else block.body
    return block.body[1:] if _continues(first.body) else block.body


def _continues(block: cst.BaseSuite) -> bool:
    line = block.body[0]
    return len(block.body) == 1 and isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Continue)


def is_unguarded(node: cst.CSTNode, loop: cst.For, source: Source) -> bool:
    """Whether a statement runs in each pass of a loop in which there is a gradient."""
    for outer in source.ancestors(node):
        if outer is loop:
            return not any(_leaves(one) for one in loop.body.body)
        if isinstance(outer, cst.If) and (none_test(outer.test) != "is not" or outer.orelse is not None):
            return False
        if isinstance(outer, (cst.For, cst.While, cst.Try, cst.Else, cst.FunctionDef)):
            return False
    return False


def _leaves(statement: cst.CSTNode) -> bool:
    """Whether a statement of a loop may skip the rest; ``if p.grad is None: continue`` skips nothing that counts."""
    if isinstance(statement, cst.If):
        return not none_test(statement.test)
    return isinstance(statement, (cst.For, cst.While, cst.Try, cst.With, cst.Match))
