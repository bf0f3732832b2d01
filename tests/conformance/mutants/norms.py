"""Mutants with a wrong norm: over the wrong elements, of the wrong order, or in the wrong arithmetic."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from conformance.mutants.arrays import KINDS, Sparse
from conformance.mutants.reference import Reference, Wide
from conformance.mutants.registry import Right, changed, mutant, wrong
from conformance.mutants.rules import WIDE, Rule

F32 = np.float32


# ---- rules with another field ------------------------------------------------------------------------------------------------

changed("all_by_one_norm", "keras.clipnorm", "One norm over all tensors, instead of one for each.", scope="global")
changed("order_ignored", "torch.clip_grad_norm_", "norm_type is accepted, but the order is always 2.", order=2.0)
changed(
    "axes_ignored", "tensorflow.clip_by_norm", "axes is accepted, but the norm is that of the complete gradient.", axes=None
)
changed(
    "least_norm_forgotten",
    "optax.adaptive_grad_clip",
    "A parameter of zeros has a limit of 0: eps is accepted, but ignored.",
    least=0.0,
)


@mutant("tensorflow.clip_by_global_norm")
class EachByItsOwnNorm(Reference):
    """Each tensor has its own norm, instead of one norm over all."""

    def clipped(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> tuple[list[Wide | None], Any]:
        _, norm = super().clipped(rule, wide, grads)
        own = [None if x is None else self.norm(x, 2.0) for x in wide]
        pairs = zip(wide, own, strict=True)
        return [None if x is None else self.scaled(x, self.coefficient(n, rule.limit, rule)) for x, n in pairs], norm


@wrong("reported", "torch.clip_grad_norm_")
def reported_in_half_precision(right: Right, operation: str, norm: Any, grads: list[Any]) -> Any:
    """The norm is returned in the dtype of the gradients: above 65,504 it is infinite."""
    kinds = {x.dtype for x in grads if x is not None}
    found = right(operation, norm, grads)
    return found.astype(np.float16) if kinds == {np.dtype(np.float16)} else found


@wrong("total", "paddle.ClipGradByGlobalNorm")
def mean_for_sum(right: Right, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
    """The root of the mean of the squares, instead of their sum."""
    count = sum(x.size for x in wide if x is not None)
    return right(rule, wide, grads) / np.sqrt(max(count, 1))


@wrong("norm", "keras.clipnorm", lacks=("large",))
def first_block_alone(right: Right, x: Wide, order: float) -> Any:
    """Only the first 4096 elements of a tensor count."""
    return right(x.reshape(-1)[:4096], order)


@wrong("norm", "paddle.ClipGradByNorm")
def greatest_for_norm(right: Right, x: Wide, order: float) -> Any:
    """The greatest magnitude instead of the Euclidean norm."""
    return right(x, np.inf) if x.size else WIDE(0)


@mutant("keras.global_clipnorm")
class SumOfNorms(Reference):
    """The sum of the tensors' norms instead of the norm of all."""

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        return sum((self.norm(x, 2.0) for x in wide if x is not None), WIDE(0))


@wrong("by_itself", "paddle.ClipGradByNorm")
def by_value_for_by_norm(right: Right, rule: Rule, x: Wide, place: int) -> Wide:
    """Each element is bounded, instead of the norm."""
    return x if np.iscomplexobj(x) else np.clip(x, -rule.limit, rule.limit)


@wrong("norm", "optax.clip_by_global_norm")
def real_part_counts(right: Right, x: Wide, order: float) -> Any:
    """The norm of the real parts only."""
    return right(x.real if np.iscomplexobj(x) else x, order)


class Plain(Reference):
    """The base of the mutants with a norm of each tensor in a narrow dtype."""

    def plain(self, x: np.ndarray) -> Any:
        raise NotImplementedError

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        norms = [
            self.plain(x.dense() if isinstance(x, Sparse) else x) for x in {id(x): x for x in grads if x is not None}.values()
        ]
        return self.norm(np.array(norms, WIDE), 2.0) if norms else WIDE(0)


