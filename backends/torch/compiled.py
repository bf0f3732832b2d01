"""The lane of ``torch.compile``: the compiled loops as operators, if Inductor's loops are slower or take long to compile.

Inductor makes loops for each gradient, which takes a minute for some hundred, and always writes the gradients. The compiled
loops take all gradients of the host at once, as fast as in eager mode, and only read if nothing is clipped.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradclip import norms
from gradclip.backend import Backend, Tensor
from gradclip.backends.host import kernels
from gradclip.backends.torch import versions
from gradclip.backends.torch.lanes import TorchHostLane, is_dense
from gradclip.dtypes import normal_factors, promote
from gradclip.lane import Into, Lane
from gradclip.tracing import constant

__all__ = ["CompiledLane", "are_clear", "is_transformed", "takes"]

_NARROW = {torch.float32, torch.float16, torch.bfloat16}  # dtypes whose squares neither overflow nor vanish in float64
_PLAIN = {torch.Tensor, torch.nn.Parameter}
#: numbers of gradients and elements below which Inductor's loops cost less than a call; half-precision norms cost more
_MANY, _LARGE, _LARGE_HALVES = 32, 1 << 18, 1 << 15
#: the same for bounds, which gain less from a call
_LARGE_BOUNDS, _LARGE_BOUNDS_OF_HALVES = 1 << 25, 1 << 24

is_transformed = constant(versions.is_transformed)


def takes(tensors: Sequence[Tensor], *, measures: bool = False) -> bool:
    """Whether the operators accept these gradients: large, of one dtype, in the host's memory, without derivatives.

    ``measures``: whether it is for a norm, where half precision pays from fewer elements on.
    """
    if not versions.is_compiling() or versions.is_exporting() or not kernels.KINDS or not tensors:
        return False
    dtype = tensors[0].dtype
    if dtype not in _NARROW or is_transformed():
        return False
    large = _LARGE_HALVES if measures and dtype != torch.float32 else _LARGE
    if len(tensors) < _MANY and sum(x.numel() for x in tensors) < large:
        return False
    for x in tensors:
        # torch 2.6 cannot compile a look-up in a set of types
        is_plain = type(x) is torch.Tensor or type(x) is torch.nn.Parameter
        is_known = is_plain or not torch.compiler.is_dynamo_compiling()
        if not is_known or x.dtype != dtype or x.device.type != "cpu":
            return False
        if not is_dense(x) or (x.requires_grad and torch.is_grad_enabled()):
            return False
    return True


def _takes_bounds(tensors: Sequence[Tensor]) -> bool:
    """The same for bounds. A single element may be a negated view, which an operator cannot write."""
    if not takes(tensors) or any(x.numel() == 1 for x in tensors):
        return False
    large = _LARGE_BOUNDS if tensors[0].dtype == torch.float32 else _LARGE_BOUNDS_OF_HALVES
    return bool(sum(x.numel() for x in tensors) >= large)


def are_clear(tensors: Sequence[Tensor]) -> str:
    """The dtype of gradients that are contiguous, distinct and of one dtype, as far as TorchDynamo knows; else ""."""
    if len(set(tensors)) < len(tensors) or any(x.requires_grad or not x.is_contiguous() for x in tensors):
        return ""
    return _common([type(x) for x in tensors], [x.dtype for x in tensors], [x.layout for x in tensors])


@constant
def _common(types: list[type], dtypes: list[torch.dtype], layouts: list[torch.layout]) -> str:
    if versions.is_exporting() or versions.is_transformed() or not _NARROW.issuperset(dtypes) or len(set(dtypes)) > 1:
        return ""
    return str(dtypes[0]).removeprefix("torch.") if set(types) <= _PLAIN and set(layouts) == {torch.strided} else ""


class CompiledLane(Lane):
    """Dense tensors while TorchDynamo or AOTAutograd traces them."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2:
            return super().total(tensors, order, wide)
        dtype = promote([*map(self.backend.dtype, tensors), *([wide] if wide else [])])
        dtype = "float64" if dtype == "float64" else "float32"
        if takes(tensors, measures=True):
            each: Tensor = torch.ops.gradclip.norms(tensors)
            return self.backend.cast(torch.sqrt(torch.sum(each * each)), dtype)
        return self.backend.cast(norms.total(self.backend, [self._euclidean(x) for x in tensors], order), dtype)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2:
            return super().each(tensors, order)
        if takes(tensors, measures=True):
            return [n.to(torch.float32) for n in torch.ops.gradclip.norms(tensors)]
        return [self.backend.cast(self._euclidean(x), norms.wide_real(self.backend, x)) for x in tensors]

    def _euclidean(self, x: Tensor) -> Tensor:
        """The norm in the widest dtype at no cost: compiled for the host, the cast is part of the loop."""
        if x.is_complex() or x.dtype == torch.float64:
            return norms.norm(self.backend, x, 2.0)
        return torch.linalg.vector_norm(x, dtype=torch.float64 if x.device.type == "cpu" else torch.float32)

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if into == "place" and isinstance(factors, list) and len(factors) > 1:
            for x, c in zip(tensors, factors, strict=True):
                self.scale([x], c, into)
            return list(tensors)
        is_scalar = isinstance(factors, torch.Tensor) and factors.dim() == 0 and factors.device.type == "cpu"
        if into != "place" or not is_scalar or not takes(tensors):
            return super().scale(tensors, factors, into)
        # a single element may be a negated view, which an operator cannot write
        large, single = [x for x in tensors if x.numel() != 1], [x for x in tensors if x.numel() == 1]
        if large:
            torch.ops.gradclip.scale_(large, factors)
        if single:
            super().scale(single, factors, into)
        return list(tensors)

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        are_numbers = isinstance(lower, float) and isinstance(upper, float)
        if into != "place" or not are_numbers or not _takes_bounds(tensors):
            return super().clamp(tensors, lower, upper, into)
        torch.ops.gradclip.clamp_(tensors, lower, max(lower, upper))
        return list(tensors)


