"""A file as the changes of one framework's calls see it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks.mutants.edits import Edit, clone, parents

__all__ = ["Change", "Module", "renamed", "says_norm"]


@dataclass
class Module:
    """A file, its calls, and the parent of each node."""

    tree: ast.Module
    text: str = field(default="")

    @cached_property
    def at(self) -> dict[ast.AST, tuple[ast.AST, str]]:
        return parents(self.tree)

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [x for x in ast.walk(self.tree) if isinstance(x, ast.Call)]

    def named(self, pattern: str) -> list[ast.Call]:
        """Return the calls of functions whose full name matches."""
        return [x for x in self.calls if re.fullmatch(pattern, ast.unparse(x.func))]

    def holder(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.at[node][0]
        return node

    def function(self, node: ast.AST) -> ast.AST:
        while node in self.at and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node = self.at[node][0]
        return node


def says_norm(node: ast.expr | None) -> bool:
    return (
        node is not None and isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and "norm" in ast.unparse(node).lower()
    )


def renamed(call: ast.Call, old: str, new: str) -> ast.Call:
    """Return the call of another function of the same module."""
    made = clone(call)
    if isinstance(made.func, ast.Attribute):
        made.func.attr = new
    else:
        made.func = ast.Name(new)
    return made


Change = Callable[[Module], list[Edit] | None]  #: a change, or None where the file does not allow it