@mutant("optax.clip_by_global_norm")
class SquaresOverflow(Plain):
    """Squares in float32, which overflow and vanish."""

    def plain(self, x: np.ndarray) -> Any:
        return np.linalg.norm(np.abs(x).astype(F32).reshape(-1))


@mutant("paddle.ClipGradByGlobalNorm")
class SquaresVanish(Plain):
    """Squares in float32; only a norm that overflows is measured again."""

    def plain(self, x: np.ndarray) -> Any:
        norm = np.linalg.norm(np.abs(x).astype(F32).reshape(-1))
        return norm if np.isfinite(norm) else self.norm(self.widened(x), 2.0)


@mutant("keras.global_clipnorm")
class Float16Sum(Plain):
    """A running float16 sum of float16 squares."""

    def plain(self, x: np.ndarray) -> Any:
        if x.dtype != np.float16:
            return self.norm(self.widened(x), 2.0)
        return np.sqrt(np.add.accumulate(np.square(x).reshape(-1), dtype=np.float16)[-1:].sum())


@mutant("tensorflow.clip_by_global_norm")
class BFloat16Sum(Plain):
    """A running bfloat16 sum of bfloat16 squares."""

    def plain(self, x: np.ndarray) -> Any:
        if x.dtype != KINDS["bfloat16"]:
            return self.norm(self.widened(x), 2.0)
        total = x.dtype.type(0)
        for value in x.reshape(-1):
            total = total + value * value
        return np.sqrt(np.float32(total))


@mutant("optax.clip_by_global_norm", large=True)
class Float32RunningSum(Plain):
    """One running float32 sum, which stops growing when it is large."""

    def plain(self, x: np.ndarray) -> Any:
        if x.dtype != F32:
            return self.norm(self.widened(x), 2.0)
        unit = np.abs(x).max(initial=0)
        if unit == 0 or not np.isfinite(unit):
            return self.norm(self.widened(x), 2.0)
        return np.sqrt(np.add.accumulate(np.square(x / unit).reshape(-1))[-1]) * unit


@wrong("widened", "keras.clipnorm")
def float64_in_float32(right: Right, x: Any) -> Wide:
    """Gradients of float64 are measured and scaled in float32."""
    wide = right(x)
    return wide.astype(F32).astype(WIDE) if x.dtype == np.float64 else wide