# ---- the operators, when the compiled program runs -----------------------------------------------------------------------


def _lane_of(held: list[Tensor]) -> TorchHostLane | None:
    """The lane of the host's memory for tensors of one dtype; None if the loops cannot take them, or a mode must see them."""
    kind = str(held[0].dtype).removeprefix("torch.")
    if kind not in kernels.KINDS or versions.has_modes() or not all(x.is_cpu and is_dense(x) for x in held):
        return None
    backend: Any = Backend()  # the loops do not use it
    return TorchHostLane(backend, kind, [kind])


def _norms(gradients: list[Tensor]) -> Tensor:
    held = [x for x in gradients if x.numel()]
    lane = _lane_of(held) if held else None
    found: Iterator[float] = iter(
        [float(torch.linalg.vector_norm(x, dtype=torch.float64)) for x in held] if lane is None else lane.each(held, 2.0)
    )
    return torch.tensor([next(found) if x.numel() else 0.0 for x in gradients], dtype=torch.float64, device="cpu")


def _scale_(gradients: list[Tensor], coefficient: Tensor) -> None:
    factors = normal_factors(float(coefficient))
    held = [x for x in gradients if x.numel()]
    if factors[0] >= 1 or not held:
        return
    lane = _lane_of(held)
    if lane is None or len(factors) > 1:
        for x in held:
            x.copy_(functools.reduce(operator.mul, factors, x.float()))
    else:
        lane.scale(held, factors[0], "place")


def _clamp_(gradients: list[Tensor], lower: float, upper: float) -> None:
    held = [x for x in gradients if x.numel()]
    lane = _lane_of(held) if held else None
    if lane is not None:
        lane.clamp(held, lower, upper, "place")
        return
    for x in held:
        x.copy_(x.float().clamp(lower, upper))


if not hasattr(torch.ops.gradclip, "norms"):  # a process may import this twice
    LIBRARY = torch.library.Library("gradclip", "FRAGMENT")
    LIBRARY.define("norms(Tensor[] gradients) -> Tensor")
    LIBRARY.define("scale_(Tensor(a!)[] gradients, Tensor coefficient) -> ()")
    LIBRARY.define("clamp_(Tensor(a!)[] gradients, float lower, float upper) -> ()")
    LIBRARY.impl("norms", _norms, "CPU")
    LIBRARY.impl("scale_", _scale_, "CPU")
    LIBRARY.impl("clamp_", _clamp_, "CPU")
    _describe = functools.partial(torch.library.register_fake, lib=LIBRARY)
    _describe("gradclip::norms", lambda gradients: gradients[0].new_empty(len(gradients), dtype=torch.float64))
    _describe("gradclip::scale_", lambda gradients, coefficient: None)
    _describe("gradclip::clamp_", lambda gradients, lower, upper: None)
