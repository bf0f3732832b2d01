"""The formula of an operation, as far as the checks need it: from the native's rule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gradclip
from gradclip.natives import Native, numbers

__all__ = ["Formula"]


@dataclass(frozen=True)
class Formula:
    """A native's formula, evaluated in float64.

    The norm ``n`` and the limit ``L`` give ``g * min(1, L / (n + eps))``; by value it is
    ``max(min(g, L), -L)``. If the limit is relative to the parameter, a :class:`Bench` makes one with norm 1; if the
    result is a sum over examples, the gradients of a bench are one example.
    """

    native: Native

    @cached_property
    def rule(self) -> gradclip.Rule:
        """The native's rule, for its constants."""
        return self.native.rule()

    @property
    def least(self) -> float:
        """The smallest divisor; above 0, the formula has a constant, and results near it do not scale."""
        return max(self.rule.eps, self.rule.min_divisor)

    @property
    def is_relative(self) -> bool:
        """Whether the limit is relative to the parameter."""
        return self.rule.relative_to is not None

    @property
    def is_of_examples(self) -> bool:
        """Whether each example is clipped, and the result is their sum."""
        return self.rule.scope is gradclip.Scope.EXAMPLE

    @property
    def is_norm(self) -> bool:
        """Whether it scales by a norm, instead of clipping element by element."""
        return not self.rule.is_by_value

    @property
    def is_joint(self) -> bool:
        """Whether all gradients share one norm."""
        return self.rule.is_total or self.is_of_examples

    def norm(self, values: Sequence[Any]) -> float:
        """The norm of the elements that share one, before eps."""
        norm = numbers.norm(values, self.rule.order)
        return norm / math.sqrt(max(len(values), 1)) if self.rule.mean else norm

    def sizes(self, gradients: Sequence[Sequence[Any]]) -> list[float]:
        """The sizes that the limit bounds: one norm, or one of each gradient; by value each gradient's greatest magnitude."""
        if self.is_joint:
            return [self.norm([value for values in gradients for value in values])]
        return [self.norm(values) if self.is_norm else max(map(abs, values), default=0.0) for values in gradients]

    def clipped(self, gradients: Sequence[Sequence[Any]], limit: float) -> list[list[Any]]:
        """The gradients after the clip."""
        scope = gradclip.Scope.GLOBAL if self.is_joint else gradclip.Scope.TENSOR if self.is_norm else gradclip.Scope.VALUE
        rule = dataclasses.replace(self.rule, scope=scope, relative_to=None, axes=None, unit_axes=False)
        rule = dataclasses.replace(rule, limit=limit) if self.is_norm else dataclasses.replace(rule, lower=-limit, upper=limit)
        return numbers.clipped(rule, list(map(list, gradients)))

    def coefficient(self, norm: float, limit: float) -> float:
        """The factor of elements with this norm."""
        return numbers.factor(self.rule, norm, limit)
