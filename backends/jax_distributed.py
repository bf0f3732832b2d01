"""JAX gradients in ``shard_map`` and ``pmap``, where each device sees its own part: the axes of a mesh. No backend itself.

Outside of them an array that is divided over devices is one array, and XLA moves what has to be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gradclip.parts import Group, Parts

__all__ = ["group_of"]


class Axes(Group):
    """The devices along one or more axes of the mesh."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def combine(self, values: list[Any], join: Callable[[list[Any]], list[Any]]) -> list[Any]:
        # each device's norms in a row of its own, so that no power is summed that may overflow. An all-reduce, because to JAX
        # its result is the same on all devices, as that of a gather is not
        here = jnp.stack([jnp.asarray(value) for value in values])
        rows = jnp.zeros((lax.axis_size(self.names), len(values)), here.dtype).at[lax.axis_index(self.names)].set(here)
        return list(join(list(lax.psum(rows, self.names))))

    def parts(self, leaves: Sequence[Any]) -> Parts:
        """Of each gradient every device holds a part, along those of the axes that it is not known to be the same on."""
        places: dict[tuple[str, ...], list[int]] = {}
        for i, x in enumerate(leaves):
            names = self.names if x is None or not _is_known(self.names) else _along(x, self.names)
            if names:
                places.setdefault(names, []).append(i)
        return Parts(
            held=list(leaves),
            groups=list(map(Axes, places)),
            places=list(places.values()),
            counted=lambda: list(leaves),
            ranks=frozenset(),
            whole=lambda i, new: new,
        )


def group_of(reduce: object) -> Axes | None:
    """The devices behind the name of an axis, or a tuple of names, of the ``shard_map`` or ``pmap`` that is being traced."""
    names = reduce if isinstance(reduce, tuple) else (reduce,)
    if not names or not all(isinstance(name, str) for name in names):
        return None
    try:
        lax.axis_index(names)
    except NameError:  # no such axis, or it is one of a mesh outside of shard_map
        return None
    return Axes(names)


def _is_known(names: tuple[str, ...]) -> bool:
    """Whether JAX keeps a record of what differs along axes: in ``shard_map``, unless ``check_vma=False``."""
    return bool(_along(lax.axis_index(names), names))


def _along(x: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the axes that an array is recorded to differ along."""
    varying = jax.typeof(x).manual_axis_type.varying
    return tuple(name for name in names if name in varying)
