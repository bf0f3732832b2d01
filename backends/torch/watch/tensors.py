"""The primitives of ``gradclip doctor`` on PyTorch's tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch

from gradclip.backends.torch import versions
from gradclip.backends.torch.slot.names import modules
from gradclip.doctor.events import Ids
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.replicas import Mark
from gradclip.doctor.seen import total
from gradclip.doctor.watch import Watch
from gradclip.natives.model import clips_of
from gradclip.natives.torch import NATIVES

__all__ = ["TorchWatch", "leaves", "made_by", "marked"]

_NAN = torch.tensor(math.nan, dtype=torch.float64)
_PART = 65_536  #: elements that are made float64 at once: they stay in the cache


class TorchWatch(Watch):
    """The watch on PyTorch's tensors."""

    framework = "torch"
    clips = clips_of(NATIVES)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.sharded: list[Any] = []  #: the classes of FSDP that are watched

    def grad(self, param: Any) -> Any:
        return param.grad if param.is_leaf else None

    def version(self, grad: Any) -> int:
        return versions.writes(grad)

    def is_sparse(self, grad: Any) -> bool:
        return bool(getattr(grad, "is_sparse", False))

    def is_param(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.is_leaf and x.requires_grad

    def reached(self, roots: Any) -> Ids | None:
        made = made_by(roots)
        return None if made is None else frozenset(map(id, made))

    def is_traced(self) -> bool:
        return bool(torch.compiler.is_compiling())

    @torch.no_grad()
    def norms(self, tensors: Sequence[Any], order: float, *, full: bool = False) -> list[float]:
        parts = [_parts(x.detach(), order, full) for x in tensors]
        found = iter(_numbers([one for some in parts for one in some]))
        return [total([next(found) for _ in some], order) for some in parts]

    @torch.no_grad()
    def copies(self, tensors: Sequence[Any], most: int) -> list[Any]:
        if sum(x.numel() for x in tensors) > most or any(x.is_sparse or hasattr(x, "full_tensor") for x in tensors):
            return []
        return [x.detach().clone() for x in tensors]

    def native(self, limit: Any, order: float) -> Any:
        return lambda copies: torch.nn.utils.clip_grad_norm_(leaves(copies), limit, order)

    def name(self, params: Ids) -> None:
        names = self.recorder.names
        if params <= names.keys():
            return
        alive = modules()
        inner = {id(child) for module in alive for child in module.children()}
        for module in alive:
            if id(module) not in inner:
                for name, x in module.named_parameters():
                    names.setdefault(id(x), name)
        for key in params - names.keys():
            shape = tuple(self.known[key].shape) if key in self.known else ()
            names[key] = f"a parameter of shape {shape}"


def _norm(x: torch.Tensor, order: float, full: bool) -> float:
    return total(_numbers(_parts(x, order, full)), order)


def _parts(x: torch.Tensor, order: float, full: bool) -> list[torch.Tensor]:
    """The norms of the parts of a tensor."""
    if hasattr(x, "full_tensor"):
        x = x.full_tensor() if full else x.to_local()
    if x.is_sparse:
        x = x.coalesce().values()
    if x.is_meta or versions.is_fake(x) or versions.is_wrapped(x):
        return [_NAN]
    if not x.numel():
        return []
    wide = torch.complex128 if x.is_complex() else torch.float64
    parts = [x] if x.numel() <= _PART else x.reshape(-1).split(_PART)
    return [torch.linalg.vector_norm(part.to(wide), order) for part in parts]


def _numbers(norms: list[torch.Tensor]) -> list[float]:
    """Their values, by one transfer from each device."""
    if len({x.device for x in norms}) == 1:
        return list(torch.stack(norms).tolist())
    return [float(x) for x in norms]


@torch.no_grad()
def marked(x: torch.Tensor) -> Mark | None:
    """What tells a tensor from another one; None for a shard, and for one without numbers."""
    x = x.detach()
    if hasattr(x, "to_local"):
        if not all(placement.is_replicate() for placement in x.placements):
            return None
        x = x.to_local()
    if x.is_meta or x.layout != torch.strided or versions.is_fake(x) or versions.is_wrapped(x):
        return None
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    other = sum(float(part.double() @ _weights(x.device)[: part.numel()]) for part in x.reshape(-1).split(_PART))
    return _norm(x, 2.0, full=False), other


@cache
def _weights(device: torch.device) -> torch.Tensor:
    """Those of no two neighbours are equal."""
    return torch.arange(_PART, dtype=torch.float64, device=device).cos()


def made_by(roots: Any) -> list[Any] | None:
    """The parameters whose gradients a backward pass from these tensors makes; None for an iterator."""
    if isinstance(roots, Iterator):
        return None
    edges = [roots] if isinstance(roots, torch.Tensor) or hasattr(roots, "node") else roots
    waiting = [getattr(x, "node", None) or x.grad_fn for x in edges if hasattr(x, "node") or x.grad_fn is not None]
    done, found = set(waiting), []
    while waiting:
        node = waiting.pop()
        found.append(getattr(node, "variable", None))
        after = {x for x, _ in node.next_functions if x is not None} - done
        done |= after
        waiting += after
    return [x for x in found if x is not None]


def leaves(copies: list[Any]) -> list[Any]:
    """Tensors that hold these gradients."""
    leaves = [torch.empty_like(x, requires_grad=True) for x in copies]
    for x, grad in zip(leaves, copies, strict=True):
        x.grad = grad
    return leaves
