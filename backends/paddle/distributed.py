"""Paddle gradients on several processes: distributed tensors of any placements, process groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from gradclip.backends.paddle import versions
from gradclip.backends.paddle.lanes import ON_HOST_ONLY
from gradclip.core.backend import Tensor
from gradclip.core.dtypes import WIDE
from gradclip.core.errors import ArgumentError, page
from gradclip.core.parts import Distributed, Parts, Processes

__all__ = ["PaddleDistributed"]

_ADDED = (dist.ReduceType.kRedSum, dist.ReduceType.kRedAvg)


class PaddleProcesses(Processes):
    """A process group, or the processes of meshes without one: they reshard a tensor from each process to all."""

    compares = True

    def __init__(self, ranks: Iterable[int], group: Any = None) -> None:
        self.rank = dist.get_rank()
        self.ranks = frozenset(ranks)
        self.group = group
        self.count = len(self.ranks)
        self.on_host = ON_HOST_ONLY or paddle.get_device() == "cpu"

    def combine(self, values: list[Any], join: Callable[[list[Any]], Any]) -> list[Any]:
        if not paddle.in_dynamic_mode():
            what = "A norm over several processes is for dynamic mode."
            raise ArgumentError(what, f"a static program on ranks {sorted(self.ranks)}", "give a function as reduce=.")
        if len(self.ranks) == 1:
            return values
        # gathered, not summed: a float64 norm does not overflow where its square would, and NaN keeps its process
        on_host = all(isinstance(value, float) for value in values)
        rows = self._gathered(paddle.to_tensor(values, "float64") if on_host else _vector(values))
        return join(rows.tolist()) if on_host else list(join(list(rows)))

    def collect(self, texts: list[str]) -> list[str]:
        if len(self.ranks) == 1:
            return texts
        mine = json.dumps(texts).encode()
        lengths = self._gathered(paddle.to_tensor([len(mine)], "int64")).flatten().tolist()
        padded = paddle.to_tensor([*mine, *[0] * (max(lengths) - len(mine))], "uint8")
        rows = self._gathered(padded).tolist()
        return [text for row, n in zip(rows, lengths, strict=True) for text in json.loads(bytes(row[:n]))]

    def _gathered(self, mine: Tensor) -> Tensor:
        """A vector of each process, as the rows of a matrix; all communication is here."""
        if self.group is not None:
            rows: list[Tensor] = []
            dist.all_gather(rows, mine, group=self.group)
            return paddle.stack(rows)
        return _resharded(mine, sorted(self.ranks), dist.Shard(0)).reshape([len(self.ranks), -1])


def _resharded(mine: Tensor, ranks: list[int], placement: Any) -> Tensor:
    """The processes' tensors, gathered on each. It needs no group, which other processes would have to make too."""
    mesh = dist.ProcessMesh(ranks, dim_names=["processes"])
    with paddle.no_grad():
        local = versions.dtensor_from_local(mine, mesh, [placement])
        return versions.local_value(dist.reshard(local, mesh, [dist.Replicate()]))


def _vector(values: list[Any]) -> Tensor:
    """Floats and 0-d tensors as one float64 tensor."""
    return paddle.stack(
        [x.astype("float64") if isinstance(x, paddle.Tensor) else paddle.full([], x, "float64") for x in values]
    )


class PaddleDistributed(Distributed):
    """Distributed tensors, whose type shows their shards; groups and meshes."""

    def parts(self, leaves: Sequence[Any], params: Sequence[Any]) -> Parts | None:
        """Paddle's view is global: each process lists the gradients of all meshes, also of meshes without this process.

        So one combination spans the processes of all meshes, and one process counts each element.
        """
        given = [param if leaf is None else leaf for leaf, param in zip(leaves, params, strict=True)]
        kinds: dict[Any, list[int]] = {}  # few for any number of gradients
        layouts: dict[Any, _Layout] = {}
        for i, x in enumerate(given):
            if _is_distributed(x):
                mesh = x.process_mesh
                kind = (tuple(mesh.process_ids), tuple(mesh.shape), tuple(map(str, x.placements)))
                kinds.setdefault(kind, []).append(i)
                if kind not in layouts:
                    layouts[kind] = _Layout(mesh, x.placements)
        if not kinds:
            return None
        ranks = frozenset(rank for ids, _, _ in kinds for rank in ids)
        local = _local_tensors(leaves)
        here = {kind: [i for i in places if local[i] is not None] for kind, places in kinds.items()}
        return Parts(
            local=local,
            groups=[PaddleProcesses(ranks)],
            places=[sorted(i for places in kinds.values() for i in places)],
            counted=lambda: _counted(leaves, local, here, layouts),
            ranks=ranks,
            full=lambda i, new: _full(leaves[i], new),
            sums=[i for kind, places in here.items() if layouts[kind].sums for i in places],
            named=lambda i: frozenset(given[i].process_mesh.process_ids if _is_distributed(given[i]) else ()),
        )

    def together(self, x: Tensor) -> Tensor:
        return dist.unshard_dtensor(x) if _is_distributed(x) else x

    def is_recorded(self, tensors: Sequence[Tensor]) -> bool:
        eager = (x for x in tensors if isinstance(x, paddle.Tensor))
        return paddle.is_grad_enabled() and not all(x.is_leaf for x in eager)  # a gradient is a leaf

    def size(self) -> int:
        return int(dist.get_world_size())

    def group(self, given: object, name: str = "reduce") -> Processes | None:
        if isinstance(given, versions.Group):
            ranks, group = given.ranks, given
        elif isinstance(given, versions.MESHES):
            ranks, group = given.process_ids, None
        else:
            return None
        if dist.get_rank() not in ranks:
            hint = "only the processes of a group can combine over it; leave out gradients of other processes. See "
            hint += page("distributed.md#what-counts")
            raise ArgumentError("This process does not belong to the group.", f"{name}={given}", hint)
        return PaddleProcesses(ranks, group)