@wrong("total", "optax.clip_by_global_norm")
def first_ones_counted(right: Right, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
    """A fixed table of norms: those after the 64th tensor do not count."""
    return right(rule, wide[:64], grads[:64])


@mutant("optax.clip_by_global_norm")
class LastNormWins(Reference):
    """The norm is that of the last tensor: = instead of +=."""

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        present = [x for x in wide if x is not None]
        return self.norm(present[-1], 2.0) if present else WIDE(0)


@wrong("root_mean", "optax.clip_by_block_rms")
def mean_forgotten(right: Right, norm: Any, size: int) -> Any:
    """The norm instead of the root mean square."""
    return norm


@mutant("optax.clip_by_block_rms")
class MeanOverFirstAxis(Reference):
    """The mean divides by the length of the first axis, instead of the number of elements."""

    def by_itself(self, rule: Rule, x: Wide, place: int) -> Wide:
        norm = self.norm(x, 2.0) / np.sqrt(WIDE(max(x.shape[0] if x.shape else 1, 1)))
        return self.scaled(x, self.coefficient(norm, rule.limit, rule))


@wrong("clipped", "optax.clip_by_block_rms")
def mean_of_nothing(right: Right, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> tuple[list[Wide | None], Any]:
    """0 / 0 for a gradient without elements makes every gradient NaN."""
    clipped, norm = right(rule, wide, grads)
    empty = any(x is not None and x.size == 0 for x in wide)
    return [None if x is None else x * np.nan if empty else x for x in clipped], norm


@mutant("tensorflow.clip_by_norm")
class AxesNotKept(Reference):
    """The reduced axes are dropped: the norms broadcast along the wrong one where they can."""

    def by_itself(self, rule: Rule, x: Wide, place: int) -> Wide:
        norms = self.slice_norms(x, rule.axes)
        norms = np.squeeze(norms, rule.axes) if rule.axes else norms
        return self.scaled(x, self.coefficient(norms, rule.limit, rule))


@wrong("rule", "tensorflow.clip_by_norm")
def negative_axes_count_from_the_front(right: Right, operation: str, arguments: dict[str, Any]) -> Rule:
    """A negative axis counts from the front: -1 is the first one."""
    rule = right(operation, arguments)
    return dataclasses.replace(rule, axes=rule.axes and tuple(abs(axis + 1) if axis < 0 else axis for axis in rule.axes))


@wrong("unit_axes", "optax.adaptive_grad_clip")
def units_are_rows(right: Right, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The units are rows instead of columns."""
    return (len(shape) - 1,) if len(shape) in (2, 3) else right(shape)


@wrong("relative", "optax.adaptive_grad_clip")
def parameter_ignored(right: Right, ratio: Any, own: Any) -> Any:
    """The limit is the ratio itself, without the norm of the parameter."""
    return ratio + 0 * own


@mutant("optax.per_example_global_norm_clip")
class ExamplesOverTheLastAxis(Reference):
    """The examples are along the last axis, instead of the first."""

    def examples(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> list[Wide | None]:
        turned = [x if x is None or x.ndim != 2 or x.shape[0] != x.shape[1] else x.T for x in wide]
        clipped = super().examples(rule, turned, grads)
        rows = [None if x is None else self.scaled(x, self.coefficient(self.norm(x, 2.0), rule.limit, rule)) for x in wide]
        return [c if x is None or x.ndim != 2 else x.sum(axis=0) for c, x in zip(clipped, rows, strict=True)]


@wrong("summed", "optax.per_example_global_norm_clip")
def mean_over_examples(right: Right, y: Wide, c: Any) -> Wide:
    """The mean of the clipped examples instead of their sum."""
    return right(y, c) / max(len(y), 1)


@mutant("optax.per_example_global_norm_clip")
class EachGradientOfAnExample(Reference):
    """Each gradient of an example has its own norm, instead of one norm over all of them."""

    def examples(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> list[Wide | None]:
        every = [super(EachGradientOfAnExample, self).examples(rule, [x], [h]) for x, h in zip(wide, grads, strict=True)]
        return [clipped for one in every for clipped in one]


@mutant("torch.clip_grad_norm_")
class UnmergedRows(Reference):
    """Rows that are listed twice count separately in the norm."""

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        listed = [super(UnmergedRows, self).widened(x.values if isinstance(x, Sparse) else x) for x in grads if x is not None]
        return super().total(rule, listed, [x for x in grads if x is not None])


@mutant("keras.global_clipnorm")
class TwiceCountsTwice(Reference):
    """A gradient that is listed twice counts twice."""

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        norms = [self.norm(x, 2.0) for x in wide if x is not None]
        return self.norm(np.array(norms, WIDE), 2.0) if norms else WIDE(0)


@wrong("written", "torch.clip_grad_norm_")
def tied_scaled_twice(right: Right, narrowed: list[Any], grads: list[Any]) -> list[Any]:
    """A gradient that is listed twice is scaled each time."""
    seen: dict[int, Any] = {}
    for i, x in enumerate(grads):
        if isinstance(x, np.ndarray) and id(x) in seen:
            with np.errstate(all="ignore"):
                narrowed[i] = (x * np.where(x == 0, 1, seen[id(x)] / x)).astype(x.dtype)
        elif isinstance(x, np.ndarray):
            seen[id(x)] = np.where(x == 0, 0, narrowed[i] / x) * narrowed[i]
    return right(narrowed, grads)
