"""The ``repr`` of rules and results: one line for any contents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["number", "numbers", "tensors"]

_FEW = 4  #: the most leaves of a container that are shown one by one


def number(x: Any) -> str:
    """A number, or a tensor of one, in six digits; any other tensor by its type and shape.

    >>> number(1 / 3), number(None), number([1.0])
    ('0.333333', 'None', '<list>')
    """
    if x is None or isinstance(x, (bool, int, float, str)):
        return f"{x:.6g}" if isinstance(x, float) else repr(x)
    if _shape(x) == ():
        try:
            return f"{float(x.detach() if hasattr(x, 'detach') else x):.6g}"
        except Exception:  # for a tracer, which has no value yet, each framework raises its own
            return f"<{type(x).__name__}>"
    return _one(x)


def numbers(tree: Any) -> str:
    """Norms or coefficients: a few one by one, many as their count.

    >>> numbers(0.5), numbers([3.0, None]), numbers({"w": 1.0}), numbers([1.0] * 9)
    ('0.5', '[3, None]', "{'w': 1}", '<list of 9>')
    """
    if isinstance(tree, (list, tuple, Mapping)):
        leaves = list(_leaves(tree))
        if len(leaves) > _FEW:
            return f"<{type(tree).__name__} of {len(leaves)}>"
        if isinstance(tree, Mapping):
            return "{" + ", ".join(f"{key!r}: {numbers(x)}" for key, x in tree.items()) + "}"
        return f"[{', '.join(map(numbers, tree))}]"
    return number(tree)


def tensors(tree: Any) -> str:
    """Gradients: their number, the number of elements, and the first shapes.

    >>> tensors(None), tensors([]), tensors({"w": None})
    ('None', '<list of 0 tensors>', '<dict of 0 tensors, 1 None>')
    """
    if not isinstance(tree, (list, tuple, Mapping)):
        return "None" if tree is None else _one(tree)
    leaves = list(_leaves(tree))
    present = [x for x in leaves if x is not None]
    text = f"<{type(tree).__name__} of {len(present)} tensor{'s' * (len(present) != 1)}"
    shapes = [_shape(x) for x in present]
    elements = [math.prod(shape) for shape in shapes if shape is not None and None not in shape]
    if present and len(elements) == len(present):
        text += f", {sum(elements):,} element{'s' * (sum(elements) != 1)}"
    if len(present) < len(leaves):
        text += f", {len(leaves) - len(present)} None"
    if present:
        text += ": " + ", ".join(map(str, shapes[:_FEW])) + ", ..." * (len(shapes) > _FEW)
    return text + ">"


def _leaves(tree: Any) -> Iterator[Any]:
    children: Iterable[Any] = tree.values() if isinstance(tree, Mapping) else tree
    for child in children:
        if isinstance(child, (list, tuple, Mapping)):
            yield from _leaves(child)
        else:
            yield child


def _shape(x: Any) -> tuple[Any, ...] | None:
    try:
        return tuple(x.shape)
    except Exception:  # not a tensor; or of unknown rank, for which TensorFlow raises
        return None


def _one(x: Any) -> str:
    shape = _shape(x)
    return f"<{type(x).__name__}>" if shape is None else f"<{type(x).__name__} of shape {shape}>"
