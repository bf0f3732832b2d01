"""gradclip on MLX's arrays, for the conformance suite: ``gradclip conformance gradclip_mlx_target:target``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import mlx.core as mx

from gradclip.conformance import gradclip_target

Arrays = list[mx.array]


class MlxArrays:
    """How the suite makes and reads arrays, and runs functions under MLX's transformations."""

    name = "mlx"
    device = str(mx.default_device())

    @property
    def versions(self) -> dict[str, str]:
        return {"mlx": metadata.version("mlx")}

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> mx.array:
        return mx.array(list(values), getattr(mx, "bool_" if dtype == "bool" else dtype)).reshape(tuple(shape))

    def read(self, array: mx.array) -> tuple[list[Any], tuple[int, ...], str]:
        return array.reshape(-1).tolist(), array.shape, str(array.dtype).removeprefix("mlx.core.")

    def make_layout(self, values: Sequence[Any], shape: Sequence[int], dtype: str, layout: str) -> mx.array:
        array = self.make(values, shape, dtype)
        if layout == "transposed":
            return mx.contiguous(array.T).T
        if layout == "strided":
            return mx.repeat(array, 2, axis=-1)[..., ::2]
        return mx.broadcast_to(array.reshape(-1)[0], array.shape)  # an expanded array

    def trace(self, function: Callable[[Arrays], Arrays]) -> Callable[[Arrays], Arrays]:
        return mx.compile(function)

    def derivative(self, function: Callable[[Arrays], Arrays], arrays: Arrays) -> Arrays:
        return mx.grad(lambda inputs: sum(mx.sum(output) for output in function(inputs)))(arrays)


target = gradclip_target(MlxArrays())
