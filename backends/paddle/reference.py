"""The reference lane with products as Paddle's kernels need them."""

from __future__ import annotations

from typing import Any

import paddle

from gradclip.backend import Tensor
from gradclip.backends.paddle import versions
from gradclip.dtypes import COMPLEX, WIDE, normal_factors
from gradclip.lane import Lane

__all__ = ["PaddleLane", "beside"]


def beside(x: Tensor, like: Tensor) -> Tensor:
    """``x`` on the device of ``like``; in a static program that is the executor's business."""
    is_traced = isinstance(x, versions.Value) or isinstance(like, versions.Value)
    return x if is_traced or x.place == like.place else x.to(like.place)


class PaddleLane(Lane):
    """The reference."""

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        backend, dtype = self.backend, self.backend.dtype(x)
        is_number = isinstance(coefficient, float)
        if dtype in COMPLEX:  # by parts: a product of complex numbers makes NaN of the other part of an infinite one
            factor = coefficient if is_number else paddle.unsqueeze(coefficient, -1)
            return paddle.as_complex(self.product(paddle.as_real(x), factor))
        if not is_number and isinstance(x, paddle.Tensor):
            return super().product(x, beside(coefficient, x))
        wide = backend.cast(x, WIDE[dtype])
        # times a Python number, and in a program by paddle.where, -0 would become 0
        for factor in normal_factors(coefficient) if is_number else (coefficient,):
            wide = wide * backend.asarray(factor, WIDE[dtype], x)
        return backend.cast(wide, dtype)

    def unstack(self, vector: Tensor, count: int) -> list[Tensor]:
        return list(paddle.unbind(vector))
