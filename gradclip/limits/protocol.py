"""The protocol of a limit that follows the run: three pure functions of a state; and the base class of gradclip's limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from gradclip.core.errors import ArgumentError
from gradclip.limits.arithmetic import Floats, Tensors, arithmetic

__all__ = ["Following", "Limit"]

State = dict[str, Any]


class Limit(Protocol):
    """A limit as three pure functions. A state has a fixed size: a dict of numbers and lists of numbers.

    With a fourth, ``target(state, norm)``, a norm above ``limit(state)`` is scaled to the target, which must not be
    above the limit.
    """

    def init(self) -> State:
        """The state before the first step, of numbers."""

    def limit(self, state: State) -> Any:
        """The limit for the next step, from the past steps only."""

    def observe(self, state: State, norm: Any) -> State:
        """The state after a step with this norm, before it was clipped."""


class Following:
    """The base of gradclip's limits. In each step, in this order:

    - for the first ``warmup`` norms the limit is fixed, ``at_first``;
    - a norm that is 0 or not finite does not change the limit;
    - a norm counts as at most ``winsor`` times the limit, so an outlier cannot raise the limit by more;
    - after ``patience`` norms in a row that were not finite, or above ``winsor`` times the limit, the state is reset and
      it warms up again: it never refuses for ever.
    """

    version = 1
    wholes: tuple[str, ...] = ("count", "refused", "not_finite")  #: the entries of the state that are whole numbers

    def __init__(self, *, warmup: int, at_first: float, winsor: float, patience: int) -> None:
        for name, value in (("warmup", warmup), ("at_first", at_first), ("winsor", winsor), ("patience", patience)):
            if not value > 0:
                raise ArgumentError(f"{name} must be positive.", f"{name}={value}")
        self.warmup, self.at_first, self.winsor, self.patience = warmup, float(at_first), float(winsor), patience
        self.far = self.winsor  #: times the limit: a norm above this is refused

    def blank(self) -> State:
        """The state before the first norm."""
        raise NotImplementedError

    def range_of(self, name: str) -> tuple[float, float]:
        """The least and the largest number of an entry of the state."""
        return 0.0, math.inf

    def known(self, ops: Floats | Tensors, state: Mapping[str, Any]) -> Any:
        """The limit after the warm-up."""
        raise NotImplementedError

    def learn(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> State:
        """The state after a finite, positive, winsorised norm."""
        raise NotImplementedError

    def init(self) -> State:
        """The state before the first step."""
        return {"count": 0.0, "refused": 0.0, "not_finite": 0.0, **self.blank()}

    def limit(self, state: Mapping[str, Any]) -> Any:
        """The limit for the next step."""
        ops = arithmetic(state)
        return ops.where(state["count"] >= self.warmup, self.known(ops, state), self.at_first)

    def winsorised(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> Any:
        """A norm as it counts after the warm-up."""
        return ops.least(norm, self.limit(state) * self.winsor) if self.winsor < math.inf else norm

    def observe(self, state: Mapping[str, Any], norm: Any) -> State:
        """The state after a step with this norm."""
        ops = arithmetic(state)
        finite = ops.is_finite(norm)
        norm = ops.where(finite, norm, 0.0)
        is_warm = state["count"] >= self.warmup
        seen = ops.where(is_warm, self.winsorised(ops, state, norm), norm)
        says = ops.both(finite, norm > 0)
        learnt = self.learn(ops, state, ops.where(says, seen, 1.0))  # the 1.0 is not used: the state stays
        is_far = ops.both(is_warm, norm > self.limit(state) * self.far)
        refused = ops.where(finite, ops.where(is_far, state["refused"] + 1, 0.0), state["refused"] + 1)
        after: State = {name: ops.where(says, x, state[name]) for name, x in learnt.items()}
        after["count"] = ops.where(says, state["count"] + 1, state["count"])
        after["not_finite"] = ops.where(finite, state["not_finite"], state["not_finite"] + 1)
        begins = refused >= self.patience
        fresh = {**self.blank(), "count": 0.0}
        after = {name: ops.where(begins, fresh[name], x) if name in fresh else x for name, x in after.items()}
        after["refused"] = ops.where(begins, 0.0, refused)
        return {name: after[name] for name in state}
