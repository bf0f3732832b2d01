"""Whose arrays a function takes, if the command does not say: its annotations and its file's imports tell."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradclip.core.errors import ArgumentError

__all__ = ["arrays_of", "chosen"]

#: package -> the framework of its arrays
_PACKAGES = {"torch": "torch", "tensorflow": "tensorflow", "paddle": "paddle", "jax": "jax", "optax": "jax", "numpy": "numpy"}


def arrays_of(function: Any, text: str, dialect: str = "numpy") -> list[str]:
    """The frameworks whose arrays a function may take, the likeliest first; only the first, where something tells.

    Args:
        text: the TARGET, for the error.
        dialect: the framework of the operation: of its arrays where the file imports none, or several.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    here = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(str(here))
    own = _PACKAGES.get(getattr(module, "__name__", "").partition(".")[0])
    if own:
        return [own]
    try:
        source = Path(getattr(module, "__file__", None) or "").read_text(encoding="utf-8")
    except (OSError, ValueError):  # no file, or one of compiled code
        source = ""
    found = chosen(source, str(getattr(function, "__name__", "")), text, dialect)
    others = [one for one in dict.fromkeys(("numpy", dialect)) if importlib.util.find_spec(one) is not None]
    return [found] if found else others if "numpy" in dict(_names(ast.parse(source))).values() else others[::-1]


def chosen(source: str, name: str, text: str, dialect: str = "") -> str:
    """The framework that the function's annotations name, else the one that its source imports; "" for NumPy or none.

    Raises:
        ValueError: for a source that imports several, if the annotations name none or several, and the dialect is of none.

    >>> chosen("import numpy, torch", "clip", "train.py:clip")
    'torch'
    >>> chosen("import jax, torch\\n\\ndef clip(grads: list[torch.Tensor], max_norm): ...", "clip", "train.py:clip")
    'torch'
    """
    tree = ast.parse(source)
    names = dict(_names(tree))
    annotated = {names[word] for word in _annotations(tree, name) if word in names}
    if len(annotated) == 1:
        return annotated.pop()
    found = sorted(set(names.values()) - {"numpy"})
    if len(found) > 1 and dialect in found:
        return dialect
    if len(found) > 1:
        hint = f"say whose arrays the function takes: {' or '.join(f'--arrays {one}' for one in found)}."
        raise ArgumentError(f"The file imports {' and '.join(found)}.", text, hint)
    return found[0] if found else ""


def _names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that stand for a framework or a part of it."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                package = (alias.name if isinstance(node, ast.Import) else node.module or "").partition(".")[0]
                if package in _PACKAGES:
                    yield (alias.asname or alias.name).partition(".")[0], _PACKAGES[package]


def _annotations(tree: ast.AST, name: str) -> Iterator[str]:
    """The words in the annotations of a function's arguments and result."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            parts = [one.annotation for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            for part in filter(None, [*parts, node.returns]):
                is_text = isinstance(part, ast.Constant) and isinstance(part.value, str)
                shown = ast.parse(part.value) if is_text else part  # type: ignore[attr-defined]
                yield from (word.id for word in ast.walk(shown) if isinstance(word, ast.Name))
