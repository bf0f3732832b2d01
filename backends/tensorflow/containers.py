"""The containers that ``tf.nest`` knows: mappings, sequences, classes of attrs, and those with its own protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from gradclip.backends.tensorflow.versions import TENSORS
from gradclip.containers import Containers, plain_key

__all__ = ["TensorFlowContainers"]


class TensorFlowContainers(Containers):
    def is_container(self, x: object) -> bool:
        if _children(x) is None or isinstance(x, (list, tuple, dict)):
            return False
        return all(leaf is None or isinstance(leaf, (TENSORS, tf.IndexedSlices)) for _, leaf in self.walk(x))

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        return [leaf for _, leaf in self.walk(tree)], lambda new: _rebuild(tree, iter(new))

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """In the order of the container itself; ``tf.nest`` sorts the keys of a dict, and fails where they have no order."""
        children = _children(tree)
        if children is None:
            yield path, tree
        else:
            for name, child in children:
                yield from self.walk(child, path + name)


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    """The children of a container, with their names; None for a leaf."""
    if isinstance(tree, Mapping):
        return [(f"[{plain_key(key)!r}]", child) for key, child in tree.items()]
    if isinstance(tree, (list, tuple)):
        fields = getattr(tree, "_fields", None)
        return [(f".{fields[i]}" if fields else f"[{i}]", child) for i, child in enumerate(tree)]
    if hasattr(type(tree), "__attrs_attrs__"):
        return [(f".{field.name}", getattr(tree, field.name)) for field in type(tree).__attrs_attrs__]
    if hasattr(type(tree), "__tf_flatten__"):
        return [(f"[{i}]", child) for i, child in enumerate(tree.__tf_flatten__()[1])]
    return None


def _rebuild(tree: Any, leaves: Iterator[Any]) -> Any:
    children = _children(tree)
    if children is None:
        return next(leaves)
    new = [_rebuild(child, leaves) for _, child in children]
    if isinstance(tree, Mapping):
        items = dict(zip(tree, new, strict=True))
        if type(tree) is dict or not isinstance(tree, dict):
            return items if type(tree) is dict else type(tree)(items)  # type: ignore[call-arg]
        rebuilt = tree.copy()  # keeps a default factory, an order, what tf.Module tracks
        rebuilt.update(items)
        return rebuilt
    if hasattr(tree, "_fields"):
        return tree._replace(**dict(zip(tree._fields, new, strict=True)))
    if isinstance(tree, (list, tuple)):
        return type(tree)(new if isinstance(tree, list) else tuple(new))
    if hasattr(type(tree), "__attrs_attrs__"):
        return type(tree)(*new)
    return type(tree).__tf_unflatten__(tree.__tf_flatten__()[0], tuple(new))
