"""The clip of few elements before a step, in few calls.

Between two steps the caches forget gradclip's code. To load all of it for the general clip took three times as long as the
clip of a small model's gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from gradclip.backends.torch import lanes, versions
from gradclip.backends.torch.distributed import TorchDistributed
from gradclip.backends.torch.slot.fused import calls_base, pays
from gradclip.core.coefficient import coefficient
from gradclip.core.registry import get
from gradclip.core.result import ClipResult, of_total
from gradclip.core.rule import GLOBAL

__all__ = ["clip_few"]

_SCALED = ("grad_scale", "found_inf")  # a GradScaler's: the gradients are still scaled


def clip_few(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any, rule: Any) -> ClipResult[Any] | None:
    """Clip an optimizer's gradients in place as the engine would; None, with nothing written, where that takes more.

    It takes few elements in the host's memory, one finite norm over all, and one process.
    """
    if len(args) > 1 or args[0] is not optimizer or kwargs or versions.is_compiling():  # a closure; another hook's twin
        return None
    if not (rule.scope is GLOBAL and rule.is_plain and rule.relative_to is None) or calls_base(type(optimizer)):
        return None
    if not vars(optimizer).keys().isdisjoint(_SCALED) or TorchDistributed.is_running():
        return None
    found = [p.grad for group in optimizer.param_groups for p in group["params"]]
    tensors = [x for x in found if x is not None]
    if not tensors or pays(tensors):
        return None
    backend = get("torch")
    lane = backend.lane(tensors)
    if type(lane) is not lanes.TorchHostLane:
        return None
    norm = lane.total(tensors, rule.order)
    if not norm < math.inf:
        return None
    factor = coefficient(backend, rule, norm, rule.limit)
    lane.scale(tensors, factor, "place")
    return of_total(lane, norm, factor)
