"""The reference: every operation in NumPy, simple and slow. Each mutant changes one thing in it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from conformance.mutants.arrays import KINDS, Arrays, Sparse
from conformance.mutants.rules import IN_PLACE, REPORTS_NORM, RULES, TEXT, WIDE, Rule

from gradclip.conformance.target import FEATURES, OPERATIONS, OPTIONS

Wide = np.ndarray  #: longdouble, or complex longdouble


class Reference(Arrays):
    """All operations. Each step is a method, so that a mutant can override it."""

    name = "reference"
    operations: tuple[str, ...] = tuple(RULES)
    lacks: frozenset[str] = frozenset()  #: features that the target does not claim

    @property
    def claims(self) -> dict[str, frozenset[str]]:
        return {operation: self._claims(operation) - self.lacks for operation in self.operations}

    def _claims(self, operation: str) -> frozenset[str]:
        claims = set(FEATURES) - (OPTIONS - set(OPERATIONS[operation].arguments))
        # derivatives and traces take functions that leave their inputs unchanged
        claims -= {"functional", "traced", "differentiable"} if operation in IN_PLACE else {"in place"}
        if operation not in REPORTS_NORM:
            claims.remove("norm")
        if operation not in TEXT:
            claims.remove("text limit")
        if operation in ("optax.adaptive_grad_clip", "optax.per_example_global_norm_clip"):
            claims.remove("sparse")  # sparse rows are neither units nor examples
        return frozenset(claims)

    # ---- the call -------------------------------------------------------------------------------------------------------

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[list[Any], Any]:
        with np.errstate(all="ignore"):
            grads = self.grads(gradients)
            rule = self.rule(operation, arguments)
            wide = [None if x is None else self.widened(x) for x in grads]
            self.check(rule, grads)
            clipped, norm = self.clipped(rule, wide, grads)
            narrowed = [None if x is None else self.narrowed(y, x) for x, y in zip(grads, clipped, strict=True)]
            norm = self.reported(operation, norm, grads) if rule.known is None else self.known(arguments.get("use_norm"))
            return (self.written(narrowed, grads) if operation in IN_PLACE else narrowed), norm

    def grads(self, gradients: Iterable[Any]) -> list[Any]:
        """Return the gradients in a list, after one pass over the iterable."""
        return list(gradients)

    def rule(self, operation: str, arguments: dict[str, Any]) -> Rule:
        return RULES[operation](arguments)

    def widened(self, x: Any) -> Wide:
        """Return the elements of a gradient in a dtype that is wide enough for all of them."""
        x = x.dense() if isinstance(x, Sparse) else x
        if x.dtype.kind == "c":
            return x.astype(np.clongdouble)
        return (x.astype(np.float32) if x.dtype == KINDS["bfloat16"] else x).astype(WIDE)

    def check(self, rule: Rule, grads: list[Any]) -> None:
        """Raise for arguments that have no meaning."""
        for x in grads:
            kind = "f" if x is None or x.dtype == KINDS["bfloat16"] else x.dtype.kind
            whole = all(np.all(np.isfinite(bound)) and np.all(bound == np.floor(bound)) for bound in (rule.lower, rule.upper))
            if kind == "b" or (kind == "i" and not (rule.scope == "element" and whole)):
                raise TypeError("gradients of whole numbers cannot be clipped")
            if kind == "c" and rule.scope == "element":
                raise TypeError("complex numbers have no order")

    def narrowed(self, y: Wide, x: Any) -> Any:
        """Return a clipped gradient with the dtype and the type of the gradient."""
        if isinstance(x, Sparse):
            rows = np.unique(x.rows)
            return Sparse(rows, self.rounded(y, x.dtype)[rows], x.shape)
        return self.rounded(y, x.dtype)

    def rounded(self, y: Wide, dtype: np.dtype) -> np.ndarray:
        return (y.astype(np.float32) if dtype == KINDS["bfloat16"] else y).astype(dtype)

    def written(self, narrowed: list[Any], grads: list[Any]) -> list[Any]:
        """Write the results into the gradients."""
        for x, y in zip(grads, narrowed, strict=True):
            if isinstance(x, Sparse):
                x.rows, x.values = y.rows, y.values
            elif x is not None:
                x[...] = y
        return grads

    def reported(self, operation: str, norm: Any, grads: list[Any]) -> Any:
        """Return the norm in the widest real dtype of the gradients, of at least float32."""
        if operation not in REPORTS_NORM:
            return None
        wide = [x.real.dtype.type for x in map(_values, grads) if x is not None and x.dtype != KINDS["bfloat16"]]
        return np.asarray(norm).astype(np.result_type(np.float32, *wide))

    def known(self, norm: Any) -> Any:
        """Return a known norm as it comes back: half precision as float32."""
        return norm.astype(np.float32) if getattr(norm, "dtype", None) in (np.float16, KINDS["bfloat16"]) else norm

    # ---- norm, coefficient, scale ---------------------------------------------------------------------------------------

    def clipped(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> tuple[list[Wide | None], Any]:
        """Return the clipped gradients, and the global norm if there is one."""
        if rule.scope == "element":
            return [None if x is None else self.bounded(x, rule) for x in wide], None
        if rule.scope == "example":
            return self.examples(rule, wide, grads), None
        if rule.scope == "global":
            norm = self.total(rule, wide, grads) if rule.known is None else rule.known
            if rule.strict and not np.isfinite(norm):
                raise RuntimeError("the norm is not finite")
            return [None if x is None else self.scaled(x, self.coefficient(norm, rule.limit, rule)) for x in wide], norm
        return [None if x is None else self.by_itself(rule, x, i) for i, x in enumerate(wide)], None

    def total(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> Any:
        """Return the norm of the norms; a gradient that is listed twice counts once."""
        once = {id(x): y for x, y in zip(grads, wide, strict=True) if y is not None}
        norms = [self.norm(y, rule.order) for y in once.values()]
        return self.norm(np.array(norms, WIDE), rule.order) if norms else WIDE(0)

    def by_itself(self, rule: Rule, x: Wide, place: int) -> Wide:
        """Clip a gradient, or each slice of it, by its own norm."""
        limit, axes = rule.limit, None
        if rule.scope == "unit":
            parameter = self.widened(rule.parameters[place])
            if parameter.shape != x.shape:
                raise ValueError("a parameter must have the shape of its gradient")
            axes = self.unit_axes(x.shape) if rule.axes is None else rule.axes
            own = self.slice_norms(parameter, axes)
            limit = self.relative(limit, np.where(np.isnan(own), own, np.maximum(own, rule.least)))
        elif rule.scope == "axes":
            axes = rule.axes
        norm = self.slice_norms(x, axes)
        if rule.mean:
            norm = self.root_mean(norm, x.size)
        if np.broadcast_shapes(np.shape(limit), x.shape) != x.shape:
            raise ValueError("a limit must broadcast to the gradient")
        return self.scaled(x, self.coefficient(norm, limit, rule))

    def relative(self, ratio: Any, own: Any) -> Any:
        return math.inf if ratio == math.inf else ratio * own

    def root_mean(self, norm: Any, size: int) -> Any:
        return norm / np.sqrt(WIDE(max(size, 1)))

    def unit_axes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the axes along a unit: all of a vector, the first of a matrix, all but a convolution's output channels."""
        rank = len(shape)
        if sum(length != 1 for length in shape) <= 1:
            return tuple(range(rank))
        if rank > 5:
            raise ValueError("the units of more than five axes must be named")
        return (0,) if rank <= 3 else tuple(range(rank - 1))

    def slice_norms(self, x: Wide, axes: tuple[int, ...] | None) -> Any:
        """Return the norm over some axes, with length 1 along these."""
        named = range(x.ndim) if axes is None else np.atleast_1d(axes).tolist()
        if not all(-x.ndim <= axis < x.ndim for axis in named):
            raise ValueError(f"axes {named} of an array of {x.ndim}")
        axes = tuple(axis % x.ndim for axis in named)
        kept = [1 if axis in axes else length for axis, length in enumerate(x.shape)]
        moved = np.moveaxis(x, axes, range(len(axes))).reshape(math.prod(x.shape[axis] for axis in axes), math.prod(kept))
        return np.array([self.norm(column, 2.0) for column in moved.T], WIDE).reshape(kept)

    def norm(self, x: Wide, order: float) -> Any:
        """Return the norm of all elements, of any order."""
        sizes = np.abs(x).reshape(-1)
        if math.isinf(order) and not sizes.size:
            raise ValueError("an empty gradient has no greatest element")
        if order == 0:
            return WIDE(np.count_nonzero(sizes))
        if math.isnan(order) or np.isnan(sizes).any():
            return WIDE(math.nan)
        if math.isinf(order) or not sizes.size:
            return WIDE(0) if not sizes.size else sizes.max() if order > 0 else sizes.min()
        unit = sizes.max() if order > 0 else sizes.min()
        if unit == 0 or np.isinf(unit):
            return unit
        return self.power_sum(sizes / unit, order) * unit

    def power_sum(self, sizes: Wide, order: float) -> Any:
        """Return the norm of magnitudes whose maximum is 1, or for a negative order the minimum."""
        return np.sqrt(np.sum(sizes * sizes)) if order == 2 else np.sum(sizes**order) ** (1 / WIDE(order))

    def coefficient(self, norm: Any, limit: Any, rule: Rule) -> Any:
        """Return the coefficient for this norm."""
        distance = norm + WIDE(rule.eps)
        over = np.where((distance <= limit) | (distance == 0), WIDE(1), limit / np.maximum(distance, WIDE(rule.min_divisor)))
        if rule.nan_if_infinite:
            over = np.where(np.isinf(norm), WIDE(math.nan), over)
        if rule.keeps_nan:
            over = np.where(np.isnan(norm), WIDE(1), over)
        return np.where(np.isinf(limit), WIDE(1), over)

    def scaled(self, x: Wide, c: Any) -> Wide:
        """Multiply the real and the imaginary part separately: an infinity in one must not make the other NaN."""
        if not np.iscomplexobj(x):
            return x * c
        y = np.empty(x.shape, x.dtype)
        y.real, y.imag = x.real * c, x.imag * c
        return y

    def bounded(self, x: Wide, rule: Rule) -> Wide:
        y = np.maximum(np.minimum(x, rule.upper), rule.lower)
        if y.shape != x.shape:
            raise ValueError("a bound must broadcast to the gradient")
        return y

    def examples(self, rule: Rule, wide: list[Wide | None], grads: list[Any]) -> list[Wide | None]:
        """Clip by one norm for each index of the first axis, and sum over it."""
        present = {id(x): y for x, y in zip(grads, wide, strict=True) if y is not None}
        if len({y.shape[0] for y in present.values()}) > 1:
            raise ValueError("every gradient must have the same number of examples")
        count = max((y.shape[0] for y in present.values()), default=0)
        norms = [self.norm(np.concatenate([y[b].reshape(-1) for y in present.values()]), 2.0) for b in range(count)]
        c = self.coefficient(np.array(norms, WIDE), rule.limit, rule)
        return [None if y is None else self.summed(y, c) for y in wide]

    def summed(self, y: Wide, c: Any) -> Wide:
        return self.scaled(y, np.reshape(c, (-1,) + (1,) * (y.ndim - 1))).sum(axis=0)


def _values(x: Any) -> Any:
    return x.values if isinstance(x, Sparse) else x
