"""One rank of torch: its tensors of a vector for several ranks, as DTensors or plain shards, and what a clip makes of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

try:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, placement_types
except ImportError:  # before torch 2.5
    from torch.distributed._tensor import DTensor, Partial, Replicate, Shard, placement_types

from gradclip.conformance.array import Array
from gradclip.conformance.compare import Outcome
from gradclip.conformance.load import Vector
from gradclip.conformance.ranks.shards import local
from gradclip.conformance.target import load_arrays

__all__ = ["Clip", "World", "clip_of", "preload", "versions"]

#: the placement of an axis that two dimensions of a mesh shard; without the name no program has it
_STRIDED: Any = getattr(placement_types, "_StridedShard", type("StridedShard", (), {}))

arrays = load_arrays("torch")
versions = arrays.versions
_AXES = "abcdefgh"  # the names of a mesh's axes
_LACKED = Array((0.0,) * 4, (2, 2), "float32")  # the parameter of a gradient that all ranks lack
_PATIENCE = timedelta(hours=1)  # the command has its own time limit


def preload() -> None:
    """Import what torch imports only with the first norm of DTensors; it starts no thread, so a process may fork after it."""
    torch.compiler.reset()


@dataclass(frozen=True)
class Clip:
    """A function that clips parameters in place, and how to call it."""

    function: Callable[..., Any]
    optional: frozenset[str]  #: which of "norm_type", "shards" and "group" it takes

    def __call__(self, parameters: Sequence[Any], arguments: dict[str, Any], groups: Mapping[int, Any]) -> Any:
        """Call it; ``groups`` has the process group of each plain shard, by the parameter's id."""
        given: dict[str, Any] = {}
        if "shards" in self.optional:
            given["shards"] = lambda name, p: groups.get(id(p))
        elif groups:
            given["group"] = next(iter(groups.values()))
        given |= {"norm_type": arguments["norm_type"]} if "norm_type" in arguments else {}
        return self.function(list(parameters), arguments["max_norm"], **given)


def clip_of(function: Callable[..., Any]) -> Clip:
    """A function ``clip(parameters, max_norm)``, with the optional arguments that its signature names."""
    named = inspect.signature(function).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in named.values())
    optional = {name for name in ("norm_type", "shards", "group") if takes_any or name in named}
    return Clip(function, frozenset(optional | ({"group"} if "shards" in optional else set())))


