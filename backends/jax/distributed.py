"""JAX gradients in ``shard_map``, ``pmap`` and ``vmap``, where each device sees its own shard along named axes.

Outside of them a sharded array is one array, and XLA communicates as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gradclip.backends.jax.places import compiles_for_host
from gradclip.backends.jax.versions import axis_size, is_in_pmap, manual_axes, varying
from gradclip.core.errors import ArgumentError, message
from gradclip.core.parts import Distributed, Parts, Processes, Request

__all__ = ["JaxDistributed", "awaited"]


class JaxDistributed(Distributed):
    """Axes by their names. To JAX, an array that is sharded over processes is complete."""

    def widest(self) -> str:
        return "float64" if jax.config.jax_enable_x64 else "float32"

    def group(self, given: object, name: str = "reduce") -> Processes | None:
        return _group_of(given)

    def combine(self, requests: Sequence[Request]) -> list[list[Any]]:
        """One all-reduce for each group, or one for each axis if the axes are fewer: it serves all groups along the axis."""
        groups = [group for group, _, _ in requests]
        axes = tuple(dict.fromkeys(name for group in groups if isinstance(group, Axes) for name in group.names))
        if len(axes) >= len(groups) or not all(isinstance(group, Axes) for group in groups):
            return super().combine(requests)
        found = [values for _, values, _ in requests]
        for name in axes:
            along = [k for k, group in enumerate(groups) if isinstance(group, Axes) and name in group.names]
            # an array for each group, as JAX records for an array along which axes it differs; XLA sums all of them at once
            summed = lax.psum([_rows((name,), found[k]) for k in along], name)
            for k, rows in zip(along, summed, strict=True):
                found[k] = list(requests[k][2](list(rows)))
        return found

    def whose(self, x: Any) -> str:
        if x.is_fully_addressable:
            return ""
        from jax.experimental import multihost_utils  # imported here: few programs need it

        # all processes come here
        is_here = any(not jnp.isfinite(shard.data).all() for shard in x.addressable_shards)
        found = np.flatnonzero(multihost_utils.process_allgather(np.int32(is_here)))
        return f"process {', '.join(map(str, found))}: "


class Axes(Processes):
    """The devices along one or more axes of the mesh."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        is_unrecorded = not self._recorded() and bool(manual_axes().intersection(names))
        self.doubt = _unrecorded(names) if is_unrecorded and not is_in_pmap() else None

    @property
    def key(self) -> Hashable:
        return self.names

    def _recorded(self) -> frozenset[str]:
        """The axes for which JAX records what differs: those of shard_map, unless check_vma=False; not of pmap and vmap."""
        return frozenset(name for name in self.names if name in varying(lax.axis_index(name)))

    def combine(self, values: list[Any], join: Callable[[list[Any]], list[Any]]) -> list[Any]:
        # an all-reduce and not a gather, because JAX knows only of an all-reduce that its result is the same on all devices
        return list(join(list(lax.psum(_rows(self.names, values), self.names))))

    def parts(self, leaves: Sequence[Any]) -> Parts:
        """Every device has a shard of each gradient, along the axes on which the gradient may differ."""
        recorded = self._recorded()
        if len(recorded) < len(self.names) and (recorded or any(varying(x) for x in leaves if x is not None)):
            what = "JAX cannot add up along an axis of vmap in a shard_map that keeps a record of what differs."
            hint = "pass check_vma=False to shard_map; every gradient is taken to be divided along all these axes then."
            raise ArgumentError(what, f"reduce={self.names}", hint)
        places: dict[tuple[str, ...], list[int]] = {}
        for i, x in enumerate(leaves):
            along = self.names if x is None or not recorded else tuple(n for n in self.names if n in varying(x))
            if along:
                places.setdefault(along, []).append(i)
        return Parts(
            local=list(leaves),
            groups=list(map(Axes, places)),
            places=list(places.values()),
            counted=lambda: list(leaves),
            ranks=frozenset(),
            full=lambda i, new: new,
        )


def _rows(names: tuple[str, ...], values: list[Any]) -> jax.Array:
    """A matrix with a row for each device along these axes, this one's values in its own: a sum of powers might overflow."""
    here = jnp.stack([jnp.asarray(value) for value in values])
    return jnp.zeros((axis_size(names), len(values)), here.dtype).at[lax.axis_index(names)].set(here)


def _unrecorded(names: tuple[str, ...]) -> str:
    what = "JAX does not record here which gradients differ between devices, so all count as sharded: a replicated one counts"
    what += " once for each device."
    hint = "leave out check_vma=False: then a replicated gradient counts once. Or clip replicated gradients separately, "
    hint += "without reduce=. If every gradient is sharded along these axes: "
    hint += 'warnings.filterwarnings("ignore", "JAX does not record here").'
    return message(what, f"reduce={names}, in shard_map with check_vma=False or in pmap", hint)


def _group_of(reduce: object) -> Axes | None:
    """The devices of a named axis, or of a tuple of names, in the ``shard_map``, ``pmap`` or ``vmap`` being traced."""
    names = reduce if isinstance(reduce, tuple) else (reduce,)
    if not names or not all(isinstance(name, str) for name in names):
        return None
    try:
        lax.axis_index(names)
    except NameError:  # no such axis, or an axis of a mesh outside of shard_map
        return None
    return Axes(names)


def awaited(x: Any) -> Any:
    """Wait for a value that several processes compute together; return it at once while tracing or on one process.

    A CPU runs pending programs concurrently, and two devices of a process may start two of them in different orders:
    then each waits for the other for ever. An accelerator runs programs one by one, so there it does not wait.
    """
    if not isinstance(x, jax.core.Tracer) and not x.is_fully_addressable and compiles_for_host():
        jax.block_until_ready(x)
    return x
