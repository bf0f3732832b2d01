"""A complete clip as one operator for ``torch.compile``. It wraps the engine, as a slot does.

Dynamo guards every name that it traced; on small gradients the guards cost more than the clip. It does not trace
the inside of an operator. AOTAutograd does, and leaves no guards.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

import torch

from gradclip import __version__
from gradclip.backend import Tensor
from gradclip.backends.torch import versions
from gradclip.backends.torch.compiled import CompiledLane, takes
from gradclip.engine import UNKNOWN, Asked, run
from gradclip.gradients import Gradients
from gradclip.groups import Rules
from gradclip.registry import get
from gradclip.result import Found
from gradclip.rule import GLOBAL, VALUE, Rule

__all__ = ["whole"]

_VERSION = "v" + re.sub(r"\W", "_", __version__)


def whole(opened: Gradients, rules: Rules, asked: Asked) -> Found | None:
    """A complete clip while compiling, in place or only measured, as one operation; None for the engine."""
    if not torch.compiler.is_dynamo_compiling() or not isinstance(rules, Rule) or asked.norm is not UNKNOWN:
        return None
    if asked.reduce is not None or len(opened.present) < len(opened.leaves) or not rules.is_plain or not opened.present:
        return None
    if (asked.into != "place") if asked.until == "scale" else (asked.until != "norm" or rules.is_by_value):
        return None
    found = _operated(opened.present, rules, asked.until) if opened.lane.dtype else None
    return None if found is None else Found(opened.rebuild(opened.leaves) if asked.until == "scale" else None, *found)


def _operated(tensors: Sequence[Tensor], rule: Rule, until: str) -> tuple[Any, Any] | None:
    """The norm and the coefficient, by the operator for this rule; None without one."""
    if rule.is_by_value:
        _CLIP_BY_VALUE_(tensors, rule.lower, rule.upper)
        return None, None
    if (
        not rule.is_total
        or rule.if_nonfinite == "zero"
        or rule.floor
        or rule.nan_if_infinite
        or rule.keep_if_nan
        or rule.error_if_nonfinite
    ):
        return None
    if not 0 < rule.order < math.inf:  # in the operator its errors would become the compiler's
        return None
    if until == "norm":
        return _NORM(tensors, rule.order), None
    found: tuple[Tensor, Tensor] = _CLIP_BY_NORM_(tensors, rule.order, rule.limit, rule.eps)
    return found


# ---- traced by AOTAutograd -------------------------------------------------------------------------------------------------


def _clip_by_norm_(gradients: list[Tensor], order: float, limit: Any, eps: float) -> tuple[Tensor, Tensor]:
    if not isinstance(limit, (int, float)):  # a limit that changes from call to call: as a tensor it needs no new program
        return _carried_out(gradients, torch.ones((), dtype=torch.float64) * limit, eps, order)
    # a single element may be a negated view, which an operator cannot write
    if order == 2 and takes(gradients) and not any(map(torch.Tensor.is_neg, gradients)):
        found: tuple[Tensor, Tensor] = torch.ops.gradclip.clip_(gradients, limit, eps)
        return found
    return _carried_out(gradients, limit, eps, order)


def _clip_by_value_(gradients: list[Tensor], lower: float, upper: float) -> None:
    run(_opened(gradients), Rule(name="clip", scope=VALUE, lower=lower, upper=upper), Asked("place"))


def _norm(gradients: list[Tensor], order: float) -> Tensor:
    return _tensor(run(_opened(gradients), Rule(name="norm", scope=GLOBAL, order=order), Asked(until="norm")).norm)


def _carried_out(gradients: list[Tensor], limit: Any, eps: float, order: float = 2.0) -> tuple[Tensor, Tensor]:
    rule = Rule(name="clip", scope=GLOBAL, order=order, limit=limit, eps=eps)
    result = run(_opened(gradients), rule, Asked("place"))
    return _tensor(result.norm), _tensor(result.coefficient)


def _opened(gradients: list[Tensor]) -> Gradients:
    backend = get("torch")
    # while tracing, the stand-ins do not show that gradients are distinct and contiguous, which was tested before
    lane = CompiledLane(backend, backend.dtype(gradients[0])) if versions.is_compiling() else None
    return Gradients(backend, gradients, gradients, [None] * len(gradients), list, gradients, chosen_lane=lane)


def _tensor(found: Any) -> Tensor:
    return found if isinstance(found, torch.Tensor) else torch.scalar_tensor(found, dtype=torch.float32)


def _scalar(like: Tensor) -> Tensor:
    return like.new_empty((), dtype=torch.float32)


if not hasattr(torch.ops.gradclip, "clip_"):  # a process may import this twice
    _LIBRARY = torch.library.Library("gradclip", "FRAGMENT")
    _LIBRARY.define("clip_(Tensor(a!)[] gradients, float limit, float eps) -> (Tensor, Tensor)")
    _LIBRARY.impl("clip_", _carried_out, "CPU")
    _describe = functools.partial(torch.library.register_fake, lib=_LIBRARY)
    _describe("gradclip::clip_", lambda gradients, limit, eps: (_scalar(gradients[0]), _scalar(gradients[0])))
    # a cache of compiled programs knows operators only by name, so each version has new names
    _LIBRARY.define(f"norm.{_VERSION}(Tensor[] gradients, float order) -> Tensor")
    _LIBRARY.define(
        f"clip_by_norm_.{_VERSION}(Tensor(a!)[] gradients, float order, Scalar limit, float eps) -> (Tensor, Tensor)"
    )
    _LIBRARY.define(f"clip_by_value_.{_VERSION}(Tensor(a!)[] gradients, float lower, float upper) -> ()")
    _LIBRARY.impl(f"norm.{_VERSION}", _norm, "CompositeImplicitAutograd")
    _LIBRARY.impl(f"clip_by_norm_.{_VERSION}", _clip_by_norm_, "CompositeImplicitAutograd")
    _LIBRARY.impl(f"clip_by_value_.{_VERSION}", _clip_by_value_, "CompositeImplicitAutograd")

_NORM = getattr(torch.ops.gradclip.norm, _VERSION)
_CLIP_BY_NORM_ = getattr(torch.ops.gradclip.clip_by_norm_, _VERSION)
_CLIP_BY_VALUE_ = getattr(torch.ops.gradclip.clip_by_value_, _VERSION)

versions.run_between_graphs()
