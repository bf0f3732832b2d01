"""What ``torch.compile`` calls as it is, for all gradients of the host at once: the compiled loops. No backend itself.

Inductor would make loops for each gradient, which for some hundred takes it a minute, and always writes them. As operators
these are as fast as eagerly, and where nothing is clipped only read.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import torch

from gradclip.backend import Tensor
from gradclip.backends import kernels, torch_memory
from gradclip.dtypes import normal_factors
from gradclip.tracing import constant

__all__ = ["norms", "scale_", "takes"]

_NARROW = {torch.float32, torch.float16, torch.bfloat16}  # whose squares neither overflow nor vanish in float64
_MANY, _LARGE = 32, 1 << 18  # below so many float32 gradients, and elements of all, Inductor's loops take less than a call
_LIBRARY = torch.library.Library("gradclip", "FRAGMENT")
_LIBRARY.define("norms(Tensor[] gradients) -> Tensor")
_LIBRARY.define("scale_(Tensor(a!)[] gradients, Tensor coefficient) -> ()")


def takes(tensors: Sequence[Tensor]) -> bool:
    """Whether these are gradients, while compiling, that the operators are for: in the host's memory, without derivatives."""
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting() or not kernels.KINDS:
        return False
    dtype = tensors[0].dtype
    if dtype not in _NARROW or _is_transformed():
        return False
    if dtype == torch.float32 and len(tensors) < _MANY and sum(x.numel() for x in tensors) < _LARGE:
        return False
    for x in tensors:
        if type(x) not in torch_memory.TYPES or x.dtype != dtype or x.device.type != "cpu":
            return False
        if not torch_memory.is_dense(x) or (x.requires_grad and torch.is_grad_enabled()):
            return False
    return True


@constant
def _is_transformed() -> bool:
    """Whether this is inside ``torch.func.vmap``, ``grad`` or the like."""
    return torch._C._functorch.maybe_current_level() is not None


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each, a vector of float64."""
    found: Tensor = torch.ops.gradclip.norms(tensors)
    return found


def scale_(tensors: Sequence[Tensor], coefficient: Tensor) -> None:
    """``x *= coefficient`` for each, by a 0-d tensor; from 1 on nothing is written."""
    torch.ops.gradclip.scale_(tensors, coefficient)


def _norms(gradients: list[Tensor]) -> Tensor:
    kind = torch_memory.kind_of(gradients)
    if kind is not None:
        found = list(map(math.sqrt, torch_memory.squares(gradients, kind)))
    else:  # empty, or in a graph that is run by other means
        found = [float(torch.linalg.vector_norm(x, dtype=torch.float64)) for x in gradients]
    return torch.tensor(found, dtype=torch.float64)


def _scale_(gradients: list[Tensor], coefficient: Tensor) -> None:
    factors = normal_factors(float(coefficient))
    if factors[0] >= 1:
        return
    kind = torch_memory.kind_of(gradients)
    if kind is None or len(factors) > 1:
        for x in gradients:
            x.copy_(functools.reduce(operator.mul, factors, x.float()))
        return
    torch_memory.multiply(gradients, gradients, kind, factors[0])
    torch.autograd.graph.increment_version([x for x in gradients if not x.is_inference()])


_LIBRARY.impl("norms", _norms, "CPU")
_LIBRARY.impl("scale_", _scale_, "CPU")


@torch.library.register_fake("gradclip::norms", lib=_LIBRARY)
def _(gradients: list[Tensor]) -> Tensor:
    return gradients[0].new_empty(len(gradients), dtype=torch.float64)


@torch.library.register_fake("gradclip::scale_", lib=_LIBRARY)
def _(gradients: list[Tensor], coefficient: Tensor) -> None:
    pass
