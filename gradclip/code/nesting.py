"""The depth of the tree that LibCST would make of a source, measured on Python's own tree.

LibCST's parser is native code and recursive: a tree that is too deep ends the process, without an exception.
"""

from __future__ import annotations

import ast

__all__ = ["is_too_deep"]

_DEEPEST = 500  #: levels; LibCST takes a stack of 8 MiB at about 4000 levels of the largest construct, a lambda
_DEEPEST_PATTERN = 16  #: levels of patterns in a ``match``: each level takes LibCST's parser several times as long


def is_too_deep(tree: ast.Module) -> bool:
    """Whether a source is nested too deeply for LibCST. It walks without recursion."""
    stack: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    while stack:
        node, depth, patterns = stack.pop()
        if depth > _DEEPEST or patterns > _DEEPEST_PATTERN:
            return True
        depth += 1
        patterns += isinstance(node, ast.pattern)
        if isinstance(node, ast.BoolOp):  # flat in Python's tree; in LibCST's, each operand is one level
            depth += len(node.values)
        elif isinstance(node, ast.Import):
            depth += max(alias.name.count(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            depth += (node.module or "").count(".")
        stack += [(child, depth, patterns) for child in ast.iter_child_nodes(node)]
    return False