def _is_distributed(x: object) -> bool:
    return isinstance(x, paddle.Tensor) and bool(x.is_dist())


class _Layout:
    """The place of gradients with one mesh and placements, from this process's view."""

    def __init__(self, mesh: Any, placements: Sequence[Any]) -> None:
        for placement in placements:
            if placement.is_partial() and placement.reduce_type() not in _ADDED:
                what = "The norm of a gradient of this placement is not defined."
                raise ArgumentError(what, f"placements={list(placements)}", "reshard it to Shard or Replicate.")
        self.is_here = dist.get_rank() in mesh.process_ids
        self.ids = np.array(mesh.process_ids).reshape(mesh.shape)
        self.sums = [(d, placement) for d, placement in enumerate(placements) if placement.is_partial()]
        self.at = tuple(int(i) for i in np.argwhere(self.ids == dist.get_rank())[0]) if self.is_here else ()
        #: whether this process counts its shard: the first of replicas does
        self.counts = self.is_here and all(p.is_shard() or i == 0 for p, i in zip(placements, self.at, strict=True))

    def along(self, dimension: int) -> list[int]:
        """The processes that differ from this one only in one dimension of the mesh."""
        here: tuple[Any, ...] = (*self.at[:dimension], slice(None), *self.at[dimension + 1 :])
        return [int(rank) for rank in self.ids[here]]


def _local_tensors(leaves: Sequence[Any]) -> list[Any]:
    """The local tensor of each gradient; None for a mesh without this process."""
    known: dict[int, Any] = {}
    for x in leaves:
        if _is_distributed(x) and id(x) not in known:
            known[id(x)] = _local(x) if dist.get_rank() in x.process_mesh.process_ids else None
    return [known.get(id(x), x) for x in leaves]


def _local(x: Tensor) -> Tensor:
    local = versions.local_value(x.detach())
    return local if versions.has_memory(local) else paddle.zeros(local.shape, local.dtype)  # for an empty shard


def _full(given: Any, new: Any) -> Any:
    if not _is_distributed(given):
        return new
    made = given.detach().clone()  # dtensor_from_local assumes shards of one size
    if new.size:
        versions.local_value(made).copy_(new, True)
    return made


def _counted(leaves: Sequence[Any], local: list[Any], kinds: dict[Any, list[int]], layouts: dict[Any, _Layout]) -> list[Any]:
    """The tensor that this process adds to each norm: none for an empty shard, and only the first of replicas."""
    values = list(local)
    for kind, places in kinds.items():
        layout = layouts[kind]
        if layout.sums:
            _sum(values, places, layout)
        for i in places:
            if not (layout.counts and values[i].size) and leaves[i].size:  # a gradient that is empty everywhere may be an error
                values[i] = None
    return values


def _sum(values: list[Any], places: list[int], layout: _Layout) -> None:
    """Replace addends by their sums over processes: one collective for each dtype, in at least float32."""
    batches: dict[str, list[int]] = {}
    for i in places:
        dtype = versions.dtype(values[i].dtype)
        batches.setdefault(WIDE.get(dtype, dtype), []).append(i)
    for dtype, batch in batches.items():
        flat = paddle.concat([values[i].astype(dtype).flatten() for i in batch])
        for dimension, placement in layout.sums:
            flat = _resharded(flat, layout.along(dimension), placement)
        pieces = paddle.split(flat, [values[i].size for i in batch])
        for i, piece in zip(batch, pieces, strict=True):
            values[i] = piece.reshape(values[i].shape)
