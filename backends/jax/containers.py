"""Pytrees: JAX's containers, also those that a user registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import dtypes, tree_util
from jax.core import Tracer

from gradclip.backends.jax.versions import is_sparse
from gradclip.core.containers import Containers, plain_key
from gradclip.core.errors import TensorTypeError
from gradclip.core.result import ClipResult

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
        self.check_depth(tree)  # in JAX's own loop a recursion without end leaves the interpreter unusable
        leaves, structure = tree_util.tree_flatten(tree, _is_leaf)
        if not self.has_gaps(leaves):
            return leaves, structure.unflatten
        gaps = {i: leaf for i, leaf in enumerate(leaves) if _is_float0(leaf)}
        present = [None if i in gaps else leaf for i, leaf in enumerate(leaves)]
        return present, lambda new: structure.unflatten([gaps.get(i, x) for i, x in enumerate(new)])

    def children(self, x: Any) -> Iterable[Any] | None:
        if isinstance(x, jax.Array) or _is_leaf(x):
            return None
        parts = super().children(x)
        if parts is None or type(x) not in (list, tuple, dict):
            found = tree_util.default_registry.flatten_one_level(x)
            parts = None if found is None else found[0]
        return parts

    def is_gap(self, x: object) -> bool:
        return _is_float0(x)

    def has_gaps(self, leaves: Sequence[Any]) -> bool:
        for kind in set(map(type, leaves)):
            if not issubclass(kind, (jax.Array, type(None))) or issubclass(kind, Tracer):
                return dtypes.float0 in [getattr(x, "dtype", None) for x in leaves]
        return False  # no array has this dtype

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        for keys, leaf in tree_util.tree_flatten_with_path(tree, _is_leaf)[0]:
            yield path + tree_util.keystr(tuple(map(_plain, keys))), leaf


def _is_leaf(x: object) -> bool:
    # None is a leaf here, not JAX's empty node: results have an entry for it. A clip's result is not a gradient
    if is_sparse(x):
        what = (
            "gradclip does not clip JAX's sparse matrices: some of their numbers are indices, and an element may be in parts."
        )
        shape = "x".join(map(str, getattr(x, "shape", ())))
        hint = "pass grad.todense(); or, if no two indices are equal (sparse.bcoo_sum_duplicates), pass its numbers, grad.data,"
        hint += " and put the result back with sparse.BCOO((data, grad.indices), shape=grad.shape)."
        raise TensorTypeError(what, f"a {shape} {type(x).__module__.partition('.')[0]} {type(x).__name__}", hint)
    return x is None or isinstance(x, ClipResult)


def _is_float0(x: object) -> bool:
    dtype = getattr(x, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype == dtypes.float0  # a tracer of another framework may not be compared


def _plain(key: Any) -> Any:
    return tree_util.DictKey(plain_key(key.key)) if isinstance(key, tree_util.DictKey) else key
