"""Paddle gradients on several processes: distributed tensors of any placements, process groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from gradclip.core.placed import Placed, Unlike, told_by

__all__ = ["PaddleDistributed"]

_ADDED = {"sum": dist.ReduceType.kRedSum, "avg": dist.ReduceType.kRedAvg}


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
        given = [told_by(leaf, param, paddle.Tensor) for leaf, param in zip(leaves, params, strict=True)]
        known = [i for i, param in enumerate(params) if versions.is_distributed(param)]
        kinds: dict[Any, list[int]] = {}  # few for any number of gradients
        layouts: dict[Any, _Layout] = {}
        for i, x in enumerate(given):
            if versions.is_distributed(x):
                mesh = x.process_mesh
                kind = (tuple(mesh.process_ids), tuple(mesh.shape), tuple(map(str, x.placements)))
                kinds.setdefault(kind, []).append(i)
                if kind not in layouts:
                    layouts[kind] = _Layout(mesh, x.placements)
        if not kinds and not any(versions.is_distributed(x) for x, told in zip(leaves, given, strict=True) if x is not told):
            return None
        local = _local_tensors(leaves)
        unlike = PaddleUnlike(leaves, params, local, known)
        refused = unlike.refused()
        if not kinds and refused is not None:
            raise refused
        ranks = frozenset(rank for ids, _, _ in kinds for rank in ids)
        odd = unlike.odd
        here = {kind: [i for i in places if local[i] is not None and not odd.get(i)] for kind, places in kinds.items()}
        copied = [kind for kind in kinds if layouts[kind].is_copied]
        replicated = frozenset(i for kind in copied for i in kinds[kind]).intersection(known)
        return Parts(
            local=local,
            groups=[PaddleProcesses(ranks)],
            places=[sorted(i for places in kinds.values() for i in places)],
            counted=lambda: _counted(leaves, local, here, layouts, odd),
            ranks=ranks,
            full=lambda i, new: _full(leaves[i], new),
            sums=[i for i, x in enumerate(leaves) if versions.is_distributed(x) and any(p.is_partial() for p in x.placements)],
            named=lambda i: frozenset(given[i].process_mesh.process_ids if versions.is_distributed(given[i]) else ()),
            odd=odd,
            replicated=replicated,
            first=replicated.intersection([i for kind in copied if layouts[kind].counts for i in kinds[kind]]),
            described=unlike.described,
            late=unlike.late,
            refused=refused,
        )

    def together(self, x: Tensor) -> Tensor:
        return dist.unshard_dtensor(x) if versions.is_distributed(x) else x

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


def _check(placements: Sequence[Any]) -> None:
    """Refuse placements without a norm."""
    if any(p.is_partial() and p.reduce_type() not in _ADDED.values() for p in placements):
        what = "The norm of a gradient of this placement is not defined."
        raise ArgumentError(what, f"placements={list(placements)}", "reshard it to Shard or Replicate.")


def _op(placement: Any) -> str:
    return next((op for op, kind in _ADDED.items() if kind == placement.reduce_type()), str(placement.reduce_type()))


def _word(placement: Any) -> str:
    if placement.is_partial():
        return f"P:{_op(placement)}"
    return f"S{placement.get_dim()}" if placement.is_shard() else "R"


class PaddleUnlike(Unlike):
    """Distributed tensors beside their parameters."""

    tensor = paddle.Tensor

    @property
    def rank(self) -> int:
        return int(dist.get_rank())

    def placed(self, x: Any) -> Placed | None:
        if not versions.is_distributed(x):
            return None
        mesh = x.process_mesh
        words = ("R" if length == 1 else _word(p) for p, length in zip(x.placements, mesh.shape, strict=True))
        return Placed(tuple(mesh.process_ids), tuple(mesh.shape), tuple(words))

    def check(self, x: Tensor) -> None:
        _check(x.placements)

    def is_alike(self, leaf: Any, param: Any) -> bool:
        return versions.is_distributed(leaf) and leaf.placements == param.placements and leaf.process_mesh == param.process_mesh

    def is_frozen(self, param: Tensor) -> bool:
        return bool(param.stop_gradient)

    def size(self, x: Tensor) -> int:
        return int(x.size)

    def dtype(self, x: Tensor) -> str:
        return versions.dtype(x.dtype)

    def add_up(
        self, pieces: Sequence[Any], sizes: Sequence[int], fill: float, dtype: str, on: Any, sums: Sequence[tuple[int, str]]
    ) -> list[Any]:
        flat = [
            paddle.full([n], fill, dtype) if x is None else x.detach().astype(dtype).flatten()
            for x, n in zip(pieces, sizes, strict=True)
        ]
        return list(paddle.split(_total(paddle.concat(flat), on.process_mesh, sums), list(sizes)))


class _Layout:
    """The place of gradients with one mesh and placements, from this process's view."""

    def __init__(self, mesh: Any, placements: Sequence[Any]) -> None:
        _check(placements)
        self.is_here = dist.get_rank() in mesh.process_ids
        self.mesh = mesh
        self.sums = [(d, _op(placement)) for d, placement in enumerate(placements) if placement.is_partial()]
        at = np.argwhere(np.array(mesh.process_ids).reshape(mesh.shape) == dist.get_rank())  # one row, or none
        #: whether this process counts its shard: the first of replicas does
        self.counts = self.is_here and all(p.is_shard() or i == 0 for p, i in zip(placements, at[0], strict=True))
        #: whether several processes have the same shard
        self.is_copied = any(p.is_replicated() and n > 1 for p, n in zip(placements, mesh.shape, strict=True))


