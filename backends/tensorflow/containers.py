"""The containers of ``tf.nest`` besides Python's own: classes of attrs, and classes with TensorFlow's own protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from gradclip.backends.tensorflow.versions import TENSORS
from gradclip.core.containers import Containers

__all__ = ["TensorFlowContainers"]


class TensorFlowContainers(Containers):
    """Leaves in the container's own order: ``tf.nest`` sorts the keys of a dict, and fails if they have no order."""

    def is_container(self, x: object) -> bool:
        if _parts(x) is None and (not isinstance(x, Mapping) or isinstance(x, dict)):
            return False
        self.check_depth(x)
        return all(leaf is None or isinstance(leaf, (TENSORS, tf.IndexedSlices)) for _, leaf in self.walk(x))

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        parts = _parts(tree)
        if isinstance(tree, tf.compat.v1.SparseTensorValue):  # a named tuple, and no container
            yield path, tree
        elif parts is None:
            yield from super().walk(tree, path)
        else:
            for name, part in parts:
                yield from self.walk(part, path + name)

    def children(self, x: Any) -> Iterable[Any] | None:
        parts = _parts(x)
        return super().children(x) if parts is None else [part for _, part in parts]

    def rebuild(self, tree: Any, leaves: Iterator[Any]) -> Any:
        parts = _parts(tree)
        if parts is None:
            return super().rebuild(tree, leaves)
        new = tuple(self.rebuild(part, leaves) for _, part in parts)
        if hasattr(type(tree), "__attrs_attrs__"):
            return type(tree)(*new)
        return type(tree).__tf_unflatten__(tree.__tf_flatten__()[0], new)


def _parts(tree: Any) -> list[tuple[str, Any]] | None:
    """The components of such an object, with their names; None for anything else."""
    if isinstance(tree, (Mapping, list, tuple)):
        return None
    if hasattr(type(tree), "__attrs_attrs__"):
        return [(f".{field.name}", getattr(tree, field.name)) for field in type(tree).__attrs_attrs__]
    if hasattr(type(tree), "__tf_flatten__"):
        return [(f"[{i}]", child) for i, child in enumerate(tree.__tf_flatten__()[1])]
    return None
