"""PyTorch gradients on several processes: DTensors of any meshes and placements, process groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from gradclip.backends.torch import lanes, late, versions
from gradclip.backends.torch.placements import SPLIT, DTensor, Kind, Partial, Replicate, check, group_along, summed, sums_of
from gradclip.core.backend import Tensor
from gradclip.core.errors import ArgumentError, page
from gradclip.core.parts import Parts, Processes
from gradclip.core.placed import told_by

_HERE = torch.empty(0)


class TorchProcesses(Processes):
    """One process group, or the groups of several mesh dimensions, over which norms are combined in turn."""

    compares = True

    def __init__(self, groups: Sequence[dist.ProcessGroup], ranks: Sequence[int], kinds: Sequence[str]) -> None:
        self.rank = dist.get_rank()
        self.ranks = frozenset(ranks)
        self.groups = [group for group in groups if dist.get_world_size(group) > 1]
        self.kinds = kinds  # the device types of the tensors that the group sends
        self.steps, self.count = len(self.groups), math.prod(map(dist.get_world_size, self.groups))
        self.on_host = kinds[0] == "cpu" and lanes.is_on_host(_HERE)

    def combine(self, values: list[Any], join: Callable[[list[Any]], Any]) -> list[Any]:
        on_host = all(isinstance(value, float) for value in values)
        for group in self.groups:
            # gathered, not summed: a float64 norm does not overflow where its square would, and NaN keeps its process
            mine = torch.tensor(values, dtype=torch.float64) if on_host else _vector(values)
            if mine.device.type not in self.kinds:
                mine = mine.to(_device(self.kinds[0]))
            size = dist.get_world_size(group)
            all_ = mine.new_empty(size * len(mine))
            versions.all_gather(all_, mine, group)
            rows = all_.view(size, len(mine))  # -1 would not do for slices without any
            values = join(rows.tolist()) if on_host else _like(values, join(list(rows)))
        return values

    def collect(self, texts: list[str]) -> list[str]:
        for group in self.groups:
            found: list[Any] = [None] * dist.get_world_size(group)
            dist.all_gather_object(found, texts, group=group)
            texts = [text for part in found for text in part]
        return texts


def _vector(values: list[Any]) -> Tensor:
    """All elements of floats and tensors as one float64 vector, on the device of the tensors."""
    device = next(value.device for value in values if isinstance(value, torch.Tensor))
    pieces = []
    for value, equal in groupby(values, lambda x: None if isinstance(x, torch.Tensor) else x):
        if value is None:
            pieces += [x.to(torch.float64).reshape(-1) for x in equal]
        else:  # filled there: a copy from the host would wait for the device
            pieces.append(torch.full((len(list(equal)),), value, dtype=torch.float64, device=device))
    return torch.cat(pieces)


def _like(values: list[Any], joined: Any) -> list[Any]:
    """Elements in one vector, or in a list, as tensors of the shapes of others."""
    if isinstance(joined, list):
        return joined
    sizes = [value.numel() if isinstance(value, torch.Tensor) else 1 for value in values]
    return [piece.view(getattr(value, "shape", ())) for piece, value in zip(joined.split(sizes), values, strict=True)]


def group_of(given: object, name: str) -> Processes | None:
    """The group of an argument that is a process group or a mesh; this process must be in it."""
    if isinstance(given, DeviceMesh):
        if given.get_coordinate() is None:
            raise _not_a_member(f"{name}={given}")
        return TorchProcesses(given.get_all_groups(), given.mesh.flatten().tolist(), [given.device_type])
    if isinstance(given, dist.ProcessGroup):
        if dist.get_rank(given) < 0:
            raise _not_a_member(f"{name}={given}")
        kinds = [part.partition(":")[0] for part in dist.get_backend_config(given).split(",")]  # "cpu:gloo,cuda:nccl"
        return TorchProcesses([given], dist.get_process_group_ranks(given), kinds)
    return None


def _device(kind: str) -> torch.device:
    """This process's device of a kind."""
    return torch.device(kind if kind == "cpu" else torch.get_device_module(kind).current_device())


