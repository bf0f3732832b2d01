"""A limit that follows the run, in one step: it compares the norm with the limit, and makes the next state."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

from gradclip.backend import Backend
from gradclip.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.limits.arithmetic import arithmetic, tensors
from gradclip.limits.saved import check_count, check_state
from gradclip.registry import as_float, find
from gradclip.rule import Rule, Scope, number_or_tensor

__all__ = ["Carried"]


class Carried:
    """A limit with the state before a step; ``state`` is the one after it.

    It is made for each step anew, so the state goes through a traced function like any argument.

    Args:
        limit: of :mod:`gradclip.limits`, or any object with ``init()``, ``limit(state)`` and ``observe(state, norm)``.
        state: numbers or tensors, with the names of ``limit.init()``.

    Attributes:
        last: the limit of the last step.
    """

    follows_the_run = True  #: a rule accepts it instead of a number

    def __init__(self, limit: Any, state: Mapping[str, Any]) -> None:
        self.rule_of = limit
        self.state: Mapping[str, Any] = dict(state)
        self.last: Any = None

    @property
    def is_each(self) -> bool:
        """Whether it follows the norm of each gradient, with a state for each."""
        return bool(getattr(self.rule_of, "joint", False))

    def copy(self) -> Self:
        """The same limit with the same state; each then moves on its own."""
        return copy.copy(self)

    def move_to(self, other: Carried) -> None:
        """Take over the state of a copy."""
        self.state, self.last = other.state, other.last

    def settle(self, backend: Backend | None, rule: Rule, norm: Any) -> tuple[Rule, Any]:
        """The rule with its limit for this step, and the norm to compare with it; the norm goes into the state."""
        if rule.scope is not (Scope.TENSOR if self.is_each else Scope.GLOBAL):
            what = "This limit follows " + ("the norm of each gradient." if self.is_each else "one norm over all gradients.")
            hint = "use a rule with one norm for each, as keras.clipnorm." if self.is_each else "use a rule with one norm."
            raise ArgumentError(what, f"rule={rule}", hint)
        if not self.is_each:
            return dataclasses.replace(rule, limit=self.step(norm)), norm
        if backend is None:
            return dataclasses.replace(rule, limit=1.0), norm
        return dataclasses.replace(rule, limit=1.0, eps=0.0, min_divisor=0.0), self.step_each(backend, list(norm))

    def check(self, backend: Backend | None, norms: Sequence[Any]) -> None:
        """Refuse norms that this state cannot take."""

    def step(self, norm: Any) -> Any:
        """The limit for this norm, a float or a 0-d tensor; it then adds the norm to the state."""
        norm = as_float(norm)
        held = next(iter(self.state.values()), 0.0)
        owner = find(held) if isinstance(norm, float) and not isinstance(held, (float, list)) else None
        if owner is not None:  # the state is from a run on a device
            norm = owner.asarray(norm, "float32", held)
        backend = None if isinstance(norm, float) else find(norm)
        self.check(backend, [norm])
        if backend is not None and isinstance(held, float):
            self.state = tensors(self.state, norm)
        limit = self.rule_of.limit(self.state)
        if not isinstance(limit, (int, float)) and find(limit) is None:
            limit = number_or_tensor("limit", limit)
        target = getattr(self.rule_of, "target", None)
        if target is not None:
            limit = _lower(backend, norm, limit, target(self.state, norm))
        self.state = self._observed(self.state, norm)
        self.last = limit
        return limit

    def step_each(self, backend: Backend, norms: list[Any]) -> list[Any]:
        """Each norm divided by its limit, for a limit that follows each gradient; it then adds the norms to the state."""
        given = [0.0 if n is None else n for n in norms]
        self.check(backend, given)
        first = next((n for n in given if not isinstance(n, float)), None)
        each = [backend.asarray(n, "float32", first) for n in given] if first is not None else []
        vector = backend.stack(each, "float32") if each else backend.asarray(given, "float32", None)
        state = tensors(self.state, vector, each=len(norms))
        check_count(backend, state, len(norms))
        ops = arithmetic(state)
        finite = ops.where(ops.is_finite(vector), vector, 0.0)
        largest = backend.max(finite, None)
        scaled = finite / ops.most(largest, 1e-30)
        total = ops.where(largest > 0, ops.sqrt(backend.sum(scaled * scaled, None)) * largest, 0.0)
        is_warm = state["count"] >= self.rule_of.warmup
        limits = ops.where(is_warm, self.rule_of.limit(state), self.rule_of.at_first)
        ratio = ops.where(is_warm, vector / ops.most(limits, 1e-30), vector * 0 + total / self.rule_of.at_first)
        ratio = ops.where(ops.is_finite(vector), ratio, vector)
        together = ops.least(1.0 / ops.most(total / self.rule_of.at_first, 1e-30), 1.0)
        self.state = self._observed(state, ops.where(is_warm, vector, vector * together))
        self.last = limits
        return [None if n is None else ratio[i, ...] for i, n in enumerate(norms)]

    def _observed(self, state: Mapping[str, Any], norm: Any) -> dict[str, Any]:
        """The state with this norm; of a limit that is not gradclip's it may be anything."""
        observed = self.rule_of.observe(state, norm)
        if not isinstance(observed, Mapping) or observed.keys() != state.keys():
            received = sorted(observed) if isinstance(observed, Mapping) else shown(observed)
            what = "observe must return the next state, with the names of the state that it takes."
            raise ArgumentTypeError(what, f"{received} for {sorted(state)}")
        if not hasattr(self.rule_of, "range_of"):  # gradclip's own need no test in each step
            check_state(observed, "observe", state)
        return dict(observed)


def _lower(backend: Any, norm: Any, limit: Any, target: Any) -> Any:
    if backend is None:
        return target if norm > limit else limit
    return backend.where(norm > limit, target, limit)
