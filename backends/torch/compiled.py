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

from gradclip.backends.host import kernels
from gradclip.backends.torch import versions
from gradclip.backends.torch.lanes import TorchHostLane, is_dense
from gradclip.core import norms
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import normal_factors, promote
from gradclip.core.errors import ArgumentError
from gradclip.core.lane import Into
from gradclip.core.memory import first_overlap, layout, shared_elements
from gradclip.core.ranges import NARROW
from gradclip.core.reference import Reference
from gradclip.core.tracing import constant

__all__ = ["CompiledLane", "are_clear", "check_between_graphs", "is_ordinary", "is_transformed", "takes"]

_NARROW = {getattr(torch, dtype) for dtype in NARROW}
_PLAIN = {torch.Tensor, torch.nn.Parameter}
#: numbers of gradients and elements below which Inductor's loops cost less than a call; half-precision norms cost more
_MANY, _LARGE, _LARGE_HALVES = 32, 1 << 18, 1 << 15

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


def are_clear(tensors: Sequence[Tensor]) -> str:
    """The dtype of gradients that are contiguous, distinct and of one dtype, as far as TorchDynamo knows; else ""."""
    if len(set(tensors)) < len(tensors) or any(x.requires_grad or not x.is_contiguous() for x in tensors):
        return ""
    return _common([type(x) for x in tensors], [x.dtype for x in tensors]) if all(map(is_ordinary, tensors)) else ""


def is_ordinary(x: Tensor) -> bool:
    """Whether a tensor is strided or sparse COO; in a backward that TorchDynamo traces it cannot look up the layout."""
    if versions.is_compiling():
        return not (x.is_nested or x.is_sparse_csr or x.is_mkldnn)
    return x.layout in (torch.strided, torch.sparse_coo)


@constant
def _common(types: list[type], dtypes: list[torch.dtype]) -> str:
    if versions.is_exporting() or versions.is_transformed() or not _NARROW.issuperset(dtypes) or len(set(dtypes)) > 1:
        return ""
    return str(dtypes[0]).removeprefix("torch.") if set(types) <= _PLAIN else ""


class CompiledLane(Reference):
    """Dense tensors while TorchDynamo or AOTAutograd traces them.

    A program is for memory that the gradients share in one way, and torch does not look again in the next call. So gradients
    that are one memory are refused: eager, they count once.
    """

    def __init__(self, backend: Backend, tensors: Sequence[Tensor]) -> None:
        super().__init__(backend, are_clear(tensors))
        self.sharing = _sharing(tensors)
        if self.sharing == _ONE_MEMORY:
            raise _one_memory(tensors)

    def _check_memory(self) -> None:
        if self.sharing == _SOME_ELEMENTS:
            raise shared_elements("gradients of a compiled program")

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2:
            return super().total(tensors, order, wide)
        dtype = promote([*map(self.backend.dtype, tensors), *([wide] if wide else [])])
        dtype = "float64" if dtype == "float64" else "float32"
        if takes(tensors, measures=True):
            each: Tensor = torch.ops.gradclip.norms(tensors)
            return self.backend.cast(torch.sqrt(torch.sum(each * each)), dtype)
        return self.backend.cast(norms.total(self.backend, [self._euclidean(x, dtype) for x in tensors], order), dtype)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2:
            return super().each(tensors, order)
        if takes(tensors, measures=True):
            return [n.to(torch.float32) for n in torch.ops.gradclip.norms(tensors)]
        return [self.backend.cast(self._euclidean(x), norms.wide_real(self.backend, x)) for x in tensors]

    def _euclidean(self, x: Tensor, wide: str = "") -> Tensor:
        """The norm in the widest dtype at no cost: compiled for the host, the cast is part of the loop."""
        if x.is_complex() or x.dtype == torch.float64:
            return norms.norm(self.backend, x, 2.0, wide=wide)
        return torch.linalg.vector_norm(x, dtype=torch.float64 if x.device.type == "cpu" else torch.float32)

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if into == "place":
            self._check_memory()
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
        if into == "place":
            self._check_memory()
        return super().clamp(tensors, lower, upper, into)


# ---- memory, while the program is traced ---------------------------------------------------------------------------------

_APART, _ONE_MEMORY, _SOME_ELEMENTS = range(3)  #: how gradients share memory


def _sharing(tensors: Sequence[Tensor]) -> int:
    """How these gradients share memory, by the storages of the tracer's tensors.

    TorchDynamo knows the length of an operator's result as a number; the program does not use the result, and drops it.
    """
    some = [x for x in dict.fromkeys(tensors) if not x.requires_grad and is_ordinary(x) and not x.is_sparse]
    if len(some) < 2 or versions.is_exporting() or is_transformed() or not _are_usual([type(x) for x in some]):
        return _APART
    found: int = torch.ops.gradclip.sharing(some).shape[0]
    return found


