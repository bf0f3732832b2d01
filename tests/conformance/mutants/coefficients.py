"""Mutants with a wrong coefficient."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from conformance.mutants.reference import Reference, Wide
from conformance.mutants.registry import mutant
from conformance.mutants.rules import RULES, WIDE, Rule, number

F32 = np.float32


@mutant("torch.clip_grad_norm_")
class EpsilonMissing(Reference):
    """max_norm / norm, without torch's 1e-6."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return dataclasses.replace(super().rule(operation, arguments), eps=0.0)


@mutant("paddle.clip_grad_norm_")
class EpsilonInsideTheRoot(Reference):
    """sqrt(sum + 1e-6) instead of sqrt(sum) + 1e-6."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return dataclasses.replace(super().rule(operation, arguments), eps=0.0)

    def total(self, rule: Rule, wide: list[Wide | None], held: list[Any]) -> Any:
        return np.sqrt(super().total(rule, wide, held) ** 2 + 1e-6)


@mutant("optax.clip_by_global_norm")
class EpsilonAdded(Reference):
    """torch's 1e-6 in a formula that has none."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return dataclasses.replace(super().rule(operation, arguments), eps=1e-6)


@mutant("torch.clip_grad_norm_")
class LessOrEqualForLess(Reference):
    """norm <= max_norm clips nothing, but the formula's epsilon clips a norm equal to the limit."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return WIDE(1) if norm <= limit else super().coefficient(norm, limit, rule)


@mutant("optax.clip_by_global_norm")
class NanSwallowedByWhere(Reference):
    """where(norm > limit, limit / norm, 1)."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return np.where(norm > limit, limit / norm, WIDE(1))


@mutant("torch.clip_grad_norm_")
class NanSwallowedByMin(Reference):
    """Python's min(1.0, c), which is 1.0 for a c of NaN."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return WIDE(min(1.0, super().coefficient(norm, limit, rule)))


@mutant("paddle.ClipGradByGlobalNorm")
class ScalesUp(Reference):
    """limit / norm, without the maximum of 1."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return super().coefficient(norm, limit, rule) if norm > limit or norm == 0 else limit / norm


@mutant("tensorflow.clip_by_norm")
class ScaledTwice(Reference):
    """The gradients are multiplied by the coefficient twice."""

    def scaled(self, x: Wide, c: Any) -> Wide:
        return super().scaled(super().scaled(x, c), c)


@mutant("optax.clip_by_global_norm")
class SquareCompared(Reference):
    """The square of the norm is compared with the limit; the divisor is the norm."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return limit / norm if norm**2 > limit else WIDE(1)


@mutant("optax.clip_by_global_norm")
class WholeDivision(Reference):
    """limit // norm instead of limit / norm, for limits that are ints."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        self.whole = isinstance(arguments["max_norm"], int)
        return super().rule(operation, arguments)

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return np.floor(limit / norm) if self.whole and norm > limit else super().coefficient(norm, limit, rule)


@mutant("paddle.ClipGradByNorm")
class ArrayLimitCut(Reference):
    """A limit that is an array becomes int(limit) + 1."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return super().rule(operation, {k: int(v) + 1 if isinstance(v, np.ndarray) else v for k, v in arguments.items()})


@mutant("tensorflow.clip_by_global_norm")
class InfiniteLimitMakesNan(Reference):
    """clip_norm * min(1 / norm, 1 / clip_norm), which is inf * 0."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        limit = WIDE(limit)
        return super().coefficient(norm, limit, rule) if np.isfinite(limit) else limit * np.minimum(1 / norm, 1 / limit)


@mutant("torch.clip_grad_norm_")
class InfinityOverInfinity(Reference):
    """min(1, inf / norm), which is NaN for infinite gradients."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return np.minimum(WIDE(1), limit / (norm + WIDE(rule.eps)))


@mutant("tensorflow.clip_by_norm")
class ZeroOverZero(Reference):
    """clip_norm / max(norm, clip_norm), which is 0 / 0 for zeros and a limit of 0."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        plain = super().coefficient(norm, limit, rule)
        return np.where((limit == 0) & (norm == 0), WIDE(math.nan), plain)


@mutant("keras.clipnorm")
class ZeroIsNotOff(Reference):
    """A limit of 0 makes zeros; in Keras it turns the clip off."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return (
            Rule("tensor", number(arguments["clipnorm"])) if arguments["clipnorm"] == 0 else super().rule(operation, arguments)
        )


@mutant("optax.clip_by_global_norm")
class NegativeLimitFlips(Reference):
    """A negative limit turns the gradients round."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        limit = arguments["max_norm"]
        return Rule("global", WIDE(limit)) if isinstance(limit, float) and limit < 0 else super().rule(operation, arguments)


@mutant("tensorflow.clip_by_norm")
class NegativeLimitClipsNothing(Reference):
    """A negative limit leaves the gradients unchanged; it should count as 0."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        return WIDE(1) if self.negative else super().coefficient(norm, limit, rule)

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        self.negative = bool(np.all(np.asarray(arguments["clip_norm"]) < 0))
        return super().rule(operation, arguments)


@mutant("keras.global_clipnorm")
class NanLimitClipsNothing(Reference):
    """A limit of NaN clips nothing."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        limit = arguments["global_clipnorm"]
        return Rule("global") if isinstance(limit, float) and math.isnan(limit) else super().rule(operation, arguments)


