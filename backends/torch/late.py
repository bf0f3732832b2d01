"""PyTorch gradients that are placed otherwise than their parameters, or that some processes lack.

Which processes have them is known only after the processes have told each other: see :mod:`gradclip.core.sharding.agreement`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from gradclip.backends.torch.placements import SPLIT, DTensor, Kind, Replicate, check, summed, text_of, total
from gradclip.core.backend import Tensor
from gradclip.core.errors import ArgumentError, page
from gradclip.core.parts import Found, Place

__all__ = ["described", "odd", "refused", "told_by", "values"]

_NEUTRAL = {"sum": 0.0, "avg": 0.0, "max": -math.inf, "min": math.inf}


def told_by(leaf: Any, param: Any) -> Any:
    """What tells the processes that share a gradient: its parameter, or the gradient itself where nobody knows a parameter."""
    return param if isinstance(param, (DTensor, torch.Tensor)) else leaf


def refused(leaves: Sequence[Any], params: Sequence[Any]) -> Exception | None:
    """Why other processes could not know how a gradient is placed; None if they can."""
    for leaf, param in zip(leaves, params, strict=True):
        if not isinstance(leaf, DTensor) or not isinstance(param, torch.Tensor):
            continue
        hint = f"give both the same mesh and placements. See {page('distributed.md#what-counts')}"
        if not isinstance(param, DTensor):
            what = "A gradient is a DTensor, and its parameter is none: a process without the gradient cannot know its mesh."
            return ArgumentError(what, f"placements={leaf.placements}", hint)
        if set(leaf.device_mesh.mesh.flatten().tolist()) != set(param.device_mesh.mesh.flatten().tolist()):
            what = "A gradient and its parameter are on different processes."
            return ArgumentError(what, f"{leaf.device_mesh} and {param.device_mesh}", hint)
        try:
            check(leaf.placements)
        except ArgumentError as error:
            return error
    return None


def odd(leaves: Sequence[Any], params: Sequence[Any], known: Sequence[int]) -> dict[int, str]:
    """What is unlike the parameters: "" for a gradient that is missing, else its placements."""
    found: dict[int, str] = {}
    for i in known:
        leaf, param = leaves[i], params[i]
        if leaf is None:
            found |= {i: ""} if param.requires_grad else {}  # a frozen weight has no gradient on any process
        elif type(leaf) is type(param) and leaf.placements == param.placements and leaf.device_mesh == param.device_mesh:
            pass
        elif (text := _text(leaf, param)) != text_of(param.device_mesh, param.placements):
            found[i] = text
    return found


def described(leaf: Any, param: Any, local: Any) -> tuple[str, int, str] | None:
    """The placements of a gradient, its number of elements here, and its dtype."""
    if leaf is None or not isinstance(param, DTensor):
        return None
    return _text(leaf, param), local.numel(), str(local.dtype).removeprefix("torch.")


def _kind(leaf: Any, param: Any) -> Kind:
    """The mesh and placements of a gradient; a plain tensor is the same on all processes of its parameter."""
    if isinstance(leaf, DTensor):
        return leaf.device_mesh, leaf.placements
    return param.device_mesh, (Replicate(),) * param.device_mesh.ndim


def _text(leaf: Any, param: Any) -> str:
    mesh, placements = _kind(leaf, param)
    return text_of(mesh, placements) + ("" if mesh == param.device_mesh else f" on {_named(mesh)}")


def _named(mesh: DeviceMesh) -> str:
    return str(mesh.mesh.tolist()).replace(" ", "")


def values(
    leaves: Sequence[Any], params: Sequence[Any], local: list[Any], chosen: Collection[int], found: Found | None
) -> tuple[list[Any], bool]:
    """The tensors that this process adds to the norm, and whether it has each of them whole."""
    if found is None:  # all processes have the same gradients, placed alike
        known = [i for i in sorted(chosen) if isinstance(params[i], DTensor)]
        return _of_all(leaves, params, local, [i for i, text in odd(leaves, params, known).items() if text])
    places = {i: place for i in sorted(chosen) if (place := _place(params[i], found.get(i, {}))) is not None}
    sums = _sums(params, local, {i: place for i, place in places.items() if "P" in place.kinds}, found)
    made: list[Any] = [None] * len(leaves)
    for i, place in places.items():
        x = sums.get(i, local[i])
        made[i] = x if place.counts and x is not None and x.numel() else None
    return made, False


def _of_all(leaves: Sequence[Any], params: Sequence[Any], local: list[Any], places: list[int]) -> tuple[list[Any], bool]:
    kinds: dict[Kind, list[int]] = {}
    for i in places:
        kinds.setdefault(_kind(leaves[i], params[i]), []).append(i)
    all_ = summed(local, kinds)
    is_whole = not any(isinstance(x, SPLIT) and mesh.size(d) > 1 for mesh, ps in kinds for d, x in enumerate(ps))
    made: list[Any] = [None] * len(leaves)
    for (mesh, placements), of_kind in kinds.items():
        at = mesh.get_coordinate()
        assert at is not None
        counts = is_whole or all(i == 0 or isinstance(x, SPLIT) for i, x in zip(at, placements, strict=True))
        for i in of_kind if counts else ():
            made[i] = all_[i] if all_[i].numel() else None
    return made, is_whole


def _place(param: Any, of_ranks: dict[int, tuple[str, int, str]]) -> Place | None:
    """Where a gradient is; None if the norms that have been exchanged count it, or if it is nowhere."""
    if not isinstance(param, DTensor):
        return None
    mesh, here = param.device_mesh, dist.get_rank()
    ranks = mesh.mesh.flatten().tolist()
    having = [rank for rank in ranks if rank in of_ranks]
    if not having:
        return None
    text, regular = of_ranks[having[0]][0], text_of(mesh, param.placements)
    if " on " in text:
        what = "A gradient is on another mesh than its parameter, and some processes lack it."
        raise ArgumentError(what, text, f"give both the same mesh. See {page('distributed.md#what-counts')}")
    kinds = "".join(word[0] for word in text.split())
    place = Place(ranks, tuple(mesh.shape), kinds, here, having)
    if text != regular:
        return place
    if len(having) == len(ranks):
        return None
    at = mesh.get_coordinate()
    assert at is not None
    is_first = all(i == 0 for i, kind in zip(at, kinds, strict=True) if kind == "R")
    return None if is_first else place  # the first of the replicas has counted its own


def _sums(params: Sequence[Any], local: list[Any], places: dict[int, Place], found: Found) -> dict[int, Tensor]:
    """Addends summed over processes; a process without its own adds what changes nothing."""
    batches: dict[tuple[Any, ...], list[int]] = {}
    for i, place in places.items():
        if place.addends:
            words = enumerate(found[i][place.addends[0]][0].split())
            sums = tuple((d, word.partition(":")[2]) for d, word in words if word[0] == "P")
            dtype = torch.float32
            for _, _, name in found[i].values():
                dtype = torch.promote_types(dtype, getattr(torch, name))
            batches.setdefault((params[i].device_mesh, sums, dtype), []).append(i)
    made: dict[int, Tensor] = {}
    for (mesh, sums, dtype), of_batch in batches.items():
        sizes = [found[i][places[i].addends[0]][1] for i in of_batch]
        device = next((x.device for x in local if x is not None), torch.device(mesh.device_type))
        pieces = [
            torch.full((n,), _NEUTRAL[sums[0][1]], dtype=dtype, device=device)
            if local[i] is None
            else local[i].detach().to(dtype).reshape(-1)
            for i, n in zip(of_batch, sizes, strict=True)
        ]
        made |= dict(zip(of_batch, total(torch.cat(pieces), mesh, sums).split(sizes), strict=True))
    return made
