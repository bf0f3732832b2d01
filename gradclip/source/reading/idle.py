"""Code that clips and that nothing runs: a generator, a function that is named and not called, a result that nothing takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from gradclip.rounds import NO_PARAMS, Backward, Clip, Event, Hook, Step, Write
from gradclip.source.reading.machine import Place
from gradclip.source.reading.program import CLIPS, File, Function, last

__all__ = ["found", "is_forgotten", "place", "unread"]

_CUSTOM = frozenset({"custom_vjp", "custom_gradient"})
_BOUNDS = CLIPS | {"clip", "clamp", "clip_", "clamp_"}
_SETTING = re.compile(
    r"(^|(?<=[_\W]))(grad(ient)?s?_?(clip|norm)|clip_?(grad|norm|value)|max_?grad(ient)?_?norm)\w*", re.IGNORECASE
)
_OPEN = re.compile(r"\bvars\(|asdict\(|\*\*|__dict__|setattr\(|getattr\(|\.get\(|json|yaml")  #: ways to read any setting
_LAZY = frozenset({"map", "filter"})
_PLAIN = frozenset({"no_grad", "inference_mode", "staticmethod", "classmethod"})  #: decorators that leave a generator one


def found(file: File) -> Iterator[tuple[Event, ...]]:
    """The clips in expressions that are statements, and do nothing there."""
    has_custom = "custom_" in file.text or "autograd" in file.text
    for node in (x.value for x in file.nodes if isinstance(x, ast.Expr)):
        if isinstance(node, ast.Constant):  # a docstring
            continue
        said: dict[str, Any] = {"where": place(file, node), "text": file.shown(node), "params": NO_PARAMS}
        if _is_lazy(node) or (isinstance(node, ast.Call) and _is_generator(file, last(node.func))):
            yield (Clip(**said, unread="Nothing takes the elements one by one, so this never runs: loop over it."),)
        elif isinstance(node, (ast.Name, ast.Attribute)) and _is_clip(file, last(node)):
            yield (Clip(**said, unread=f"{file.shown(node)} is named here, and not called."),)
        elif has_custom and isinstance(node, ast.Call) and (name := _bounding(file, node.func)):
            yield Clip(**said, returns=True, is_dropped=True), Step(text=f"the backward pass of `{name}`")


def place(file: File, node: ast.expr) -> Place:
    """Where a node of a file is."""
    return Place(file.path, node.lineno, node.col_offset, (node.end_lineno or node.lineno, node.end_col_offset or 0))


def _is_lazy(node: ast.AST | None) -> bool:
    """Whether an expression clips only while something takes its elements."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LAZY
    return node is not None and (isinstance(node, ast.GeneratorExp) or is_call) and bool(_calls(node) & _BOUNDS)


def _is_generator(file: File, name: str) -> bool:
    """Whether all functions of a name clip only while something takes the elements of their result."""
    named = [x for x, _ in file.functions if x.name == name]
    return bool(named) and all(map(_returns_lazily, named))


def _returns_lazily(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if any(last(getattr(x, "func", x)) not in _PLAIN for x in function.decorator_list):
        return False
    inside = [*ast.walk(function)]
    if any(isinstance(x, (ast.Yield, ast.YieldFrom)) for x in inside):
        return bool(_calls(function) & _BOUNDS)
    return any(isinstance(x, ast.Return) and _is_lazy(x.value) for x in inside)


def _is_clip(file: File, name: str) -> bool:
    """Whether a name is that of a function that clips."""
    return name in CLIPS or any(x.name == name and _calls(x) & CLIPS for x, _ in file.functions)


def _bounding(file: File, func: ast.expr) -> str:
    """The name of a function that leaves its argument, and clips the gradient that comes back; "" if it is none."""
    if isinstance(func, ast.Attribute) and func.attr == "apply":  # of torch.autograd.Function
        name = last(func.value)
        classes = (
            x for _, x in file.functions if x is not None and x.name == name and any(last(y) == "Function" for y in x.bases)
        )
        parts: Iterable[ast.AST] = [x for one in classes for x in one.body if getattr(x, "name", "") == "backward"]
    else:
        name = last(func)
        bodies = [x for x, _ in file.functions if x.name == name]
        if not any(last(getattr(y, "func", y)) in _CUSTOM for x in bodies for y in x.decorator_list):
            return ""
        calls = ((x, x.func) for x in file.nodes if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute))
        names = {last(y) for x, f in calls if f.attr == "defvjp" and last(f.value) == name for y in x.args}
        parts = [*bodies, *(x for x, _ in file.functions if x.name in names)]
    return name if any(_calls(x) & _BOUNDS for x in parts) else ""


def _calls(node: ast.AST) -> set[str]:
    return {last(x.func) for x in ast.walk(node) if isinstance(x, ast.Call)}


def is_forgotten(file: File, function: Function, cls: ast.ClassDef | None, main: Iterable[Event]) -> bool:
    """Whether a program that trains without a clip has a function that clips, and names it nowhere."""
    is_own = (cls is None or not cls.bases) and not function.decorator_list
    return is_own and _is_bare(main) and function.name not in file.read


def _is_bare(main: Iterable[Event]) -> bool:
    """Whether a program trains, and nothing in it clips or writes gradients."""
    kinds = {Clip if getattr(x, "clip", "") else type(x) for x in main}
    return {Backward, Step} <= kinds and kinds.isdisjoint({Clip, Write, Hook})


def unread(file: File, main: Iterable[Event]) -> Iterator[tuple[Event, ...]]:
    """The settings of a clip that nothing reads, where the program trains without one."""
    if not _SETTING.search(file.text.replace("-", "_")) or _OPEN.search(file.text) or not _is_bare(main):
        return
    if any("clip" in x.lower() or "clamp" in x for x in file.called):
        return
    loads = {
        x.id if isinstance(x, ast.Name) else x.attr
        for x in file.nodes
        if isinstance(getattr(x, "ctx", None), ast.Load) and isinstance(x, (ast.Name, ast.Attribute))
    }
    keys = (x.slice for x in file.nodes if isinstance(x, ast.Subscript))
    loads |= {x.value for x in keys if isinstance(x, ast.Constant) and isinstance(x.value, str)}
    for name, node in _declared(file):
        if _SETTING.search(name) and name not in loads:
            why = f"Nothing reads `{name}`, and the program trains without a clip."
            yield (Clip(where=place(file, node), text=file.shown(node), params=NO_PARAMS, unread=why),)


def _declared(file: File) -> Iterator[tuple[str, ast.expr]]:
    """The names of settings, and where they are declared: fields of classes, options of a command line, constants."""
    for x in file.nodes:
        if isinstance(x, ast.ClassDef):
            yield from ((last(y.target), y.target) for y in x.body if isinstance(y, ast.AnnAssign) and y.value is not None)
        elif isinstance(x, ast.Call) and last(x.func) == "add_argument":
            names = [y.value for y in x.args if isinstance(y, ast.Constant) and isinstance(y.value, str)]
            yield from ((y.lstrip("-").replace("-", "_"), x) for y in names if y.startswith("--"))
    for y in file.tree.body:
        if isinstance(y, ast.Assign) and isinstance(y.targets[0], ast.Name) and isinstance(y.value, ast.Constant):
            yield y.targets[0].id, y.targets[0]
