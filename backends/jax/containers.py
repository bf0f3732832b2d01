"""Pytrees: JAX's containers, also those that a user registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import dtypes, tree_util
from jax.core import Tracer

from gradclip.containers import Containers, plain_key
from gradclip.result import ClipResult

__all__ = ["Pytrees"]

# so a compiled function can return a ClipResult
_FIELDS = ("grads", "norm", "coefficient")
tree_util.register_pytree_with_keys(
    ClipResult,
    lambda result: ([(tree_util.GetAttrKey(name), getattr(result, name)) for name in _FIELDS], result.is_list),
    lambda is_list, children: ClipResult(children[0], children[1], children[2], None, is_list),
)


class Pytrees(Containers):
    """Any registered pytree; None in it is a leaf.

    JAX's gradient of integers, with dtype float0, counts as a missing gradient and stays in its place.
    """

    def is_container(self, x: object) -> bool:
        return not isinstance(x, ClipResult) and not tree_util.all_leaves([x])

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        leaves, structure = tree_util.tree_flatten(tree, _is_leaf)
        if not self.has_gaps(leaves):
            return leaves, structure.unflatten
        gaps = {i: leaf for i, leaf in enumerate(leaves) if _is_float0(leaf)}
        present = [None if i in gaps else leaf for i, leaf in enumerate(leaves)]
        return present, lambda new: structure.unflatten([gaps.get(i, x) for i, x in enumerate(new)])

    def is_gap(self, x: object) -> bool:
        return _is_float0(x)

    def has_gaps(self, leaves: Sequence[Any]) -> bool:
        if all(issubclass(kind, (jax.Array, type(None))) and not issubclass(kind, Tracer) for kind in set(map(type, leaves))):
            return False  # no array has this dtype
        return any(map(_is_float0, leaves))

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        for keys, leaf in tree_util.tree_flatten_with_path(tree, _is_leaf)[0]:
            yield path + tree_util.keystr(tuple(map(_plain, keys))), leaf


def _is_leaf(x: object) -> bool:
    # None is a leaf here, not JAX's empty node: results have an entry for it. A clip's result is not a gradient
    return x is None or isinstance(x, ClipResult)


def _is_float0(x: object) -> bool:
    dtype = getattr(x, "dtype", None)
    return dtype is not None and dtype == dtypes.float0


def _plain(key: Any) -> Any:
    return tree_util.DictKey(plain_key(key.key)) if isinstance(key, tree_util.DictKey) else key
