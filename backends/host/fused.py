"""A complete clip in the host's memory in few calls: small gradients take less time than the calls of the engine."""

from __future__ import annotations

import math
from typing import Any

from gradclip.core.coefficient import coefficient
from gradclip.core.engine import UNKNOWN, Options
from gradclip.core.gradients import Gradients
from gradclip.core.groups import Rules
from gradclip.core.mistakes import refuse_states
from gradclip.core.result import Outcome
from gradclip.core.rule import GLOBAL, VALUE, Rule

__all__ = ["fused", "is_complete"]


def fused(grads: Gradients, rule: Rules, options: Options) -> Outcome | None:
    """The clip of all gradients by a rule of numbers, as the engine makes it; None where that has more to do."""
    if not isinstance(rule, Rule) or not rule.is_plain or rule.mean or rule.relative_to is not None:
        return None
    if not is_complete(grads, options):
        return None
    backend, lane, tensors, into = grads.backend, grads.lane, grads.present, options.into
    assert backend is not None
    if into == "place":
        refuse_states(backend, grads.container.tree, tensors, grads.params)
        backend.check_writable(tensors[0])
    norm: Any = None
    factor: Any = None
    with backend.arithmetic(False):
        if rule.scope is VALUE:
            new = lane.clamp(tensors, rule.lower, rule.upper, into)
            bounds = {0: (rule.lower, rule.upper, range(len(tensors)))}
            return Outcome(grads.container.rebuild(new), None, None, [], bounds=bounds)
        if rule.scope is GLOBAL:
            norm = lane.total(tensors, rule.order)
            if not norm < math.inf:
                return None  # the engine names the culprits
            factor = coefficient(backend, rule, norm, rule.limit)
        else:
            norm = lane.each(tensors, rule.order)
            if not all(map(math.isfinite, norm)):
                return None
            factor = [coefficient(backend, rule, n, rule.limit) for n in norm]
        new = lane.scale(tensors, factor, into)
    return Outcome(grads.container.rebuild(new), norm, factor, [], bounds={})


def is_complete(grads: Gradients, options: Options) -> bool:
    """Whether the call is a whole clip, of gradients that this process alone has, without a gap."""
    backend = grads.backend
    if options.until != "scale" or options.norm is not UNKNOWN or not grads.lane.dtype or backend is None:
        return False
    if options.reduce is not None or options.shards is not None or len(grads.present) < len(grads.leaves):
        return False
    return not backend.distributed.is_running() and backend.distributed.doubt(grads.present) is None
