"""Edits of a syntax tree that are undone again, and small questions about trees."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = [
    "Edit",
    "Mutant",
    "after_imports",
    "blocks",
    "call_name",
    "called",
    "clone",
    "expression",
    "imports",
    "parents",
    "put",
    "root",
    "statement",
    "text_with",
]

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Edit:
    """A new value for one field of one node."""

    node: ast.AST
    field: str
    value: Any


@dataclass(frozen=True)
class Mutant:
    """A file with one change. ``right`` says that the change is no mistake."""

    kind: str
    text: str
    others: dict[str, str] = field(default_factory=dict)  #: new files beside it
    right: bool = False


def text_with(tree: ast.Module, edits: Sequence[Edit]) -> str:
    """Return the source of the tree with the edits, and leave the tree as it was."""
    before = [(edit, getattr(edit.node, edit.field)) for edit in edits]
    for edit in edits:
        setattr(edit.node, edit.field, edit.value)
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    finally:
        for edit, value in reversed(before):
            setattr(edit.node, edit.field, value)


def parents(tree: ast.AST) -> dict[ast.AST, tuple[ast.AST, str]]:
    """Return the parent of each node, and the field that it stands in."""
    found: dict[ast.AST, tuple[ast.AST, str]] = {}
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    found[child] = node, name
    return found


def put(at: dict[ast.AST, tuple[ast.AST, str]], old: ast.AST, *new: ast.AST) -> Edit:
    """Replace a node; several nodes may take the place of one that stands in a list."""
    node, name = at[old]
    value = getattr(node, name)
    if isinstance(value, list):
        i = next(i for i, child in enumerate(value) if child is old)
        return Edit(node, name, [*value[:i], *new, *value[i + 1 :]])
    (only,) = new
    return Edit(node, name, only)


def blocks(tree: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    """Yield every list of statements, with its owner and field."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield node, name, block


def imports(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the names that the module's own imports bind."""
    return {
        (alias.asname or alias.name).partition(".")[0]: statement
        for statement in tree.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    }


def after_imports(tree: ast.Module, new: ast.stmt) -> Edit:
    """Put a statement behind the last import of the module."""
    last = max((i for i, x in enumerate(tree.body) if isinstance(x, ast.Import | ast.ImportFrom)), default=-1)
    return Edit(tree, "body", [*tree.body[: last + 1], new, *tree.body[last + 1 :]])


def called(node: ast.AST) -> ast.Call | None:
    """Return the call that a statement consists of: ``f(x)`` or ``y = f(x)``."""
    value = getattr(node, "value", None) if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign) else None
    return value if isinstance(value, ast.Call) else None


def call_name(call: ast.Call) -> str:
    """Return the last name of what is called: ``step`` of ``self.optimizer.step()``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def root(node: ast.AST) -> str:
    """Return the first name of a chain: ``self`` of ``self.model.head``; "" of anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def statement(text: str) -> ast.stmt:
    """Return the only statement of a source."""
    (only,) = ast.parse(text).body
    return only


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def clone(node: Node) -> Node:
    return copy.deepcopy(node)
