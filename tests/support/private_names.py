"""Finds the private names of other packages in a source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["dotted", "named", "not_own", "private"]

# These modules are private, or change between versions, although no underscore says so.
PRIVATE = ("tensorflow.python", "tensorflow.core", "jax.extend", "jax.interpreters", "paddle.base")
# Named tuples have these: https://docs.python.org/3/library/collections.html#collections.namedtuple
PYTHON = {"_asdict", "_fields", "_make", "_replace"}


def private(source: str, own: frozenset[str] = frozenset()) -> list[str]:
    """Return the private names in a source that others define: in imports, as attributes, and as strings for ``getattr``."""
    return not_own(named(list(ast.walk(ast.parse(source)))), own)


def named(nodes: Sequence[ast.AST]) -> frozenset[tuple[str, tuple[str, ...]]]:
    """Return the names in a source's nodes, each with the parts that its node adds."""
    aliases = [name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    modules = {name.asname: name.name for name in aliases if name.asname}
    return frozenset(found for node in nodes for found in _names(node, modules))


def not_own(found: Iterable[tuple[str, tuple[str, ...]]], own: frozenset[str]) -> list[str]:
    return sorted({name for name, parts in found if _is_private(name, [x for x in parts if x not in own])})


def _names(node: ast.AST, modules: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the names in one node, with their module if it is known, and the parts that this node adds."""
    if isinstance(node, ast.Import):
        yield from ((name.name, tuple(name.name.split("."))) for name in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] != "gradclip":
        names = [f"{node.module}.{name.name}" for name in node.names]
        yield from ((name, tuple(name.split("."))) for name in names)
    elif isinstance(node, ast.Attribute):
        yield dotted(node, modules), (node.attr,)
    elif isinstance(node, ast.Call):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in ("getattr", "hasattr", "setattr", "attrgetter", "methodcaller"):
            texts = [x.value for x in node.args if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            yield from ((f"?.{text}", (text,)) for text in texts)


def dotted(node: ast.expr, modules: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, modules)}.{node.attr}"
    return modules.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def _is_private(name: str, parts: list[str]) -> bool:
    """An underscore makes it private. Dunder names are Python's or a protocol's, except TensorFlow's ``__internal__``."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return False
    if any(f"{name}.".startswith(f"{module}.") for module in PRIVATE):
        return True
    return any(x == "__internal__" or (x.startswith("_") and not x.startswith("__") and x not in PYTHON) for x in parts)
