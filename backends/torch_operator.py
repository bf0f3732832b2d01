"""What ``torch.compile`` calls as it is: a whole clip, and the compiled loops, as operators. No backend itself.

Inductor would make loops for each gradient, which for some hundred takes it a minute, and always writes them. The compiled
loops take all gradients of the host at once, as fast as eagerly, and where nothing is clipped only read.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradclip import __version__
from gradclip.backend import Tensor
from gradclip.backends import kernels, torch_memory
from gradclip.dtypes import normal_factors
from gradclip.engine import UNKNOWN, Asked, run
from gradclip.gradients import Gradients
from gradclip.groups import Rules
from gradclip.legacy import LegacyLane
from gradclip.registry import get
from gradclip.rule import GLOBAL, VALUE, ClipResult, Rule
from gradclip.tracing import constant

__all__ = ["clamp_", "clip", "is_transformed", "norms", "plain", "scale_", "takes", "takes_bounds", "whole"]

_NARROW = {torch.float32, torch.float16, torch.bfloat16}  # whose squares neither overflow nor vanish in float64
#: below so many gradients, and elements of all, Inductor's loops take less than a call; norms of halves are slower in them
_MANY, _LARGE, _LARGE_HALVES = 32, 1 << 18, 1 << 15
#: the same for bounds, which gain less by a call
_LARGE_BOUNDS, _LARGE_BOUNDS_OF_HALVES = 1 << 25, 1 << 24
_VERSION = "v" + re.sub(r"\W", "_", __version__)


def takes(tensors: Sequence[Tensor], *, measures: bool = False) -> bool:
    """Whether these are gradients, while compiling, that the operators are for: in the host's memory, without derivatives.

    ``measures`` asks it of the norm alone.
    """
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting() or not kernels.KINDS or not tensors:
        return False
    dtype = tensors[0].dtype
    if dtype not in _NARROW or is_transformed():
        return False
    large = _LARGE_HALVES if measures and dtype != torch.float32 else _LARGE
    if len(tensors) < _MANY and sum(x.numel() for x in tensors) < large:
        return False
    for x in tensors:
        is_known = type(x) in torch_memory.TYPES or not torch.compiler.is_dynamo_compiling()
        if not is_known or x.dtype != dtype or x.device.type != "cpu":
            return False
        if not torch_memory.is_dense(x) or (x.requires_grad and torch.is_grad_enabled()):
            return False
    return True


def plain(tensors: Sequence[Tensor]) -> str:
    """What :meth:`gradclip.Backend.plain` says while compiling: of whole gradients of one dtype that are in order."""
    if len(set(tensors)) < len(tensors) or any(x.requires_grad or not x.is_contiguous() for x in tensors):
        return ""
    return _plain([type(x) for x in tensors], [x.dtype for x in tensors], [x.layout for x in tensors])


@constant
def _plain(types: list[type], dtypes: list[torch.dtype], layouts: list[torch.layout]) -> str:
    if torch.compiler.is_exporting() or is_transformed() or not _NARROW.issuperset(dtypes) or len(set(dtypes)) > 1:
        return ""
    return str(dtypes[0]).removeprefix("torch.") if set(types) <= torch_memory.TYPES and set(layouts) == {torch.strided} else ""


@constant
def is_transformed() -> bool:
    """Whether this is inside ``torch.func.vmap``, ``grad`` or the like, or a derivative in forward mode is taken."""
    return torch._C._functorch.maybe_current_level() is not None or torch.autograd.forward_ad._current_level >= 0


def takes_bounds(tensors: Sequence[Tensor]) -> bool:
    """The same for bounds, which are no faster as an operator while the gradients are in the cache."""
    if not takes(tensors):
        return False
    large = _LARGE_BOUNDS if tensors[0].dtype == torch.float32 else _LARGE_BOUNDS_OF_HALVES
    return bool(sum(x.numel() for x in tensors) >= large)


def whole(opened: Gradients, rules: Rules, asked: Asked) -> ClipResult | None:
    """A whole clip while compiling as a single operation; None for the engine."""
    if not torch.compiler.is_dynamo_compiling() or not isinstance(rules, Rule) or asked.norm is not UNKNOWN:
        return None
    if asked.reduce is not None or len(opened.present) < len(opened.leaves) or not rules.is_plain or not opened.present:
        return None
    if (asked.into != "place") if asked.until == "scale" else (asked.until != "norm" or rules.is_by_value):
        return None
    found = clip(opened.present, rules, asked.until) if opened.lane.dtype else None
    return None if found is None else ClipResult(opened.rebuild(opened.leaves) if asked.until == "scale" else None, *found)


def clip(tensors: Sequence[Tensor], rule: Rule, stage: str) -> tuple[Any, Any] | None:
    """Plain gradients clipped in place, or measured only, by a single operator; None where there is none for this rule.

    Of what TorchDynamo has read in gradclip while it traced, it makes sure in each call that it is still the same, which takes
    longer than to clip small gradients. It does not read what an operator does; AOTAutograd traces that, and leaves no checks.
    """
    if rule.is_by_value:
        _CLIP_BY_VALUE_(tensors, rule.lower, rule.upper)
        return None, None
    if not rule.is_total or rule.floor or rule.nan_if_infinite or rule.keep_if_nan or rule.error_if_nonfinite:
        return None
    if not 0 < rule.order < math.inf:  # whose errors would come as the compiler's
        return None
    if stage == "norm":
        return _NORM(tensors, rule.order), None
    found: tuple[Tensor, Tensor] = _CLIP_BY_NORM_(tensors, rule.order, rule.limit, rule.eps)
    return found


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each, a vector of float64."""
    found: Tensor = torch.ops.gradclip.norms(tensors)
    return found


