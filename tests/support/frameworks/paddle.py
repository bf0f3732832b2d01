from __future__ import annotations

import functools
import itertools
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from frameworks.base import LARGE, Framework

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle warns of a missing ccache during its import
    import paddle

# the dtypes for feeding and fetching such values: NumPy lacks them
EXACT = dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn"), "float32")

_NUMBERS = itertools.count()
_compile, _compiled = paddle.jit.to_static, list[Any]()


@functools.wraps(_compile)
def _to_static(*args: Any, **options: Any) -> Any:
    """Keeps what it compiles: Paddle 3.3 may crash in a later training, also without gradclip, where that is gone."""
    made = _compile(*args, **options)
    _compiled.append(made)
    return made


paddle.jit.to_static = _to_static


class PaddleFramework(Framework):
    name = "paddle"
    thresholds = (
        ("gradclip.backends.paddle.lanes._PIECE", LARGE // 8),
        ("gradclip.backends.paddle.lanes._LARGE", LARGE),
    )
    packages = ("paddlepaddle",)
    dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    mutable = True
    holds_gradients = True
    has_sparse = True
    jits = ("to_static", "to_static_sot", "static")

    def make(self, values: Any, dtype: str = "float32") -> Any:
        values = np.array(values)
        kind = values.dtype if values.dtype.kind in "iu" else np.result_type(values, np.float32)
        return paddle.to_tensor(values.astype(kind)).astype(dtype)

    def read(self, tensor: Any) -> np.ndarray:
        if tensor.is_selected_rows():
            tensor = tensor._get_tensor_from_selected_rows()
        if tensor.is_complex():
            return np.array(tensor.detach().astype("complex128").numpy())
        return np.array((tensor.detach().astype("float64") if tensor.is_floating_point() else tensor).numpy())

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).removeprefix("paddle.")

    def exp(self, tensor: Any) -> Any:
        return paddle.exp(tensor)

    def strided(self, values: Any, dtype: str = "float32") -> Any:
        repeated = self.make(np.repeat(np.array(values), 2, axis=-1), dtype)
        return repeated[..., ::2]

    def expanded(self, value: float, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return paddle.as_strided(self.make([value], dtype), list(shape), [0] * len(shape))

    def parameter(self, gradient: Any, dtype: str = "float32") -> Any:
        shape, dtype = ([2], dtype) if gradient is None else (list(gradient.shape), self.dtype(gradient))
        parameter = paddle.create_parameter(shape, dtype, default_initializer=paddle.nn.initializer.Assign(np.zeros(shape)))
        if gradient is not None:
            parameter.grad = gradient
        return parameter

    def sparse(self, rows: list[int], values: Any, height: int) -> Any:
        weight = self.make(values)
        table = paddle.nn.Embedding(max(rows, default=0) + 1, weight.shape[1], sparse=True)
        (table(paddle.to_tensor(rows, dtype="int64")) * weight).sum().backward()
        gradient = table.weight._grad_ivar().detach()
        gradient.get_selected_rows().set_height(height)
        return gradient

    def densify(self, sparse: Any) -> np.ndarray:
        dense = np.zeros((sparse.get_selected_rows().height(), *sparse.shape[1:]))
        np.add.at(dense, np.array(sparse.rows(), np.int64), self.read(sparse))
        return dense

    def is_sparse(self, tensor: Any) -> bool:
        return bool(tensor.is_selected_rows())

    def jit(self, how: str, function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        def traced(tensors: list[Any]) -> list[Any]:  # to_static reads the function's source, and accepts no lambda
            return function(tensors)

        static: Callable[[list[Any]], list[Any]]
        if how == "to_static":  # translates the source
            static = paddle.jit.to_static(traced, full_graph=True)
            return static
        if how == "to_static_sot":  # translates the bytecode; the default
            # a new name each time: Paddle takes two closures with the same code for one function
            code = traced.__code__.replace(co_name=f"traced_{next(_NUMBERS)}")
            static = paddle.jit.to_static(types.FunctionType(code, globals(), code.co_name, None, traced.__closure__))
            # here gradclip runs between two programs, where a norm is a float
            return lambda tensors: [paddle.to_tensor(x, "float64") if type(x) is float else x for x in static(tensors)]
        built: dict[tuple[Any, ...], tuple[Any, list[Any], list[str]]] = {}  # a program for each signature
        executor = paddle.static.Executor(paddle.CPUPlace())

        def run(tensors: list[Any]) -> list[Any]:
            names = [self.dtype(tensor) for tensor in tensors]
            signature = tuple((name, *tensor.shape) for tensor, name in zip(tensors, names, strict=True))
            if signature not in built:
                built[signature] = self._program(function, tensors, names)
            program, fetched, results = built[signature]
            pairs = enumerate(zip(tensors, names, strict=True))
            feed = {f"x{i}": tensor.astype(EXACT.get(name, name)).numpy() for i, (tensor, name) in pairs}
            paddle.enable_static()
            try:
                values = executor.run(program, feed=feed, fetch_list=fetched)
            finally:
                paddle.disable_static()
            return [paddle.to_tensor(value).astype(name) for value, name in zip(values, results, strict=True)]

        return run

    def _program(
        self, function: Callable[[list[Any]], list[Any]], tensors: list[Any], names: list[str]
    ) -> tuple[Any, list[Any], list[str]]:
        """Build a program that applies the function to its inputs; return it, what to fetch, and the dtypes of the results."""
        paddle.enable_static()
        try:
            program = paddle.static.Program()
            with paddle.static.program_guard(program):
                inputs = []
                for i, (tensor, name) in enumerate(zip(tensors, names, strict=True)):
                    inputs.append(paddle.static.data(f"x{i}", list(tensor.shape), EXACT.get(name, name)).astype(name))
                outputs = list(function(inputs))
                results = [self.dtype(output) for output in outputs]
                fetched = [output.astype(EXACT.get(name, name)) for output, name in zip(outputs, results, strict=True)]
        finally:
            paddle.disable_static()
        return program, fetched, results

    def derivative(self, function: Callable[[list[Any]], Any], tensors: list[Any]) -> list[np.ndarray]:
        inputs = [tensor.detach().clone() for tensor in tensors]
        for tensor in inputs:
            tensor.stop_gradient = False
        function([tensor.clone() for tensor in inputs]).backward()  # a leaf would be returned as its own gradient
        return [self.read(tensor.grad) for tensor in inputs]


framework = PaddleFramework()
