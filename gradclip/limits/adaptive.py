"""A limit that follows the run, instead of a number."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gradclip.backend import Backend
from gradclip.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.groups import Group
from gradclip.limits.arithmetic import numbers
from gradclip.limits.carried import Carried
from gradclip.limits.saved import initial, loaded

__all__ = ["Adaptive", "adaptives", "exchanged"]

VERSION = 1


class Adaptive(Carried):
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

    def __init__(self, limit: Any) -> None:
        missing = [name for name in ("init", "limit", "observe") if not callable(getattr(limit, name, None))]
        if missing:
            hint = "gradclip.limits has some: limits.quantile(0.9)."
            if isinstance(limit, Mapping):
                hint = "a group has its own limit: [Group(rule(Adaptive(l)), name) for name, l in limits.items()]."
            raise ArgumentTypeError(f"A limit has no {' and no '.join(missing)}.", f"limit={shown(limit)}", hint)
        super().__init__(limit, initial(limit))

    def check(self, backend: Backend | None, norms: Sequence[Any]) -> None:
        """Refuse norms that are traced: this object would keep the values of a trace."""
        if backend is not None and any(not isinstance(n, float) and not backend.can_read(n) for n in norms):
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


def adaptives(groups: Sequence[Group]) -> list[Adaptive]:
    """The limits of these rules that follow the run, each once."""
    limits = [x for group in groups for x in (group.rule.limit, group.rule.skip_above)]
    return list({id(x): x for x in limits if isinstance(x, Adaptive)}.values())


def exchanged(rules: Any, limits: Mapping[int, Any], **others: Any) -> Any:
    """A rule or groups with some limits replaced, by the ids of the old ones, and with other fields."""
    if isinstance(rules, (list, tuple)):
        return [exchanged(group, limits, **others) for group in rules]
    if isinstance(rules, Group):
        return dataclasses.replace(rules, rule=exchanged(rules.rule, limits, **others))
    limit, above = (limits.get(id(x), x) for x in (rules.limit, rules.skip_above))
    return dataclasses.replace(rules, **{"limit": limit, "skip_above": above, **others})
