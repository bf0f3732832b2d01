"""Paddle's tensors, ``paddle.nn.ClipGradBy*`` on (parameter, gradient) pairs, and ``paddle.nn.utils.clip_grad_*_``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle warns while it is imported, of a missing ccache
    import paddle
from paddle.base.framework import EagerParamBase

from gradclip.backends.targets.host import Read, to_numpy
from gradclip.conformance.adapted import features_of, natives_of
from gradclip.conformance.target import ComposedTarget, Run
from gradclip.natives import Applied

__all__ = ["PaddleArrays", "arrays", "native"]

Function = Callable[[list[Any]], list[Any]]


class PaddleArrays:
    """Writable tensors of dynamic mode, which hold their gradient, and SelectedRows."""

    name = f"paddle {paddle.__version__}"
    versions: ClassVar[dict[str, str]] = {"paddle": paddle.__version__}
    device = "cpu"
    lacks = ()
    held_lacks = ("transposed", "strided")  # a parameter's gradient is a contiguous copy of what is assigned

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> Any:
        half = dtype in ("float16", "bfloat16")  # dtypes that NumPy lacks
        made = paddle.to_tensor(to_numpy(values, shape, "float32" if half else dtype))
        return made.astype(dtype) if half else made

    def read(self, array: Any) -> Read:
        dtype = str(array.dtype).removeprefix("paddle.")
        array = array.detach()
        if not array.is_selected_rows():
            exact = array.astype("float32") if dtype in ("float16", "bfloat16") else array
            return exact.numpy().reshape(-1).tolist(), tuple(array.shape), dtype
        rows, merged = list(array.rows()), array._get_tensor_from_selected_rows().astype("float64")
        dense = paddle.zeros([array.get_selected_rows().height(), *merged.shape[1:]], "float64")
        if rows:
            dense = dense.index_add(paddle.to_tensor(rows, dtype="int64"), 0, merged)
        return dense.numpy().reshape(-1).tolist(), tuple(dense.shape), dtype

    def make_layout(self, values: Sequence[Any], shape: Sequence[int], dtype: str, layout: str) -> Any:
        made = self.make(values, shape, dtype)
        axes = list(range(len(shape)))[::-1]
        if layout == "transposed":
            return made.transpose(axes).contiguous().transpose(axes)
        if layout == "strided":
            twice = self.make([value for value in values for _ in range(2)], [*shape[:-1], 2 * shape[-1]], dtype)
            return twice[..., ::2]
        return paddle.as_strided(made.reshape([-1])[:1].clone(), list(shape), [0] * len(shape))

    def make_sparse(self, rows: Sequence[int], values: Sequence[Any], shape: Sequence[int], dtype: str) -> Any:
        gradient = self._of_lookup(rows, self.make(values, [len(rows), *shape[1:]], dtype))
        if gradient is None:  # Paddle 3.0, of a lookup of nothing: a gradient of one row loses it
            gradient = self._of_lookup([0], paddle.zeros([1, *shape[1:]], dtype))
            gradient.get_selected_rows().set_rows([])
        gradient.get_selected_rows().set_height(shape[0])
        return gradient

    def _of_lookup(self, rows: Sequence[int], weight: Any) -> Any:
        """The SelectedRows that a lookup of these rows, times a weight, has for a gradient; None where Paddle makes none."""
        table = EagerParamBase.from_tensor(paddle.zeros([max(rows, default=0) + 1, *weight.shape[1:]], weight.dtype))
        picked = paddle.nn.functional.embedding(paddle.to_tensor(list(rows), dtype="int64"), table, sparse=True)
        (picked * weight).sum().backward()
        gradient = table._grad_ivar()
        return None if gradient is None else gradient.detach()

    def trace(self, function: Function) -> Function:
        def traced(tensors: list[Any]) -> list[Any]:  # to_static reads the function's source, and accepts no lambda
            return function(tensors)

        static: Function = paddle.jit.to_static(traced, full_graph=True)
        return static

    def derivative(self, function: Function, arrays: Sequence[Any]) -> list[Any]:
        inputs = [array.detach().clone() for array in arrays]
        for array in inputs:
            array.stop_gradient = False
        outputs = function([x.clone() for x in inputs])  # copies, because a leaf stands for the gradient that it holds
        total = sum((output.sum() for output in outputs if output is not None), paddle.zeros([], inputs[0].dtype))
        total.backward()
        return [paddle.zeros_like(array) if array.grad is None else array.grad for array in inputs]

    def hold(self, gradients: Sequence[Any], values: Sequence[Any] | None = None) -> list[Any]:
        """Parameters with these gradients, one for one object."""
        made: dict[int, Any] = {}
        for gradient, value in zip(gradients, values or [None] * len(gradients), strict=True):
            if gradient is not None and id(gradient) not in made:
                made[id(gradient)] = _holder(gradient, value)
        return [EagerParamBase.from_tensor(paddle.zeros([1])) if g is None else made[id(g)] for g in gradients]

    def model(self, held: Sequence[Any]) -> Any:
        """A layer with these parameters."""
        made = paddle.nn.Layer()
        for number, parameter in enumerate(held):
            made.add_parameter(f"layer{number}_weight", parameter)
        return made

    def optimizer(self, held: Sequence[Any]) -> Any:
        """An optimizer of these parameters."""
        return paddle.optimizer.SGD(parameters=list(held))


def _holder(gradient: Any, value: Any = None) -> Any:
    parameter = EagerParamBase.from_tensor(paddle.zeros(gradient.shape, gradient.dtype) if value is None else value.clone())
    parameter.grad = gradient
    if gradient.is_dense():  # Paddle copies an assigned gradient; the clip must write into the gradient itself
        parameter.grad.get_tensor()._share_data_with(gradient.get_tensor())
    return parameter


arrays = PaddleArrays()


def native() -> ComposedTarget:
    """Paddle's own classes and functions."""
    natives, claims = natives_of("paddle", features_of(arrays) - {"differentiable"})
    runs = {}
    for operation, one in natives.items():
        if one.in_place:
            claims[operation] -= {"traced"}
        if not (one.in_place and one.rule().is_by_value):
            claims[operation] -= {"float16", "bfloat16", "complex64", "complex128", "int32", "int64", "bool"}
        if one.applied is Applied.SLOT:
            runs[operation] = _on_pairs(getattr(paddle.nn, one.last), arrays.hold if one.in_place else _named)
        else:
            runs[operation] = _on_parameters(getattr(paddle.nn.utils, one.last))
    return ComposedTarget(arrays.name, arrays, claims, runs)


def _named(gradients: Sequence[Any]) -> list[str]:
    """Stand-ins for parameters that are only passed through: none can be made while tracing."""
    return [f"parameter {i}" for i in range(len(gradients))]


def _on_pairs(kind: Any, parameters: Callable[[list[Any]], list[Any]]) -> Run:
    """Run a class on pairs. Its result lacks the pairs without a gradient."""

    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[list[Any], Any]:
        listed = list(gradients)
        pairs = list(zip(parameters(listed), listed, strict=True))
        returned = kind(**arguments)(iter(pairs) if isinstance(gradients, Iterator) else pairs)
        clipped = iter([gradient for _, gradient in returned if gradient is not None])
        return [None if gradient is None else next(clipped) for gradient in listed], None

    return run


def _on_parameters(function: Callable[..., Any]) -> Run:
    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[list[Any], Any]:
        parameters = arrays.hold(list(gradients))
        norm = function(iter(parameters) if isinstance(gradients, Iterator) else parameters, **arguments)
        return [parameter.grad for parameter in parameters], norm

    return run
