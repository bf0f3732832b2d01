"""torch's tensors, and ``torch.nn.utils.clip_grad_norm_`` and ``clip_grad_value_``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch

from gradclip.conformance.adapted import features_of, natives_of
from gradclip.conformance.target import ComposedTarget

__all__ = ["TorchArrays", "arrays", "native"]

_VERSION = str(torch.__version__).partition("+")[0]  # without the build
Function = Callable[[list[Any]], list[Any]]


class TorchArrays:
    """Writable tensors that hold their gradient."""

    name = f"torch {_VERSION}"
    versions: ClassVar[dict[str, str]] = {"torch": str(torch.__version__)}
    device = "cpu"
    # torch 2.4 cannot trace gradclip, and the suite traces complete functions
    lacks = ("traced",) if tuple(map(int, _VERSION.split(".")[:2])) < (2, 5) else ()

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
        kind = getattr(torch, dtype)
        wide = torch.complex128 if kind.is_complex else torch.float64 if kind.is_floating_point else kind
        return torch.tensor(list(values), dtype=wide).to(kind).reshape(tuple(shape))

    def read(self, array: Any) -> tuple[list[Any], tuple[int, ...], str]:
        array = array.detach() if isinstance(array, torch.Tensor) else torch.as_tensor(array)
        dtype = str(array.dtype).removeprefix("torch.")
        wide = array.to(torch.complex128 if array.is_complex() else torch.float64) if array.dtype not in _EXACT else array
        dense = wide.to_dense() if wide.is_sparse else wide
        return dense.reshape(-1).tolist(), tuple(dense.shape), dtype

    def make_layout(self, values: Sequence[Any], shape: Sequence[int], dtype: str, layout: str) -> torch.Tensor:
        made = self.make(values, shape, dtype)
        axes = tuple(range(made.dim()))[::-1]
        if layout == "transposed":
            return made.permute(axes).contiguous().permute(axes)
        if layout == "strided":
            return made.repeat_interleave(2, dim=-1)[..., ::2]
        return made.reshape(-1)[0].clone().expand(made.shape)

    def make_sparse(self, rows: Sequence[int], values: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
        inner = self.make(values, [len(rows), *shape[1:]], dtype)
        indices = torch.tensor([list(rows)], dtype=torch.int64)
        return torch.sparse_coo_tensor(indices, inner, tuple(shape), check_invariants=True)

    def trace(self, function: Function) -> Function:
        torch.compiler.reset()  # each case compiles the same lines again, which torch counts as recompilations
        # the eager compiler traces just as strictly and needs no C++ compiler
        traced: Function = torch.compile(function, fullgraph=True, backend="eager")
        return traced

    def derivative(self, function: Function, arrays: Sequence[Any]) -> list[Any]:
        inputs = [array.detach().clone().requires_grad_() for array in arrays]
        # copies, because a leaf stands for the gradient that it holds
        outputs = [output for output in function([x.clone() for x in inputs]) if output is not None]
        return list(torch.autograd.grad(sum(output.sum() for output in outputs), inputs, materialize_grads=True))

    def hold(self, gradients: Sequence[Any], values: Sequence[Any] | None = None) -> list[torch.nn.Parameter]:
        """Parameters with these gradients, one for one object; those of integers cannot require one."""
        made: dict[int, torch.nn.Parameter] = {}
        for gradient, value in zip(gradients, values or [None] * len(gradients), strict=True):
            if gradient is not None and id(gradient) not in made:
                made[id(gradient)] = _holder(gradient, value)
        return [torch.nn.Parameter(torch.zeros(1)) if gradient is None else made[id(gradient)] for gradient in gradients]

    def model(self, held: Sequence[torch.nn.Parameter]) -> torch.nn.Module:
        """A module with these parameters."""
        made = torch.nn.Module()
        for number, parameter in enumerate(held):
            made.register_parameter(f"layer{number}_weight", parameter)
        return made

    def optimizer(self, held: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """An optimizer of these parameters."""
        return torch.optim.SGD(list(held), lr=1.0)


def _holder(gradient: torch.Tensor, value: torch.Tensor | None) -> torch.nn.Parameter:
    zeros = torch.zeros(gradient.shape, dtype=gradient.dtype) if value is None else value.detach().clone()
    parameter = torch.nn.Parameter(zeros, requires_grad=zeros.is_floating_point() or zeros.is_complex())
    parameter.grad = gradient
    return parameter


_EXACT = (torch.int32, torch.int64, torch.bool, torch.uint8, torch.int8, torch.int16)
arrays = TorchArrays()


def native() -> ComposedTarget:
    """torch's own functions, over tensors that hold their gradient."""
    features = features_of(arrays) - {"traced", "differentiable", "sparse", "bool", "int32", "int64"}
    natives, claims = natives_of("torch", features)
    for operation, one in natives.items():
        claims[operation] |= {"int32", "int64"} if one.rule().is_by_value else set()
    runs = {operation: _over(getattr(torch.nn.utils, one.last)) for operation, one in natives.items()}
    return ComposedTarget(arrays.name, arrays, claims, runs)


def _over(function: Any) -> Callable[[Iterable[Any], dict[str, Any]], tuple[list[Any], Any]]:
    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[list[Any], Any]:
        parameters = arrays.hold(list(gradients))
        norm = function(iter(parameters) if isinstance(gradients, Iterator) else parameters, **arguments)
        return [parameter.grad for parameter in parameters], norm

    return run