def scale_(tensors: Sequence[Tensor], coefficient: Tensor) -> None:
    """``x *= coefficient`` for each, by a 0-d tensor; from 1 on nothing is written."""
    if tensors:
        torch.ops.gradclip.scale_(tensors, coefficient)


def clamp_(tensors: Sequence[Tensor], lower: float, upper: float) -> None:
    """``x = max(min(x, upper), lower)`` for each."""
    torch.ops.gradclip.clamp_(tensors, lower, upper)


# ---- a whole clip, as AOTAutograd traces it ------------------------------------------------------------------------------


def _clip_by_norm_(gradients: list[Tensor], order: float, limit: Any, eps: float) -> tuple[Tensor, Tensor]:
    if not isinstance(limit, (int, float)):  # one that differs from call to call: as a tensor it needs no other program
        return _carried_out(gradients, torch.ones((), dtype=torch.float64) * limit, eps, order)
    # a single element may be a negated view, which no operator can be given to write
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
    """Gradients that are known to be plain where they are traced: what stands for them there does not show it."""
    backend = get("torch")
    plain = backend.dtype(gradients[0]) if torch.compiler.is_compiling() else backend.plain(gradients)
    lane = LegacyLane(backend, plain)
    return Gradients(backend, gradients, gradients, [None] * len(gradients), list, gradients, chosen_lane=lane)


def _tensor(found: Any) -> Tensor:
    return found if isinstance(found, torch.Tensor) else torch.scalar_tensor(found, dtype=torch.float32)


# ---- the loops ------------------------------------------------------------------------------------------------------------


def _norms(gradients: list[Tensor]) -> Tensor:
    held = [x for x in gradients if x.numel()]
    kind = torch_memory.kind_of(held) if held else None
    if kind is not None:
        found: Iterator[float] = map(math.sqrt, torch_memory.squares(held, kind))
    else:  # in a graph that is run by other means
        found = (float(torch.linalg.vector_norm(x, dtype=torch.float64)) for x in held)
    return torch.tensor([next(found) if x.numel() else 0.0 for x in gradients], dtype=torch.float64, device="cpu")


def _scale_(gradients: list[Tensor], coefficient: Tensor) -> None:
    factors = normal_factors(float(coefficient))
    held = [x for x in gradients if x.numel()]
    if factors[0] >= 1 or not held:
        return
    kind = torch_memory.kind_of(held)
    if kind is None or len(factors) > 1:
        for x in held:
            x.copy_(functools.reduce(operator.mul, factors, x.float()))
        return
    torch_memory.multiply(held, held, kind, factors[0])
    torch.autograd.graph.increment_version([x for x in held if not x.is_inference()])


def _clamp_(gradients: list[Tensor], lower: float, upper: float) -> None:
    held = [x for x in gradients if x.numel()]
    kind = torch_memory.kind_of(held) if held else None
    if kind is None:
        for x in held:
            x.copy_(x.float().clamp(lower, upper))
        return
    torch_memory.clamp(held, torch_memory.sizes_of(held), kind, lower, upper)
    torch.autograd.graph.increment_version([x for x in held if not x.is_inference()])


def _scalar(like: Tensor) -> Tensor:
    return like.new_empty((), dtype=torch.float32)


if not hasattr(torch.ops.gradclip, "norms"):  # a process may import this twice
    _LIBRARY = torch.library.Library("gradclip", "FRAGMENT")
    _LIBRARY.define("norms(Tensor[] gradients) -> Tensor")
    _LIBRARY.define("clip_(Tensor(a!)[] gradients, float limit, float eps) -> (Tensor, Tensor)")
    _LIBRARY.define("scale_(Tensor(a!)[] gradients, Tensor coefficient) -> ()")
    _LIBRARY.define("clamp_(Tensor(a!)[] gradients, float lower, float upper) -> ()")
    _LIBRARY.impl("norms", _norms, "CPU")
    _LIBRARY.impl("clip_", _carried_out, "CPU")
    _LIBRARY.impl("scale_", _scale_, "CPU")
    _LIBRARY.impl("clamp_", _clamp_, "CPU")
    _describe = functools.partial(torch.library.register_fake, lib=_LIBRARY)
    _describe("gradclip::norms", lambda gradients: gradients[0].new_empty(len(gradients), dtype=torch.float64))
    _describe("gradclip::clip_", lambda gradients, limit, eps: (_scalar(gradients[0]), _scalar(gradients[0])))
    _describe("gradclip::scale_", lambda gradients, coefficient: None)
    _describe("gradclip::clamp_", lambda gradients, lower, upper: None)
    # a cache of compiled programs knows these by their names only, not by what was traced: another version has other names
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
