"""A limit that follows the run, instead of a number."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gradclip.core.backend import Backend
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.registry import as_float, find
from gradclip.core.rule import GLOBAL, TENSOR, Rule, number_or_tensor
from gradclip.limits.arithmetic import arithmetic, numbers, tensors
from gradclip.limits.saved import check_count, check_state, initial, loaded

__all__ = ["Adaptive"]

VERSION = 1


class Adaptive:
    """A limit with its state, for a rule: ``clip_grad_norm(max_norm=gradclip.Adaptive(limits.quantile(0.9)))``.

    Each clip takes the limit from past norms, then adds its own norm. Over several processes that is the reduced norm, so
    all processes have the same limit. On an accelerator the state stays on the device, without synchronisation. While tracing
    it raises: :class:`gradclip.Step` passes the state through.

    Args:
        limit: of :mod:`gradclip.limits`, or any object with ``init()``, ``limit(state)`` and ``observe(state, norm)``.

    Attributes:
        last: the limit of the last clip.

    Raises:
        TypeError: for an object without these methods, or whose state is not a dict of numbers and lists of numbers.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip import limits
        >>> from gradclip.dialects import torch
        >>> adaptive = gradclip.Adaptive(limits.quantile(0.9, warmup=10, at_first=100.0))
        >>> rule = torch.clip_grad_norm(max_norm=adaptive)
        >>> for n in range(20): result = gradclip.clip(np.array([1.0 + n % 2]), rule)
        >>> float(gradclip.clip(np.array([50.0]), rule).grads[0].round(1))
        2.1
    """

    follows_the_run = True  #: a rule accepts it instead of a number
    _is_carried = False  # whether the caller keeps the state after a step

    def __init__(self, limit: Any) -> None:
        missing = [name for name in ("init", "limit", "observe") if not callable(getattr(limit, name, None))]
        if missing:
            hint = "gradclip.limits has some: limits.quantile(0.9)."
            if isinstance(limit, Mapping):
                hint = "a group has its own limit: [Group(rule(Adaptive(l)), name) for name, l in limits.items()]."
            raise ArgumentTypeError(f"A limit has no {' and no '.join(missing)}.", f"limit={shown(limit)}", hint)
        self.rule_of = limit
        self.state: Mapping[str, Any] = initial(limit)
        self.last: Any = None

    @property
    def is_each(self) -> bool:
        """Whether it follows the norm of each gradient, with a state for each."""
        return bool(getattr(self.rule_of, "joint", False))

    def copy(self) -> Adaptive:
        """The same limit with the same state; each then moves on its own."""
        return copy.copy(self)

    def at(self, state: Mapping[str, Any]) -> Adaptive:
        """The same limit in another state, which may be traced: for one step."""
        made = copy.copy(self)
        made.state, made.last, made._is_carried = dict(state), None, True
        return made

    def move_to(self, other: Adaptive) -> None:
        """Take over the state of a copy."""
        self.state, self.last = other.state, other.last

    def check_scope(self, rule: Rule) -> None:
        """Refuse a rule whose norms are not those that it follows."""
        if rule.scope is not (TENSOR if self.is_each else GLOBAL):
            what = "This limit follows " + ("the norm of each gradient." if self.is_each else "one norm over all gradients.")
            hint = "use a rule with one norm for each, as keras.clipnorm." if self.is_each else "use a rule with one norm."
            raise ArgumentError(what, f"rule={rule}", hint)

    def settle(self, backend: Backend | None, rule: Rule, norm: Any) -> tuple[Rule, Any]:
        """The rule with its limit for this step, and the norm to compare with it; the norm goes into the state."""
        self.check_scope(rule)
        if not self.is_each:
            return dataclasses.replace(rule, limit=self.step(norm)), norm
        if backend is None:
            return dataclasses.replace(rule, limit=1.0), norm
        return dataclasses.replace(rule, limit=1.0, eps=0.0, min_divisor=0.0), self.step_each(backend, list(norm))

    def step(self, norm: Any) -> Any:
        """The limit for this norm, a float or a 0-d tensor; it then adds the norm to the state."""
        norm = as_float(norm)
        first = next(iter(self.state.values()), 0.0)
        theirs = find(first) if isinstance(norm, float) and not isinstance(first, (float, list)) else None
        if theirs is not None:  # the state is from a run on a device
            norm = theirs.asarray(norm, "float32", first)
        backend = None if isinstance(norm, float) else find(norm)
        self._check(backend, [norm])
        if backend is not None and isinstance(first, float):
            self.state = tensors(self.state, norm)
        limit = self.rule_of.limit(self.state)
        if not isinstance(limit, (int, float)) and find(limit) is None:
            limit = number_or_tensor("limit", limit)
        target = getattr(self.rule_of, "target", None)
        if target is not None:
            limit = _lower(backend, norm, limit, target(self.state, norm))
        self.state = self._observed(self.state, self._constant(backend, norm))
        self.last = self._constant(backend, limit)
        return limit

    def step_each(self, backend: Backend, norms: list[Any]) -> list[Any]:
        """Each norm divided by its limit, for a limit that follows each gradient; it then adds the norms to the state."""
        given = [0.0 if n is None else n for n in norms]
        self._check(backend, given)
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
        self.state = self._observed(state, self._constant(backend, ops.where(is_warm, vector, vector * together)))
        self.last = limits
        return [None if n is None else ratio[i, ...] for i, n in enumerate(norms)]

    def grow(self, before: int, count: int) -> None:
        """Let a limit that follows each gradient follow more: those after the first ``before`` begin anew."""
        first = initial(self.rule_of)
        for name, x in numbers(self.state).items() if self.is_each else ():
            if isinstance(x, list) and len(x) == before and not isinstance(first[name], (list, tuple)):
                self.state = {**self.state, name: [*x, *[float(first[name])] * (count - before)]}

    def _constant(self, backend: Backend | None, x: Any) -> Any:
        """For a state in this object: a constant, since it would keep what autograd has recorded of all steps."""
        is_tensor = not self._is_carried and backend is not None and find(x) is backend
        return backend.detach(x) if is_tensor and backend is not None else x

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

    def _check(self, backend: Backend | None, norms: Sequence[Any]) -> None:
        """Refuse norms that are traced: this object would keep the values of a trace."""
        if self._is_carried or backend is None:
            return
        if any(not isinstance(n, float) and not backend.can_read(n) for n in norms):
            hint = "gradclip.Step(rule) passes it through: state = step.init(grads), step.update(grads, state)."
            raise ArgumentError("A limit that holds its state cannot be traced.", "norms that are traced", hint)

    def state_dict(self) -> dict[str, Any]:
        """The state, as numbers and lists, with a version."""
        return {"version": VERSION, "of": getattr(self.rule_of, "version", 1), "state": numbers(self.state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: for a state of another version or another limit, for an entry that is missing or wrong, and for a limit
                whose state a program has; then nothing changes.
        """
        if not isinstance(self.state, dict):
            hint = "load the state before the program is built."
            raise ArgumentError("The state of this limit is in the variables of a program.", f"limit={self}", hint)
        self.state = loaded(state, {"version": VERSION, "of": getattr(self.rule_of, "version", 1)}, self.rule_of, self.is_each)

    def __repr__(self) -> str:
        return f"Adaptive({type(self.rule_of).__name__})"


def _lower(backend: Any, norm: Any, limit: Any, target: Any) -> Any:
    if backend is None:
        return target if norm > limit else limit
    return backend.where(norm > limit, target, limit)
