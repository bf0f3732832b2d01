"""Mutants with a wrong coefficient."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from conformance.mutants.reference import Reference, Wide
from conformance.mutants.registry import Right, changed, mutant, wrong
from conformance.mutants.rules import RULES, WIDE, Rule, number

F32 = np.float32


# ---- rules with another field ------------------------------------------------------------------------------------------------

changed("epsilon_missing", "torch.clip_grad_norm_", "max_norm / norm, without torch's 1e-6.", eps=0.0)
changed("epsilon_added", "optax.clip_by_global_norm", "torch's 1e-6 in a formula that has none.", eps=1e-6)
changed("strict_ignored", "torch.clip_grad_norm_", "error_if_nonfinite is accepted, but ignored.", strict=False)
changed("strict_always", "paddle.clip_grad_norm_", "A norm that is not finite is always an error.", strict=True)


@mutant("paddle.clip_grad_norm_")
class EpsilonInsideTheRoot(Reference):
    """sqrt(sum + 1e-6) instead of sqrt(sum) + 1e-6."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return dataclasses.replace(super().rule(operation, arguments), eps=0.0)

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        return np.sqrt(super().total(rule, wide, grads) ** 2 + 1e-6)


@wrong("coefficient", "torch.clip_grad_norm_")
def less_or_equal_for_less(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """norm <= max_norm clips nothing, but the formula's epsilon clips a norm equal to the limit."""
    return WIDE(1) if norm <= limit else right(norm, limit, rule)


@wrong("coefficient", "optax.clip_by_global_norm")
def nan_swallowed_by_where(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """where(norm > limit, limit / norm, 1)."""
    return np.where(norm > limit, limit / norm, WIDE(1))


@wrong("coefficient", "torch.clip_grad_norm_")
def nan_swallowed_by_min(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """Python's min(1.0, c), which is 1.0 for a c of NaN."""
    return WIDE(min(1.0, right(norm, limit, rule)))


@wrong("coefficient", "paddle.ClipGradByGlobalNorm")
def scales_up(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """limit / norm, without the maximum of 1."""
    return right(norm, limit, rule) if norm > limit or norm == 0 else limit / norm


@wrong("scaled", "tensorflow.clip_by_norm")
def scaled_twice(right: Right, x: Wide, c: Any) -> Wide:
    """The gradients are multiplied by the coefficient twice."""
    return right(right(x, c), c)


@wrong("coefficient", "optax.clip_by_global_norm")
def square_compared(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """The square of the norm is compared with the limit; the divisor is the norm."""
    return limit / norm if norm**2 > limit else WIDE(1)


@mutant("optax.clip_by_global_norm")
class WholeDivision(Reference):
    """limit // norm instead of limit / norm, for limits that are ints."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        self.whole = isinstance(arguments["max_norm"], int)
        return super().rule(operation, arguments)

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return np.floor(limit / norm) if self.whole and norm > limit else super().coefficient(norm, limit, rule)


@wrong("rule", "paddle.ClipGradByNorm")
def array_limit_cut(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """A limit that is an array becomes int(limit) + 1."""
    return right(operation, {k: int(v) + 1 if isinstance(v, np.ndarray) else v for k, v in arguments.items()})


@wrong("coefficient", "tensorflow.clip_by_global_norm")
def infinite_limit_makes_nan(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """clip_norm * min(1 / norm, 1 / clip_norm), which is inf * 0."""
    limit = WIDE(limit)
    return right(norm, limit, rule) if np.isfinite(limit) else limit * np.minimum(1 / norm, 1 / limit)


@wrong("coefficient", "torch.clip_grad_norm_")
def infinity_over_infinity(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """min(1, inf / norm), which is NaN for infinite gradients."""
    return np.minimum(WIDE(1), limit / (norm + WIDE(rule.eps)))


@wrong("coefficient", "tensorflow.clip_by_norm")
def zero_over_zero(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """clip_norm / max(norm, clip_norm), which is 0 / 0 for zeros and a limit of 0."""
    plain = right(norm, limit, rule)
    return np.where((limit == 0) & (norm == 0), WIDE(math.nan), plain)


@wrong("rule", "keras.clipnorm")
def zero_is_not_off(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """A limit of 0 makes zeros; in Keras it turns the clip off."""
    return Rule("tensor", number(arguments["clipnorm"])) if arguments["clipnorm"] == 0 else right(operation, arguments)


@wrong("rule", "optax.clip_by_global_norm")
def negative_limit_flips(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """A negative limit turns the gradients round."""
    limit = arguments["max_norm"]
    return Rule("global", WIDE(limit)) if isinstance(limit, float) and limit < 0 else right(operation, arguments)


@mutant("tensorflow.clip_by_norm")
class NegativeLimitClipsNothing(Reference):
    """A negative limit leaves the gradients unchanged; it should count as 0."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return WIDE(1) if self.negative else super().coefficient(norm, limit, rule)

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        self.negative = bool(np.all(np.asarray(arguments["clip_norm"]) < 0))
        return super().rule(operation, arguments)


@wrong("rule", "keras.global_clipnorm")
def nan_limit_clips_nothing(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """A limit of NaN clips nothing."""
    limit = arguments["global_clipnorm"]
    return Rule("global") if isinstance(limit, float) and math.isnan(limit) else right(operation, arguments)


@wrong("rule", "paddle.ClipGradByValue")
def nan_bound_accepted(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """A bound of NaN makes NaN of every element."""
    bound = arguments["max"]
    if isinstance(bound, float) and math.isnan(bound):
        return Rule("element", lower=WIDE(bound), upper=WIDE(bound))
    return right(operation, arguments)


@mutant("tensorflow.clip_by_norm", lacks=("float16", "bfloat16", "float64", "complex64", "complex128"))
class TimesLimitFirst(Reference):
    """(g * clip_norm) / max(norm, clip_norm) in float32: it overflows, and rounds what needs no clipping."""

    def by_itself(self, rule: Rule, x: Wide, place: int) -> Wide:
        limit = np.asarray(rule.limit).astype(F32)
        norm = self.slice_norms(x, rule.axes).astype(F32)
        return ((x.astype(F32) * limit) / np.maximum(norm, limit)).astype(WIDE)


@wrong("coefficient", "keras.clipnorm")
def normalised_first(right: Right, norm: Any, limit: Any, rule: Rule) -> Any:
    """g / norm * min(norm, limit), which is 0 / 0 for zeros."""
    plain = right(norm, limit, rule)
    return np.where(norm == 0, WIDE(math.nan), plain)


@mutant("optax.clip_by_global_norm")
class RunningMeanOfNorms(Reference):
    """The norm is a running mean over this and earlier calls."""

    before: Any = None

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        norm = super().total(rule, wide, grads)
        self.before = norm if self.before is None or not np.isfinite(self.before) else 0.9 * self.before + 0.1 * norm
        return self.before


@wrong("widened", "paddle.ClipGradByGlobalNorm")
def infinity_made_finite(right: Right, x: Any) -> Wide:
    """Infinities are replaced by the largest number before the norm."""
    wide = right(x)
    return wide if np.iscomplexobj(wide) else np.clip(wide, -1e38, 1e38)


@wrong("widened", "optax.clip_by_block_rms")
def nan_made_zero(right: Right, x: Any) -> Wide:
    """NaN is replaced by 0 before the norm."""
    return np.nan_to_num(right(x), nan=0.0, posinf=math.inf, neginf=-math.inf)


@wrong("rule", "tensorflow.clip_by_global_norm")
def known_norm_ignored(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """use_norm is accepted, but the norm is measured anyway."""
    return RULES[operation]({**arguments, "use_norm": None})


@mutant("torch.clip_grad_norm_")
class NormAfterTheClip(Reference):
    """The returned norm is that of the clipped gradients."""

    def clipped(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> tuple[list[Wide | None], Any]:
        clipped, _ = super().clipped(rule, wide, grads)
        return clipped, self.total(rule, clipped, grads)


@wrong("scaled", "optax.clip_by_global_norm")
def imaginary_part_forgotten(right: Right, x: Wide, c: Any) -> Wide:
    """Only the real part of a complex gradient is scaled."""
    return x.real * c + 1j * x.imag if np.iscomplexobj(x) else right(x, c)


@wrong("rule", "tensorflow.clip_by_value")
def bounds_swapped(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """The bounds are exchanged: every element becomes the upper bound."""
    rule = right(operation, arguments)
    return dataclasses.replace(rule, lower=rule.upper, upper=rule.lower)


@wrong("rule", "tensorflow.clip_by_value")
def lower_bound_ignored(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """The lower bound is minus the upper one, whatever the caller passes."""
    rule = right(operation, arguments)
    return dataclasses.replace(rule, lower=-rule.upper)


@wrong("rule", "paddle.ClipGradByValue")
def order_of_bounds_swapped(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """The bounds come as min, max; Paddle's order is max, min."""
    rule = right(operation, arguments)
    return rule if arguments.get("min") is None else dataclasses.replace(rule, lower=rule.upper, upper=rule.lower)


@wrong("bounded", "torch.clip_grad_value_", "paddle.clip_grad_value_")
def nan_bounded(right: Right, x: Wide, rule: Rule) -> Wide:
    """fmin and fmax, which turn a NaN into a bound."""
    return np.fmax(np.fmin(x, rule.upper), rule.lower)


@wrong("bounded", "optax.clip")
def sign_lost(right: Right, x: Wide, rule: Rule) -> Wide:
    """Magnitudes are bounded, but the sign is lost."""
    return np.where(np.abs(x) > rule.upper, rule.upper, x)


@wrong("bounded", "keras.clipvalue")
def halved_instead_of_bounded(right: Right, x: Wide, rule: Rule) -> Wide:
    """Elements beyond the bound are halved."""
    return np.where(np.abs(x) > rule.upper, x / 2, x)


@wrong("bounded", "keras.clipvalue")
def subnormals_flushed(right: Right, x: Wide, rule: Rule) -> Wide:
    """Numbers below the least normal one become 0."""
    return np.where(np.abs(x) < 2.0**-126, WIDE(0), right(x, rule))
