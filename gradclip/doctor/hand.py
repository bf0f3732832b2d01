"""Finds code of the script, around a call and in the functions that it names, that compares what it has read of gradients."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from gradclip.doctor.places import Place, is_user

__all__ = ["HELD", "VALUES", "reading", "switched"]

HELD = frozenset({"grad", "main_grad"})  #: names of what holds a gradient
VALUES = frozenset({"global_norm", "norm", "reduce_sum", "l2_loss"})  #: names of functions that make a norm of gradients
_LEAST = frozenset({"clamp", "clip", "clip_by_value", "cond", "min", "minimum", "where"})
_STEPS = frozenset({"step", "update", "apply_gradients", "minimize", "backward"})
_ORDERS = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)
_DEPTH = 3  #: functions that call one another

Words = frozenset[str]
#: from some code, and the names of the functions that have the words: a line; 0 for none
_Look = Callable[[CodeType, Words], int]


def reading(words: Words) -> Place | None:
    """The place of such code: in the calls that run now, or in what they name; None if there is none."""
    return _looked_for(words, lambda code, readers: _compared(code, words | readers))


def switched(clips: Words) -> Place | None:
    """The place of a call of one of these clips under a test that has to do with nothing else: a setting may turn it off."""
    return _looked_for(clips, lambda code, _: _under_a_test(code, clips))


def _looked_for(words: Words, look: _Look) -> Place | None:
    frame: FrameType | None = sys._getframe(2)
    done: set[CodeType] = set()
    while frame is not None:
        if is_user(frame.f_code.co_filename):
            found = _in(frame.f_code, {**frame.f_globals, **frame.f_locals}, words, look, done, _DEPTH)
            if found is not None:
                return found
        frame = frame.f_back
    return None


def _in(code: CodeType, scope: dict[str, Any], words: Words, look: _Look, done: set[CodeType], depth: int) -> Place | None:
    if code in done:
        return None
    done.add(code)
    called = dict(_functions(code, scope)) if depth else {}
    readers = frozenset(name for name, function in called.items() if words & _names(function.__code__))
    line = look(code, readers)
    if line:
        return Place(code.co_filename, line)
    for function in called.values():
        cells = [_content(cell) for cell in function.__closure__ or ()]
        inner = {**function.__globals__, **dict(zip(function.__code__.co_freevars, cells, strict=False))}
        found = _in(function.__code__, inner, words, look, done, depth - 1)
        if found is not None:
            return found
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _functions(code: CodeType, scope: dict[str, Any]) -> Iterator[tuple[str, FunctionType]]:
    """The script's functions that some code names, also methods of the object that it belongs to."""
    owner = scope.get("self")
    nodes = [x for x in _own(_body(code)) if isinstance(getattr(x, "ctx", None), ast.Load)]
    for name in dict.fromkeys(filter(None, map(_last, nodes))):
        found = scope.get(name)
        if found is None and owner is not None:
            found = getattr(type(owner), name, None)
        found = found.__func__ if isinstance(found, MethodType) else found
        if isinstance(found, FunctionType) and is_user(found.__code__.co_filename):
            yield name, found


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> frozenset[str]:
    """All names in some code, with its comprehensions."""
    inner = [x for x in code.co_consts if isinstance(x, CodeType)]
    return frozenset().union(code.co_names, code.co_varnames, code.co_freevars, *map(_names, inner))


@lru_cache(maxsize=1024)
def _compared(code: CodeType, words: Words) -> int:
    """The line that compares what was read of gradients; 0 if there is none."""
    nodes = _own(_body(code))
    read = set(words)
    for _ in range(2):  # a loop may read in a line above what a line below has assigned
        for node in nodes:
            read |= _assigned(node, read)
    for node in nodes:
        is_order = isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDERS)
        is_least = isinstance(node, ast.Call) and _last(node.func) in _LEAST
        parts = _parts(node) if is_least else [node] if is_order else []
        if any(_has(x, read) for x in parts):
            return int(getattr(node, "lineno", 0))
    return 0


@lru_cache(maxsize=1024)
def _under_a_test(code: CodeType, clips: Words) -> int:
    """The line of a clip under a test; 0 if there is none, or if that counts steps or chooses between more than clips."""
    for node in _own(_body(code)):
        if isinstance(node, ast.If) and not any(isinstance(x, ast.Mod) for x in ast.walk(node.test)):
            calls = [x for part in (*node.body, *node.orelse) for x in ast.walk(part) if isinstance(x, ast.Call)]
            named = {_last(x.func) for x in calls}
            if named & clips and not named & _STEPS:
                return next(x.lineno for x in calls if _last(x.func) in clips)
    return 0


def _parts(call: ast.AST) -> list[ast.AST]:
    """What a call works on: its arguments, and the object of a method."""
    assert isinstance(call, ast.Call)
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*owner, *call.args, *(x.value for x in call.keywords)]


def _assigned(node: ast.AST, read: set[str]) -> set[str]:
    """The names that get something read."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value and _has(node.value, read):
        targets: Sequence[ast.AST] = node.targets if isinstance(node, ast.Assign) else [node.target]
    elif isinstance(node, (ast.For, ast.comprehension)) and _has(node.iter, read):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend"):
        targets = [node.func.value] if any(_has(x, read) for x in node.args) else []
    else:
        return set()
    return {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}


def _has(node: ast.AST, read: set[str]) -> bool:
    return any(_last(x) in read for x in ast.walk(node))


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _own(body: Sequence[ast.AST]) -> list[ast.AST]:
    """All nodes, without the bodies of functions within."""
    found, waiting = [], list(body)
    while waiting:
        node = waiting.pop(0)
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return found


def _body(code: CodeType) -> Sequence[ast.AST]:
    tree = _tree(code.co_filename)
    if tree is None or code.co_name == "<module>":
        return tree.body if tree else []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
            continue
        if code.co_firstlineno in (node.lineno, *(x.lineno for x in node.decorator_list)):
            return node.body
    return []


@lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