def check_between_graphs(tensors: Sequence[Tensor]) -> None:
    """Refuse eager gradients that are one memory between two graphs of a function: the rest of the clip may be compiled.

    TorchDynamo traces no call of data_ptr, so this runs eagerly, and a function that it calls may not.
    """
    distinct = list({id(x): x for x in tensors}.values())
    places = {(x.data_ptr(), x.dtype, x.numel(), None if x.is_contiguous() else x.stride()) for x in distinct if x.numel()}
    if len(places) < sum(x.numel() > 0 for x in distinct):
        raise _one_memory(distinct)


def _one_memory(tensors: Sequence[Tensor]) -> ArgumentError:
    what = "Two gradients are one memory, which a compiled clip would count twice."
    shapes = ", ".join(f"shape {tuple(x.shape)}" for x in tensors[:8])
    return ArgumentError(what, shapes, "pass the memory once, or clip outside of torch.compile.")


@constant
def _are_usual(types: list[type]) -> bool:
    return set(types) <= _PLAIN


def _shared(gradients: list[Tensor]) -> Tensor:
    by_storage: dict[int, list[Tensor]] = {}
    for x in gradients:
        if x.numel():
            by_storage.setdefault(versions.storage(x), []).append(x)
    sharing = max((_sharing_of(some) for some in by_storage.values() if len(some) > 1), default=_APART)
    return gradients[0].new_empty(sharing)


def _sharing_of(gradients: list[Tensor]) -> int:
    """The same for gradients of one storage."""
    layouts = []
    for x in gradients:
        itemsize = x.element_size()
        strides = [int(stride) * itemsize for stride in x.stride()]
        layouts.append(layout(int(x.storage_offset()) * itemsize, itemsize, list(map(int, x.shape)), strides))
    if len({*zip(layouts, [x.dtype for x in gradients], strict=True)}) < len(gradients):
        return _ONE_MEMORY
    return _APART if first_overlap(layouts) is None else _SOME_ELEMENTS


# ---- the operators, when the compiled program runs -----------------------------------------------------------------------


def _lane_of(filled: list[Tensor]) -> TorchHostLane | None:
    """The lane of the host's memory for tensors of one dtype; None if the loops cannot take them, or a mode must see them."""
    kind = str(filled[0].dtype).removeprefix("torch.")
    if kind not in kernels.KINDS or versions.has_modes() or not all(x.is_cpu and is_dense(x) for x in filled):
        return None
    backend: Any = Backend()  # the loops do not use it
    return TorchHostLane(backend, kind, [kind])


def _norms(gradients: list[Tensor]) -> Tensor:
    filled = [x for x in gradients if x.numel()]
    lane = _lane_of(filled) if filled else None
    found: Iterator[float] = iter(
        [float(torch.linalg.vector_norm(x, dtype=torch.float64)) for x in filled] if lane is None else lane.each(filled, 2.0)
    )
    return torch.tensor([next(found) if x.numel() else 0.0 for x in gradients], dtype=torch.float64, device="cpu")


def _apart(gradients: list[Tensor]) -> list[Tensor]:
    """The gradients with elements; it refuses those that share some."""
    filled = [x for x in gradients if x.numel()]
    if kernels.overlap([x.data_ptr() for x in filled], [x.nbytes for x in filled], 1):
        raise shared_elements(" and ".join(f"shape {tuple(x.shape)}" for x in filled[:8]))
    return filled


def _scale_(gradients: list[Tensor], coefficient: Tensor) -> None:
    factors = normal_factors(float(coefficient))
    filled = _apart(gradients)
    if factors[0] >= 1 or not filled:
        return
    lane = _lane_of(filled)
    if lane is None or len(factors) > 1:
        for x in filled:
            x.copy_(functools.reduce(operator.mul, factors, x.float()))
    else:
        lane.scale(filled, factors[0], "place")


if not hasattr(torch.ops.gradclip, "norms"):  # a process may import this twice
    LIBRARY = torch.library.Library("gradclip", "FRAGMENT")
    LIBRARY.define("sharing(Tensor[] gradients) -> Tensor")
    LIBRARY.define("norms(Tensor[] gradients) -> Tensor")
    LIBRARY.define("scale_(Tensor(a!)[] gradients, Tensor coefficient) -> ()")
    LIBRARY.impl("sharing", _shared, "CompositeExplicitAutograd")
    LIBRARY.impl("norms", _norms, "CPU")
    LIBRARY.impl("scale_", _scale_, "CPU")
    _describe = functools.partial(torch.library.register_fake, lib=LIBRARY)
    _describe("gradclip::sharing", _shared)
    _describe("gradclip::norms", lambda gradients: gradients[0].new_empty(len(gradients), dtype=torch.float64))
    _describe("gradclip::scale_", lambda gradients, coefficient: None)
