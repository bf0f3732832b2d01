"""The formulas of the operations, as far as the checks need them: the elements that share a norm, and the constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FORMULAS", "Formula", "euclidean"]


@dataclass(frozen=True)
class Formula:
    r"""One operation's formula, evaluated in float64.

    The norm :math:`n` and the limit :math:`L` give :math:`g \cdot \min(1, L / (n + \mathrm{eps}))`; by value it is
    :math:`\max(\min(g, L), -L)`. For ``unit`` the limit is relative to the parameter, which a :class:`Bench` makes with norm
    1; for ``example`` the gradients of a bench are one example.
    """

    limit: str  #: the argument that is the limit
    scope: str = "global"  #: or "tensor", "unit", "example", "element"
    eps: float = 0.0  #: added to the norm
    least: float = 0.0  #: the smallest divisor; above 0, the formula has a constant, and results near it do not scale
    mean: bool = False  #: the norm is the root mean square
    zero: str = "zeros"  #: the effect of a limit of 0; or "off", "error"
    keeps_nan: bool = False  #: a NaN norm clips nothing

    @property
    def is_norm(self) -> bool:
        """Whether it scales by a norm, instead of clipping element by element."""
        return self.scope != "element"

    @property
    def is_joint(self) -> bool:
        """Whether all gradients share one norm."""
        return self.scope in ("global", "example")

    def norm(self, values: Sequence[Any]) -> float:
        """The norm of the elements that share one, before eps."""
        norm = euclidean(values)
        return norm / math.sqrt(max(len(values), 1)) if self.mean else norm

    def sizes(self, gradients: Sequence[Sequence[Any]]) -> list[float]:
        """The sizes that the limit bounds: one norm, or one of each gradient; by value each gradient's greatest magnitude."""
        if self.is_joint:
            return [self.norm([value for values in gradients for value in values])]
        return [self.norm(values) if self.is_norm else max(map(abs, values), default=0.0) for values in gradients]

    def clipped(self, gradients: Sequence[Sequence[Any]], limit: float) -> list[list[Any]]:
        """The gradients after the clip."""
        if not self.is_norm:
            return [[max(min(value, limit), -limit) for value in values] for values in gradients]
        sizes = self.sizes(gradients)
        coefficients = [self.coefficient(size, limit) for size in sizes] * (len(gradients) if self.is_joint else 1)
        return [[value * c for value in values] for values, c in zip(gradients, coefficients, strict=True)]

    def coefficient(self, norm: float, limit: float) -> float:
        """The factor of elements with this norm."""
        return 1.0 if norm + self.eps <= limit else limit / max(norm + self.eps, self.least)


def euclidean(values: Sequence[Any]) -> float:
    """The Euclidean norm of real or complex numbers, correct to the last bits of float64 whatever their size.

    >>> euclidean([3e300, 4e300j]), euclidean([])
    (5e+300, 0.0)
    """
    parts = [part for value in values for part in ((value.real, value.imag) if isinstance(value, complex) else (value,))]
    greatest = max(map(abs, parts), default=0.0)
    if greatest == 0 or not math.isfinite(greatest):
        return greatest
    exponent = math.frexp(greatest)[1]
    return math.ldexp(math.sqrt(math.fsum(math.ldexp(part, -exponent) ** 2 for part in parts)), exponent)


FORMULAS: Mapping[str, Formula] = {
    "torch.clip_grad_norm_": Formula("max_norm", eps=1e-6, least=1e-6),
    "torch.clip_grad_value_": Formula("clip_value", "element"),
    "tensorflow.clip_by_norm": Formula("clip_norm", "tensor"),
    "tensorflow.clip_by_global_norm": Formula("clip_norm"),
    "tensorflow.clip_by_value": Formula("clip_value_max", "element"),
    "paddle.ClipGradByNorm": Formula("clip_norm", "tensor", zero="error"),
    "paddle.ClipGradByGlobalNorm": Formula("clip_norm"),
    "paddle.ClipGradByValue": Formula("max", "element", zero="error"),
    "paddle.clip_grad_norm_": Formula("max_norm", eps=1e-6, least=1e-6),
    "optax.clip_by_global_norm": Formula("max_norm"),
    "optax.clip": Formula("max_delta", "element"),
    "optax.clip_by_block_rms": Formula("threshold", "tensor", mean=True),
    "optax.adaptive_grad_clip": Formula("clipping", "unit", least=1e-6),
    "optax.per_example_global_norm_clip": Formula("l2_norm_clip", "example", keeps_nan=True),
    "keras.clipnorm": Formula("clipnorm", "tensor", zero="off"),
    "keras.global_clipnorm": Formula("global_clipnorm", zero="off"),
    "keras.clipvalue": Formula("clipvalue", "element", zero="off"),
}