def _not_a_member(received: str) -> ArgumentError:
    hint = "only the processes of a group can combine over it; leave out gradients of other processes. See "
    hint += page("distributed.md#what-counts")
    return ArgumentError("This process does not belong to the group.", received, hint)


class _Layout:
    """The gradients of one mesh: the dimensions over which their norms combine, and which process counts replicas."""

    def __init__(self, mesh: DeviceMesh) -> None:
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            raise _not_a_member(f"a gradient on {mesh} and rank {dist.get_rank()}")
        self.mesh = mesh
        self.coordinate: tuple[int, ...] = tuple(coordinate)
        self.split: set[int] = set()  # the mesh dimensions over which norms combine

    def add(self, placements: Sequence[Any], *, is_whole: bool = False) -> None:
        """Take in gradients of these placements.

        Args:
            placements: theirs.
            is_whole: whether to combine along replicas too: another process may lack one, or have another placement.
        """
        check(placements)
        for dimension, placement in enumerate(placements):
            if (is_whole or isinstance(placement, SPLIT)) and self.mesh.size(dimension) > 1:
                self.split.add(dimension)

    def ranks(self) -> tuple[int, ...]:
        """The processes over which a norm is combined."""
        here = tuple(slice(None) if d in self.split else c for d, c in enumerate(self.coordinate))
        return tuple(sorted(self.mesh.mesh[here].flatten().tolist()))

    def processes(self, ranks: tuple[int, ...]) -> TorchProcesses:
        groups = [group_along(self.mesh, dimension) for dimension in sorted(self.split)]
        if len(groups) > 1 and len(ranks) == dist.get_world_size():
            groups = [dist.group.WORLD]  # one group of all: no group covers several dimensions of a mesh
        return TorchProcesses(groups, ranks, [self.mesh.device_type])

    def counts(self, placements: Sequence[Any]) -> bool:
        """Whether this process counts its shard: the first of replicas does."""
        whole = (d for d in self.split if isinstance(placements[d], (Replicate, Partial)))
        return all(self.coordinate[d] == 0 for d in whole)


def parts(leaves: Sequence[Any], params: Sequence[Any]) -> Parts | None:
    """This process's shards of gradients, if some of them are DTensors.

    The parameters alone decide over which processes norms combine: every process knows them, and may lack a gradient. Without
    its parameter a gradient tells it itself.
    """
    given = [told_by(leaf, param, torch.Tensor) for leaf, param in zip(leaves, params, strict=True)]
    known = [i for i, param in enumerate(params) if isinstance(param, DTensor)]
    kinds: dict[Kind, list[int]] = {}  # few for any number of gradients
    for i, x in enumerate(given):
        if isinstance(x, DTensor):
            kinds.setdefault((x.device_mesh, x.placements), []).append(i)
    local = _local(leaves)
    unlike = late.TorchUnlike(leaves, params, local, known)
    refused = unlike.refused()
    if not kinds and refused is not None:
        raise refused
    if not kinds:
        return None
    layouts: dict[DeviceMesh, _Layout] = {}
    whole = {(params[i].device_mesh, params[i].placements) for i in known}
    for mesh, placements in kinds:
        layouts.setdefault(mesh, _Layout(mesh)).add(placements, is_whole=(mesh, placements) in whole)
    groups, places = _groups(layouts, kinds)
    copied = [kind for kind in kinds if _is_replicated(kind)]  # by kind: there are few
    replicated = frozenset(i for kind in copied for i in kinds[kind] if isinstance(params[i], DTensor))
    odd = unlike.odd
    here = {kind: [i for i in of_kind if leaves[i] is not None and not odd.get(i)] for kind, of_kind in kinds.items()}
    return Parts(
        local=local,
        groups=groups,
        places=places,
        counted=lambda: _counted(leaves, local, here, layouts, odd),
        ranks=frozenset(rank for mesh in layouts for rank in mesh.mesh.flatten().tolist()),
        full=lambda i, new: _full(leaves[i], new),
        sums=[i for i, x in enumerate(leaves) if isinstance(x, DTensor) and sums_of((x.device_mesh, x.placements))],
        across=_across(given),
        named=lambda i: frozenset(given[i].device_mesh.mesh.flatten().tolist() if isinstance(given[i], DTensor) else ()),
        odd=odd,
        replicated=replicated,
        first=replicated.intersection([i for kind in copied if layouts[kind[0]].counts(kind[1]) for i in kinds[kind]]),
        described=unlike.described,
        late=unlike.late,
        refused=refused,
    )