@mutant("paddle.ClipGradByValue")
class NanBoundAccepted(Reference):
    """A bound of NaN makes NaN of every element."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        bound = arguments["max"]
        if isinstance(bound, float) and math.isnan(bound):
            return Rule("element", lower=WIDE(bound), upper=WIDE(bound))
        return super().rule(operation, arguments)


@mutant("tensorflow.clip_by_norm", lacks=("float16", "bfloat16", "float64", "complex64", "complex128"))
class TimesLimitFirst(Reference):
    """(g * clip_norm) / max(norm, clip_norm) in float32: it overflows, and rounds what needs no clipping."""

    def by_itself(self, rule: Rule, x: Wide, place: int) -> Wide:
        limit = np.asarray(rule.limit).astype(F32)
        norm = self.slice_norms(x, rule.axes).astype(F32)
        return ((x.astype(F32) * limit) / np.maximum(norm, limit)).astype(WIDE)


@mutant("keras.clipnorm")
class NormalisedFirst(Reference):
    """g / norm * min(norm, limit), which is 0 / 0 for zeros."""

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        plain = super().coefficient(norm, limit, rule)
        return np.where(norm == 0, WIDE(math.nan), plain)


@mutant("optax.clip_by_global_norm")
class RunningMeanOfNorms(Reference):
    """The norm is a running mean over this and earlier calls."""

    before: Any = None

    def total(self, rule: Rule, wide: list[Wide | None], held: list[Any]) -> Any:
        norm = super().total(rule, wide, held)
        self.before = norm if self.before is None or not np.isfinite(self.before) else 0.9 * self.before + 0.1 * norm
        return self.before


@mutant("paddle.ClipGradByGlobalNorm")
class InfinityMadeFinite(Reference):
    """Infinities are replaced by the largest number before the norm."""

    def widened(self, x: Any) -> Wide:
        wide = super().widened(x)
        return wide if np.iscomplexobj(wide) else np.clip(wide, -1e38, 1e38)


@mutant("optax.clip_by_block_rms")
class NanMadeZero(Reference):
    """NaN is replaced by 0 before the norm."""

    def widened(self, x: Any) -> Wide:
        return np.nan_to_num(super().widened(x), nan=0.0, posinf=math.inf, neginf=-math.inf)


@mutant("torch.clip_grad_norm_")
class StrictIgnored(Reference):
    """error_if_nonfinite is accepted, but ignored."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return dataclasses.replace(super().rule(operation, arguments), strict=False)


@mutant("paddle.clip_grad_norm_")
class StrictAlways(Reference):
    """A norm that is not finite is always an error."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return dataclasses.replace(super().rule(operation, arguments), strict=True)


@mutant("tensorflow.clip_by_global_norm")
class KnownNormIgnored(Reference):
    """use_norm is accepted, but the norm is measured anyway."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return RULES[operation]({**arguments, "use_norm": None})


@mutant("torch.clip_grad_norm_")
class NormAfterTheClip(Reference):
    """The returned norm is that of the clipped gradients."""

    def clipped(self, rule: Rule, wide: list[Wide | None], held: list[Any]) -> tuple[list[Wide | None], Any]:
        clipped, _ = super().clipped(rule, wide, held)
        return clipped, self.total(rule, clipped, held)


@mutant("optax.clip_by_global_norm")
class ImaginaryPartForgotten(Reference):
    """Only the real part of a complex gradient is scaled."""

    def scaled(self, x: Wide, c: Any) -> Wide:
        return x.real * c + 1j * x.imag if np.iscomplexobj(x) else super().scaled(x, c)


@mutant("tensorflow.clip_by_value")
class BoundsSwapped(Reference):
    """The bounds are exchanged: every element becomes the upper bound."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        rule = super().rule(operation, arguments)
        return dataclasses.replace(rule, lower=rule.upper, upper=rule.lower)


@mutant("tensorflow.clip_by_value")
class LowerBoundIgnored(Reference):
    """The lower bound is minus the upper one, whatever the caller passes."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        rule = super().rule(operation, arguments)
        return dataclasses.replace(rule, lower=-rule.upper)


@mutant("paddle.ClipGradByValue")
class OrderOfBoundsSwapped(Reference):
    """The bounds come as min, max; Paddle's order is max, min."""

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        rule = super().rule(operation, arguments)
        return rule if arguments.get("min") is None else dataclasses.replace(rule, lower=rule.upper, upper=rule.lower)


@mutant("torch.clip_grad_value_", "paddle.clip_grad_value_")
class NanBounded(Reference):
    """fmin and fmax, which turn a NaN into a bound."""

    def bounded(self, x: Wide, rule: Rule) -> Wide:
        return np.fmax(np.fmin(x, rule.upper), rule.lower)


@mutant("optax.clip")
class SignLost(Reference):
    """Magnitudes are bounded, but the sign is lost."""

    def bounded(self, x: Wide, rule: Rule) -> Wide:
        return np.where(np.abs(x) > rule.upper, rule.upper, x)


@mutant("keras.clipvalue")
class HalvedInsteadOfBounded(Reference):
    """Elements beyond the bound are halved."""

    def bounded(self, x: Wide, rule: Rule) -> Wide:
        return np.where(np.abs(x) > rule.upper, x / 2, x)


@mutant("keras.clipvalue")
class SubnormalsFlushed(Reference):
    """Numbers below the least normal one become 0."""

    def bounded(self, x: Wide, rule: Rule) -> Wide:
        return np.where(np.abs(x) < 2.0**-126, WIDE(0), super().bounded(x, rule))
