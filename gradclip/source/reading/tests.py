"""Tests: which atoms they have, and the values that a way gives them. ``x is None`` and ``x is not None`` are one atom."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gradclip.rounds import Condition
from gradclip.source.reading import measures
from gradclip.source.reading.degrees import MEASURED
from gradclip.source.reading.values import Constant, Formula, Gradients, Tuple, Value, atoms, marks

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["conditions", "decided", "formula", "kind_of", "known", "marked", "under"]

_NEGATED = (ast.IsNot, ast.NotEq, ast.NotIn)
_SAME = {ast.IsNot: "Is", ast.NotEq: "Eq", ast.NotIn: "In", ast.LtE: "Gt", ast.Lt: "GtE"}
_KINDS = ("every", "synced", "finite", "process")  #: the marks of a value that tell what a test is about
PROCESS = re.compile(r"(^|_)rank$|^(is_)?(main|master)(_process)?$|is_(local_)?main_process|is_global_zero", re.IGNORECASE)


def marked(name: str) -> frozenset[str]:
    """What the name of an object tells of which nothing else is known."""
    return frozenset({"process"}) if PROCESS.search(name) else frozenset()


def formula(machine: Machine, node: ast.expr) -> Formula:
    """A test as atoms."""
    if isinstance(node, ast.BoolOp):
        parts = tuple(formula(machine, x) for x in node.values)
        return Formula(op="and" if isinstance(node.op, ast.And) else "or", parts=parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Formula(op="not", parts=(formula(machine, node.operand),))
    if isinstance(node, ast.Compare):
        if len(node.ops) == 1:
            return _compared(machine, node)
        sides = [machine.value(x) for x in (node.left, *node.comparators)]
        return Formula(machine.token("Compare", *(x.token for x in sides)), marks(sides), text=machine.shown(node))
    return of_value(machine.value(node), machine.shown(node))


def of_value(value: Value, text: str) -> Formula:
    if isinstance(value, Formula):
        return value
    if isinstance(value, Constant):
        return Formula(("always", bool(value.value)), text=text)
    return Formula(("truth", *value.token), value.marks, text=text)


def _compared(machine: Machine, node: ast.Compare) -> Formula:
    left, right = machine.value(node.left), machine.value(node.comparators[0])
    op, text = type(node.ops[0]), machine.shown(node)
    if isinstance(left, Constant) and isinstance(right, Constant) and op in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot):
        same = left.value == right.value
        return Formula(("always", same is (op in (ast.Eq, ast.Is))), text=text)
    if op in (ast.In, ast.NotIn) and isinstance(left, Constant) and isinstance(right, Tuple) and right.items:
        known = [x.value for x in right.items if isinstance(x, Constant)]
        if len(known) == len(right.items):
            return Formula(("always", (left.value in known) is (op is ast.In)), text=text)
    said = left.marks | right.marks
    if op in (ast.Gt, ast.GtE, ast.Lt, ast.LtE):
        measures.compared(machine, left, right)
    if isinstance(right, Constant) and (
        right.value is None or (right.value == 0 and op is ast.Gt and right.value is not False)
    ):
        is_none = right.value is None
        there = Formula(("truth", *left.token), said, text=text)
        if is_none and isinstance(left, Gradients):  # those that are None are of no interest
            there = Formula(("always", True), text=text)
        if is_none and isinstance(left, Constant):
            there = Formula(("always", left.value is not None), text=text)
        return Formula(op="not", parts=(there,)) if is_none and op in (ast.Is, ast.Eq) else there
    name = _SAME.get(op, op.__name__)
    atom = Formula(machine.token(name, left.token, right.token), said, text=text)
    if any(x.startswith(MEASURED) for x in said):
        machine.of_norms.add(atom.token)
    if op in (ast.Gt, ast.GtE, ast.Lt, ast.LtE):
        measures.bounded(machine, atom.token, left, right)
    return Formula(op="not", parts=(atom,)) if op in _SAME else atom


def known(test: Formula) -> bool | None:
    """The truth of a test that no way decides."""
    if test.op == "atom":
        return bool(test.token[1]) if test.token[:1] == ("always",) else None
    parts = [known(x) for x in test.parts]
    if test.op == "not":
        return None if parts[0] is None else not parts[0]
    decisive = test.op == "or"
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def decided(machine: Machine, test: Formula, default: bool) -> bool:
    """The truth of a test on this way; a new atom gets its default, unless the way differs there."""
    if test.op == "not":
        return not decided(machine, test.parts[0], not default)
    if test.op == "atom":
        if test.token[:1] == ("always",):
            return bool(test.token[1])
        if kind_of(test.marks):
            machine.telling.add(test.token)
        return machine.decided.setdefault(test.token, machine.flips.get(test.token, default))
    values = [decided(machine, x, default) for x in test.parts]
    return all(values) if test.op == "and" else any(values)


def under(machine: Machine, test: Formula, body: list[ast.stmt]) -> str:
    """Run what is under a test: ``if norm > limit:``."""
    limit = machine.bounds.get(test.token)
    is_below = test.op == "not" and test.parts[0].token in machine.bounds
    machine.above += [] if limit is None else [limit]
    machine.below += is_below
    left = machine.block(body)
    machine.below -= is_below
    del machine.above[len(machine.above) - (limit is not None) :]
    return left


def conditions(machine: Machine, test: Formula, truth: bool) -> list[Condition]:
    """What holds where a test has a value: the conditions that its atoms are."""
    found = []
    for atom in atoms(test):
        if atom.token in machine.decided:
            holds = machine.decided[atom.token]
            found.append(Condition(atom.token, holds, kind_of(atom.marks), _said(atom.text, holds), "varies" in atom.marks))
    return found


def _said(text: str, holds: bool) -> str:
    return text if holds else f"`not ({text[1:-1]})`"


def kind_of(said: frozenset[str]) -> str:
    """What a test is about."""
    found = next((x for x in _KINDS if x in said), "")
    return found if found != "every" or "varies" in said else ""