def _is_replicated(kind: Kind) -> bool:
    return any(type(placement) is Replicate and kind[0].size(d) > 1 for d, placement in enumerate(kind[1]))


def _across(given: Sequence[Any]) -> Callable[[int, Sequence[int]], TorchProcesses | None]:
    known: dict[tuple[int, ...], TorchProcesses] = {}

    def across(i: int, axes: Sequence[int]) -> TorchProcesses | None:
        if not isinstance(given[i], DTensor):
            return None
        layout = _Layout(given[i].device_mesh)
        layout.add([x if isinstance(x, SPLIT) and x.dim in axes else Replicate() for x in given[i].placements])
        ranks = layout.ranks()
        return known.setdefault(ranks, layout.processes(ranks)) if layout.split else None

    return across


def _groups(layouts: dict[DeviceMesh, _Layout], kinds: dict[Kind, list[int]]) -> tuple[list[TorchProcesses], list[list[int]]]:
    """Each set of processes that combines norms, once, and the places of its gradients."""
    groups: dict[tuple[int, ...], TorchProcesses] = {}
    places: dict[tuple[int, ...], list[int]] = {}
    for mesh, layout in layouts.items():
        ranks = layout.ranks()
        candidate, known = layout.processes(ranks), groups.get(ranks)
        if not candidate.groups:
            continue
        if known is None or len(candidate.groups) < len(known.groups):
            groups[ranks] = candidate
        places.setdefault(ranks, []).extend(i for kind, of_kind in kinds.items() if kind[0] == mesh for i in of_kind)
    return list(groups.values()), [sorted(places[ranks]) for ranks in groups]


def _local(leaves: Sequence[Any]) -> list[Any]:
    """The local tensor of each gradient: the same object for a gradient that is listed twice."""
    known: dict[int, Tensor] = {}
    with torch.no_grad():
        for x in leaves:
            if isinstance(x, DTensor) and id(x) not in known:
                local = x.to_local()
                wait = getattr(local, "trigger_wait", None)  # from a collective that is still running
                known[id(x)] = local if wait is None else wait()
    return [known.get(id(x), x) for x in leaves]


def _full(given: Any, new: Tensor) -> Tensor:
    if not isinstance(given, DTensor):
        return new
    return DTensor.from_local(
        new, given.device_mesh, given.placements, run_check=False, shape=given.shape, stride=given.stride()
    )


def replicated(norm: Tensor, tensors: Sequence[Any]) -> Tensor:
    """The norm as a replicated DTensor if all gradients are DTensors of one mesh, as torch's own functions return it."""
    meshes = {x.device_mesh if isinstance(x, DTensor) else None for x in tensors}
    mesh = meshes.pop()
    if meshes or mesh is None or isinstance(norm, DTensor):
        return norm
    made: Tensor = DTensor.from_local(norm, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return made


def _counted(
    leaves: Sequence[Any],
    local: list[Any],
    kinds: dict[Kind, list[int]],
    layouts: dict[DeviceMesh, _Layout],
    odd: Mapping[int, str],
) -> list[Any]:
    """The tensor that this process adds to each norm: none for an empty shard, and only the first of replicas."""
    values = summed(local, kinds)
    for kind, places in kinds.items():
        counts = layouts[kind[0]].counts(kind[1])
        for i in places:
            if not (counts and values[i].numel()) and leaves[i].numel():  # a gradient that is empty everywhere may be an error
                values[i] = None
    return [None if odd.get(i) else x for i, x in enumerate(values)]


versions.run_between_graphs()  # it is imported late