def _local_tensors(leaves: Sequence[Any]) -> list[Any]:
    """The local tensor of each gradient; None for a mesh without this process."""
    known: dict[int, Any] = {}
    for x in leaves:
        if versions.is_distributed(x) and id(x) not in known:
            known[id(x)] = _local(x) if dist.get_rank() in x.process_mesh.process_ids else None
    return [known.get(id(x), x) for x in leaves]


def _local(x: Tensor) -> Tensor:
    local = versions.local_value(x.detach())
    return local if versions.has_memory(local) else paddle.zeros(local.shape, local.dtype)  # for an empty shard


def _full(given: Any, new: Any) -> Any:
    if not versions.is_distributed(given):
        return new
    made = given.detach().clone()  # dtensor_from_local assumes shards of one size
    if new.size:
        versions.local_value(made).copy_(new, True)
    return made


def _counted(
    leaves: Sequence[Any], local: list[Any], kinds: dict[Any, list[int]], layouts: dict[Any, _Layout], odd: Mapping[int, str]
) -> list[Any]:
    """The tensor that this process adds to each norm: none for an empty shard, and only the first of replicas."""
    values = list(local)
    for kind, places in kinds.items():
        layout = layouts[kind]
        if layout.sums:
            _sum(values, places, layout)
        for i in places:
            if not (layout.counts and values[i].size) and leaves[i].size:  # a gradient that is empty everywhere may be an error
                values[i] = None
    return [None if odd.get(i) else x for i, x in enumerate(values)]


def _sum(values: list[Any], places: list[int], layout: _Layout) -> None:
    """Replace addends by their sums over processes: one collective for each dtype, in at least float32."""
    batches: dict[str, list[int]] = {}
    for i in places:
        dtype = versions.dtype(values[i].dtype)
        batches.setdefault(WIDE.get(dtype, dtype), []).append(i)
    for dtype, batch in batches.items():
        flat = paddle.concat([values[i].astype(dtype).flatten() for i in batch])
        pieces = paddle.split(_total(flat, layout.mesh, layout.sums), [values[i].size for i in batch])
        for i, piece in zip(batch, pieces, strict=True):
            values[i] = piece.reshape(values[i].shape)


def _total(flat: Tensor, mesh: Any, sums: Sequence[tuple[int, str]]) -> Tensor:
    """Addends, summed over these dimensions of the mesh."""
    ids = np.array(mesh.process_ids).reshape(mesh.shape)
    for dimension, op in sums:  # the processes that differ from this one only in this dimension
        along = np.moveaxis(ids, dimension, -1).reshape(-1, mesh.shape[dimension])
        [ranks] = [row.tolist() for row in along if dist.get_rank() in row]
        flat = _resharded(flat, ranks, dist.Partial(_ADDED[op]))
    return flat
