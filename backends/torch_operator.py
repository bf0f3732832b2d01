"""What ``torch.compile`` calls as it is, for all gradients of the host at once: the compiled loops. No backend itself.

Inductor would make loops for each gradient, which for some hundred takes it a minute, and always writes them. As operators
these are as fast as eagerly, and where nothing is clipped only read.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence

import torch

from gradclip.backend import Tensor
from gradclip.backends import kernels, torch_memory
from gradclip.dtypes import normal_factors
from gradclip.tracing import constant

__all__ = ["clamp_", "norms", "scale_", "takes", "takes_bounds"]

_NARROW = {torch.float32, torch.float16, torch.bfloat16}  # whose squares neither overflow nor vanish in float64
#: below so many gradients, and elements of all, Inductor's loops take less than a call; in halves it is slower
_MANY, _LARGE, _LARGE_HALVES = 32, 1 << 18, 1 << 15
#: bytes that no cache holds: of fewer, Inductor's bounds take less than a call
_UNCACHED = 1 << 27


def takes(tensors: Sequence[Tensor]) -> bool:
    """Whether these are gradients, while compiling, that the operators are for: in the host's memory, without derivatives."""
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting() or not kernels.KINDS or not tensors:
        return False
    dtype = tensors[0].dtype
    if dtype not in _NARROW or _is_transformed():
        return False
    large = _LARGE if dtype == torch.float32 else _LARGE_HALVES
    if len(tensors) < _MANY and sum(x.numel() for x in tensors) < large:
        return False
    for x in tensors:
        if type(x) not in torch_memory.TYPES or x.dtype != dtype or x.device.type != "cpu":
            return False
        if not torch_memory.is_dense(x) or (x.requires_grad and torch.is_grad_enabled()):
            return False
    return True


@constant
def _is_transformed() -> bool:
    """Whether this is inside ``torch.func.vmap``, ``grad`` or the like, or a derivative in forward mode is taken."""
    return torch._C._functorch.maybe_current_level() is not None or torch.autograd.forward_ad._current_level >= 0


def takes_bounds(tensors: Sequence[Tensor]) -> bool:
    """The same for bounds, which are no faster as an operator while the gradients are in the cache."""
    return takes(tensors) and sum(x.numel() * x.itemsize for x in tensors) >= _UNCACHED


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each, a vector of float64."""
    found: Tensor = torch.ops.gradclip.norms(tensors)
    return found


def scale_(tensors: Sequence[Tensor], coefficient: Tensor) -> None:
    """``x *= coefficient`` for each, by a 0-d tensor; from 1 on nothing is written."""
    if tensors:
        torch.ops.gradclip.scale_(tensors, coefficient)


def clamp_(tensors: Sequence[Tensor], lower: float, upper: float) -> None:
    """``x = max(min(x, upper), lower)`` for each."""
    torch.ops.gradclip.clamp_(tensors, lower, upper)


def _norms(gradients: list[Tensor]) -> Tensor:
    held = [x for x in gradients if x.numel()]
    kind = torch_memory.kind_of(held) if held else None
    if kind is not None:
        found: Iterator[float] = map(math.sqrt, torch_memory.squares(held, kind))
    else:  # in a graph that is run by other means
        found = (float(torch.linalg.vector_norm(x, dtype=torch.float64)) for x in held)
    return torch.tensor([next(found) if x.numel() else 0.0 for x in gradients], dtype=torch.float64)


def _scale_(gradients: list[Tensor], coefficient: Tensor) -> None:
    factors = normal_factors(float(coefficient))
    held = [x for x in gradients if x.numel()]
    if factors[0] >= 1 or not held:
        return
    kind = torch_memory.kind_of(held)
    if kind is None or len(factors) > 1:
        for x in held:
            x.copy_(functools.reduce(operator.mul, factors, x.float()))
        return
    torch_memory.multiply(held, held, kind, factors[0])
    torch.autograd.graph.increment_version([x for x in held if not x.is_inference()])


def _clamp_(gradients: list[Tensor], lower: float, upper: float) -> None:
    held = [x for x in gradients if x.numel()]
    kind = torch_memory.kind_of(held) if held else None
    if kind is None:
        for x in held:
            x.copy_(x.float().clamp(lower, upper))
        return
    torch_memory.clamp(held, torch_memory.sizes_of(held), kind, lower, upper)
    torch.autograd.graph.increment_version([x for x in held if not x.is_inference()])


if not hasattr(torch.ops.gradclip, "norms"):  # a process may import this twice
    _LIBRARY = torch.library.Library("gradclip", "FRAGMENT")
    _LIBRARY.define("norms(Tensor[] gradients) -> Tensor")
    _LIBRARY.define("scale_(Tensor(a!)[] gradients, Tensor coefficient) -> ()")
    _LIBRARY.define("clamp_(Tensor(a!)[] gradients, float lower, float upper) -> ()")
    _LIBRARY.impl("norms", _norms, "CPU")
    _LIBRARY.impl("scale_", _scale_, "CPU")
    _LIBRARY.impl("clamp_", _clamp_, "CPU")
    _describe = functools.partial(torch.library.register_fake, lib=_LIBRARY)
    _describe("gradclip::norms", lambda gradients: gradients[0].new_empty(len(gradients), dtype=torch.float64))
    _describe("gradclip::scale_", lambda gradients, coefficient: None)
    _describe("gradclip::clamp_", lambda gradients, lower, upper: None)
