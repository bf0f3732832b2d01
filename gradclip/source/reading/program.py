"""The files of a program as trees, and what is said of each once: its imports, functions, classes, and what matters in it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from gradclip.natives import BY_NAME, KEYWORDS

__all__ = ["EVENTS", "File", "Follow", "last"]

#: the file of a module for its name as it is written; None if it is not of the project
Follow = Callable[[str], "File | None"]

CLIPS = frozenset(name.partition("(")[0].rpartition(".")[2] for name in BY_NAME if name not in KEYWORDS)
#: last names of calls that change gradients, or take them
EVENTS = CLIPS | {
    *("backward", "manual_backward", "step", "zero_grad", "clear_grad", "clear_gradients", "unscale_", "unscale_gradients"),
    *("clip_gradients", "all_reduce", "no_sync", "scale_loss", "minimize", "clamp_", "clip_"),
}
#: the same where gradients are values
_VALUES = EVENTS | {
    *("gradient", "apply_gradients", "apply", "update", "apply_updates", "grad", "value_and_grad", "get_unscaled_gradients"),
    *("pmean", "psum", "chain", "scale_loss", "fit", "compile"),
}
_OF_VALUES = re.compile(r"\b(jax|optax|tensorflow|keras|flax|equinox)\b")
_LONG = 60  #: characters of code in a message
_EXITS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def last(node: ast.AST) -> str:
    """The last name of an expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class File:
    """One source."""

    def __init__(self, text: str, path: str = "", follow: Follow | None = None) -> None:
        self.text, self.path, self._follow = text, path, follow
        self.tree = ast.parse(text)
        self._others: dict[str, File | None] = {}
        self._matters: dict[int, bool] = {}
        self._leaves: dict[int, bool] = {}
        self._shown: dict[int, str] = {}
        self.names: dict[str, Any] = {}  #: what its simple statements bind
        self.fields: dict[str, dict[str, Any]] = {}  #: of a new object of each class

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
        """The functions at the top, and the methods of classes there."""
        found: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]] = []
        pending = list(_statements(self.tree.body))
        for node in pending:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.append((node, None))
            elif isinstance(node, ast.ClassDef):
                found += [(x, node) for x in node.body if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef))]
                pending += [x for x in node.body if isinstance(x, ast.ClassDef)]
        return found

    @cached_property
    def called(self) -> frozenset[str]:
        """The last names of all calls."""
        return frozenset(last(x.func) for x in self.nodes if isinstance(x, ast.Call))

    @cached_property
    def modules(self) -> frozenset[str]:
        """The last names of what the source takes for modules."""
        asked = (
            x for x in self.nodes if isinstance(x, ast.Attribute) and x.attr in ("parameters", "named_parameters", "state_dict")
        )
        return frozenset(last(x.value) for x in asked)

    @cached_property
    def optimizers(self) -> frozenset[str]:
        """The last names of what the source takes for optimizers."""
        found: set[str] = set()
        for x in self.nodes:
            if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute):
                if x.func.attr in ("unscale_",) or (x.func.attr == "step" and "scaler" in last(x.func.value).lower()):
                    found.update(last(a) for a in x.args)
                elif x.func.attr in ("zero_grad", "clear_grad"):
                    found.add(last(x.func.value))
        return frozenset(found - self.modules - {""})

    @cached_property
    def zeroes(self) -> bool:
        """Whether anything in the source may remove gradients, or calls code that may."""
        return re.search(r"zero|clear_grad|\.grad\s*=|set_to_none|Trainer|optimizer_step", self.text) is not None

    @cached_property
    def unscales(self) -> bool:
        """Whether anything in the source may unscale gradients."""
        return "unscale" in self.text

    @cached_property
    def _events(self) -> frozenset[str]:
        return frozenset(_VALUES if _OF_VALUES.search(self.text) else EVENTS)

    @cached_property
    def telling(self) -> frozenset[str]:
        """The names of functions and classes that have events, directly or by calls."""
        calls: dict[str, set[str]] = {}
        _collect(self.tree, [], calls)
        telling = {name for name, names in calls.items() if not names.isdisjoint(self._events | self._imported)}
        while more := {name for name, names in calls.items() if name not in telling and not names.isdisjoint(telling)}:
            telling |= more
        return frozenset(telling | self._imported)

    def matters(self, node: ast.AST) -> bool:
        """Whether a statement, or a conditional expression, may have events."""
        if not self._matters:
            _judge(self.tree, self._events | self.telling, self._matters, self._leaves)
        return self._matters.get(id(node), False)

    def leaves(self, node: ast.stmt) -> bool:
        """Whether a statement may leave its block: it returns, continues, breaks or raises."""
        self.matters(node)
        return self._leaves.get(id(node), False)

    @cached_property
    def _imported(self) -> frozenset[str]:
        """The names from other files of the project that have events."""
        found: set[str] = set()
        for node in self.nodes if self._follow is not None else ():
            if isinstance(node, ast.ImportFrom):
                other = self.other("." * node.level + (node.module or ""))
                if other is not None:
                    found.update(x.asname or x.name for x in node.names if x.name in other.telling)
        return frozenset(found)

    def other(self, module: str) -> File | None:
        """Another file of the project."""
        if module not in self._others:
            self._others[module] = None  # for files that import each other
            self._others[module] = self._follow(module) if self._follow is not None else None
        return self._others[module]

    def shown(self, node: ast.expr) -> str:
        """The text of an expression for a message: quoted, on one line, shortened."""
        key = id(node)
        if key not in self._shown:
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            lines = self._lines[first : last + 1]
            lines[-1] = lines[-1][: node.end_col_offset]
            lines[0] = lines[0][node.col_offset :]
            text = " ".join(b" ".join(lines).decode(errors="replace").split())
            self._shown[key] = f"`{text}`" if len(text) <= _LONG else f"`{text[: _LONG - 3]}...`"
        return self._shown[key]

    @cached_property
    def _lines(self) -> list[bytes]:
        return re.split(rb"\r\n|\r|\n", self.text.encode(errors="surrogatepass"))

    def module_of(self) -> str:
        """The name under which messages have the file."""
        return os.path.basename(self.path)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those in an ``if`` or ``try`` at the top."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.If, ast.Try)):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)


def _names(node: ast.AST) -> Iterator[str]:
    """The last names of what a node itself calls, or passes to what it calls."""
    if isinstance(node, ast.Call):
        yield last(node.func)
        for argument in node.args:  # jax.jit(step), tree_map(clip, grads)
            if isinstance(argument, (ast.Name, ast.Attribute)):
                yield last(argument)
    elif isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Store):
        yield "step"


def _collect(node: ast.AST, around: list[set[str]], calls: dict[str, set[str]]) -> None:
    """The names that each function and each class calls."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        around = [*around, calls.setdefault(node.name, set())]
    for name in _names(node) if around else ():
        for names in around:
            names.add(name)
    for child in ast.iter_child_nodes(node):
        _collect(child, around, calls)


_JUDGED = (ast.stmt, ast.IfExp)


def _judge(node: ast.AST, telling: frozenset[str], matters: dict[int, bool], leaves: dict[int, bool]) -> tuple[bool, bool]:
    """Whether each statement has events, and whether it leaves its block."""
    has = any(name in telling for name in _names(node))
    exits = isinstance(node, _EXITS)
    for child in ast.iter_child_nodes(node):
        more, out = _judge(child, telling, matters, leaves)
        has |= more
        exits |= out
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        exits = False
    if isinstance(node, _JUDGED):
        matters[id(node)], leaves[id(node)] = has, exits
    return has, exits
