from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")  # these caches do not notice changes in gradclip's sources
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")

import numpy as np
import torch
from frameworks.base import LARGE, Framework, release


class TorchFramework(Framework):
    name = "torch"
    thresholds = (("gradclip.backends.torch.lanes._PIECE", LARGE // 8),)
    packages = ("torch",)
    compiles = release(torch.__version__) >= [2, 5]  # before 2.5, torch.compile breaks the graph at gradclip
    compiles_all = release(torch.__version__) >= [2, 7]  # docs/versions.md has what torch 2.5 and 2.6 cannot compile
    names_parameters = release(torch.__version__) >= [2, 6]  # from 2.6 on, optimizers know their parameters' names
    stops_compiling = hasattr(torch.compiler, "set_stance")  # from 2.6 on, compiled code can run eagerly
    has_total_norm = hasattr(torch.nn.utils, "get_total_norm")  # with it came the warning of an empty generator
    dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    mutable = True
    holds_gradients = True
    has_sparse = True
    jits = ("compile",)

    def make(self, values: Any, dtype: str = "float32") -> Any:
        return torch.from_numpy(np.array(values)).to(getattr(torch, dtype))

    def read(self, tensor: Any) -> np.ndarray:
        tensor = tensor.detach().cpu()
        if tensor.is_complex():
            return tensor.to(torch.complex128).numpy()
        return (tensor.to(torch.float64) if tensor.is_floating_point() else tensor).numpy()

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).removeprefix("torch.")

    def exp(self, tensor: Any) -> Any:
        return torch.exp(tensor)

    def strided(self, values: Any, dtype: str = "float32") -> Any:
        return self.make(values, dtype).repeat_interleave(2, dim=-1)[..., ::2]

    def expanded(self, value: float, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return self.make(value, dtype).expand(shape)

    def parameter(self, gradient: Any, dtype: str = "float32") -> Any:
        if gradient is None:
            return torch.nn.Parameter(torch.zeros(2))
        parameter = torch.nn.Parameter(torch.zeros(tuple(gradient.shape), dtype=gradient.dtype))
        parameter.grad = gradient
        return parameter

    def sparse(self, rows: list[int], values: Any, height: int) -> Any:
        values = self.make(values)
        indices = torch.tensor([rows], dtype=torch.int64)
        return torch.sparse_coo_tensor(indices, values, (height, *values.shape[1:]), check_invariants=True)

    def densify(self, sparse: Any) -> np.ndarray:
        return self.read(sparse.to_dense())

    def is_sparse(self, tensor: Any) -> bool:
        return bool(tensor.is_sparse)

    def jit(self, how: str, function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        torch.compiler.reset()  # tests compile the same lines again, and torch counts these as recompilations
        return torch.compile(function, fullgraph=self.compiles, backend="aot_eager")

    def derivative(self, function: Callable[[list[Any]], Any], tensors: list[Any]) -> list[np.ndarray]:
        inputs = [tensor.clone().requires_grad_() for tensor in tensors]
        function([tensor.clone() for tensor in inputs]).backward()  # a leaf would be returned as its own gradient
        return [self.read(tensor.grad) for tensor in inputs]


framework = TorchFramework()
