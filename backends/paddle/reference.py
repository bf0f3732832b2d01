"""The reference lane with products that suit Paddle's kernels, and helpers of the primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from gradclip.backends.paddle import versions
from gradclip.core.backend import Tensor
from gradclip.core.dtypes import COMPLEX, WIDE, normal_factors
from gradclip.core.reference import Reference

__all__ = ["PaddleLane", "beside", "filled", "values"]


def beside(x: Tensor, like: Tensor) -> Tensor:
    """``x`` on the device of ``like``; in a static program the executor moves it."""
    is_traced = isinstance(x, versions.Value) or isinstance(like, versions.Value)
    return x if is_traced or x.place == like.place else x.to(like.place)


def filled(value: float, dtype: str, like: Tensor) -> Tensor:
    """A number in the shape of a tensor: ``paddle.where`` would take many operations to broadcast."""
    if -1 in like.shape:  # of a static program
        return paddle.cast(like, dtype) * 0 + paddle.full([], value, dtype)
    return beside(paddle.full(like.shape, value, dtype), like)


def values(x: Tensor) -> Tensor:
    """The numbers of a gradient, detached from its history."""
    if isinstance(x, versions.Value):
        return x
    if x.is_selected_rows():
        return versions.values_of_rows(x)
    # an operation on a ``.grad`` itself would make it a leaf that requires a gradient
    return x.detach() if x.is_leaf and not x.stop_gradient and x.grad_fn is None else x


class PaddleLane(Reference):
    """The reference lane for Paddle."""

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        backend, dtype = self.backend, self.backend.dtype(x)
        is_number = isinstance(coefficient, float)
        if dtype in COMPLEX and 0 in x.shape:  # Paddle 3.0 does not recombine these
            return backend.copy(x)
        if dtype in COMPLEX:  # by parts: a complex product with an infinite part makes the other part NaN
            factor = coefficient if is_number else paddle.unsqueeze(coefficient, -1)
            return paddle.as_complex(self.product(paddle.as_real(x), factor))
        if not is_number and isinstance(x, paddle.Tensor):
            return super().product(x, beside(coefficient, x))
        wide = backend.cast(x, WIDE[dtype])
        # a Python number, and in a program paddle.where, would turn -0 into 0
        for factor in normal_factors(coefficient) if is_number else (coefficient,):
            wide = wide * backend.asarray(factor, WIDE[dtype], x)
        return backend.cast(wide, dtype)

    def squares(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sum of the squares of each, as one element in the dtype of its norm."""
        backend = self.backend
        return [versions.operations.squared_l2_norm(backend.cast(x, WIDE[backend.dtype(x)])) for x in tensors]

    def unstack(self, vector: Tensor, count: int) -> list[Tensor]:
        return list(paddle.unbind(vector))