@dataclass
class World:
    """The group of all ranks on gloo, and its meshes."""

    rank: int
    size: int
    folder: Path  #: where the ranks meet
    _meshes: dict[tuple[tuple[int, ...], bool], DeviceMesh] = field(default_factory=dict)

    def renew(self, number: int) -> None:
        """Make the group of this number, and drop the earlier one: a failed call may have left a collective in it."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self._meshes.clear()
        store = dist.FileStore(str(self.folder / str(number)), self.size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size, timeout=_PATIENCE)

    def warm_up(self) -> None:
        """Load what the first norm of DTensors loads: that takes seconds, and no vector's time."""
        mesh = init_device_mesh("cpu", (self.size,))
        p = torch.nn.Parameter(DTensor.from_local(torch.ones(1), mesh, [Shard(0)], run_check=False))
        p.grad = torch.ones_like(p)
        n = torch.nn.utils.clip_grad_norm_([p], 1.0)
        assert isinstance(n, DTensor)
        n.full_tensor()

    def mesh(self, vector: Vector, sharding: dict[str, Any], *, of_gradient: bool = False) -> DeviceMesh:
        """The mesh of a parameter or its gradient; of two equal ones, each has another, as DTensor's caches may give it.

        All ranks ask for the same meshes in the same order, because making one is a collective.
        """
        lengths, are_two = tuple(vector.json["mesh"]), any("again" in one for one in vector.json["shardings"])
        again = ("again" in sharding) != (of_gradient and are_two)
        names = tuple(_AXES[: len(lengths)])
        if (lengths, again) not in self._meshes:
            self._meshes[lengths, again] = init_device_mesh("cpu", lengths, mesh_dim_names=names)
        made = self._meshes[lengths, again]
        return made[tuple(names[axis] for axis in sharding["axes"])] if "axes" in sharding else made

    def run(self, vector: Vector, clip: Clip) -> tuple[list[Array | None], Outcome, Outcome]:
        """What this rank has before and after the clip, and what it should have."""
        gradients, shardings = vector.gradients, vector.json["shardings"]
        parameters = [self._parameter(vector, g, sharding) for g, sharding in zip(gradients, shardings, strict=True)]
        groups = {
            id(p): self._group(vector, sharding)
            for p, sharding in zip(parameters, shardings, strict=True)
            if sharding["how"] == "group"
        }
        before = [None if p.grad is None else _array(_local_of(p.grad)) for p in parameters]
        n = clip(parameters, vector.arguments, groups)
        (outcome,) = vector.expected
        got, want = [], []
        for p, clipped, sharding in zip(parameters, outcome.gradients, shardings, strict=True):
            got.append(None if p.grad is None else _array(_local_of(p.grad)))
            is_here = clipped is not None and self.rank not in sharding.get("missing", ())
            want.append(self._local(vector, clipped, _placements(p.grad, vector, sharding)) if is_here else None)
        return before, Outcome(tuple(got), _norm(n)), Outcome(tuple(want), None if n is None else outcome.norm)

    def _local(self, vector: Vector, gathered: Any, placements: Sequence[str]) -> Array:
        return local(gathered, vector.json["mesh"], self.rank, placements)

    def _parameter(self, vector: Vector, gradient: Any, sharding: dict[str, Any]) -> torch.nn.Parameter:
        gathered = gradient or _LACKED
        whole = ["R" if kind == "P" else kind for kind in sharding["placements"]]
        p = torch.nn.Parameter(torch.zeros_like(self._tensor(vector, gathered, sharding, whole)))
        if gradient is not None and self.rank not in sharding.get("missing", ()):
            p.grad = self._tensor(vector, gathered, sharding, sharding["placements"], of_gradient=True)
        return p

    def _tensor(
        self, vector: Vector, gathered: Array, sharding: dict[str, Any], placements: Sequence[str], *, of_gradient: bool = False
    ) -> torch.Tensor:
        here = self._local(vector, gathered, placements)
        made = arrays.make(here.values, here.shape, here.dtype)
        if sharding["how"] != "type":
            return made
        kinds = [_kind(placements, axis, vector.json["mesh"]) for axis in sharding.get("axes", range(len(placements)))]
        size, stride = torch.Size(gathered.shape), torch.empty(gathered.shape, device="meta").stride()
        mesh = self.mesh(vector, sharding, of_gradient=of_gradient)
        return DTensor.from_local(made, mesh, kinds, run_check=False, shape=size, stride=stride)

    def _group(self, vector: Vector, sharding: dict[str, Any]) -> Any:
        """The process group along the one axis that divides a plain tensor."""
        (axis,) = (axis for axis, kind in enumerate(sharding["placements"]) if kind[0] in "SZ")
        return self.mesh(vector, sharding).get_group(axis)


def _local_of(x: torch.Tensor) -> torch.Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


def _kind(placements: Sequence[str], axis: int, mesh: Sequence[int]) -> Any:
    kind = placements[axis]
    if kind[0] != "Z":
        return {"R": Replicate(), "P": Partial()}.get(kind) or Shard(int(kind[1:]))
    later = zip(mesh[axis + 1 :], placements[axis + 1 :], strict=True)
    before = math.prod(ranks for ranks, other in later if other[1:] == kind[1:])
    return _STRIDED(int(kind[1:]), split_factor=before)


def _placements(gradient: Any, vector: Vector, sharding: dict[str, Any]) -> list[str]:
    """The placements of a clipped gradient: a clip may sum what is still to be summed."""
    if not isinstance(gradient, DTensor):
        return list(sharding["placements"])
    found = ["R"] * len(vector.json["mesh"])
    for axis, kind in zip(sharding.get("axes", range(len(found))), gradient.placements, strict=True):
        found[axis] = _letter(kind)
    return found


def _letter(kind: Any) -> str:
    if isinstance(kind, (_STRIDED, Shard)):  # in older versions the first is also the second
        return f"{'Z' if isinstance(kind, _STRIDED) else 'S'}{kind.dim}"
    return "P" if kind.is_partial() else "R"


def _norm(found: Any) -> Any:
    """What a clip returned: a number, or a tensor's values; of a DTensor those of the whole."""
    if not isinstance(found, torch.Tensor):
        return found
    return _array(found.full_tensor() if isinstance(found, DTensor) else found)


def _array(tensor: torch.Tensor) -> Array:
    values, shape, dtype = arrays.read(tensor)
    return Array(tuple(values), shape, dtype)
