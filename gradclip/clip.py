"""The clip, once: norm -> coefficient -> scale, for any rule on any backend's tensors."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from gradclip.backend import WIDE, Backend, Tensor
from gradclip.coefficient import coefficients, settled
from gradclip.errors import ArgumentError, DTypeError, GradclipWarning, NonFiniteError, ShapeError, message
from gradclip.norms import axes_of, check_dtypes, measure
from gradclip.registry import Gradients, open_
from gradclip.rule import ClipResult, Rule, Scope
from gradclip.tracing import as_it_is

__all__ = ["carry_out", "clip", "clip_", "norm", "scale_by_norm", "scale_by_norm_"]


@as_it_is
def clip(grads: Any, rule: Rule, *, params: Any = None) -> ClipResult:
    """Clip gradients into new ones.

    Args:
        grads: a tensor, a parameter (which stands for its gradient), or any container of them that their framework uses: a
            list, tuple, dict, iterator, JAX pytree, TF nest, Paddle ``(parameter, gradient)`` pairs. None stays where it is.
            Any floating dtype, complex where the framework has the arithmetic; dtypes and devices may be mixed.
        rule: what to do, from a dialect.
        params: the parameters, in a container of the same structure, for a rule whose limit is relative to their norm
            (``optax.adaptive_grad_clip``).

    Returns:
        The clipped gradients in the same container, of the same dtypes, with the norm and the coefficient. Differentiable
        where the framework is; a gradient that is not clipped is equal to the input bit for bit. Tensors that can be written
        are never returned themselves.

    Raises:
        TypeError: for what is no gradient, and for tensors of two frameworks in one call.
        ValueError: for a limit or axes that do not fit.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> result = gradclip.clip({"w": np.array([3.0, 4.0])}, torch.clip_grad_norm(max_norm=1.0))
        >>> result.grads["w"].round(3), result.norm
        (array([0.6, 0.8]), 5.0)
    """
    return carry_out(open_(grads), rule, params)


@as_it_is
def clip_(grads: Any, rule: Rule, *, params: Any = None) -> ClipResult:
    """Clip gradients in place, where the framework's tensors can be written; otherwise as :func:`clip`.

    Raises:
        TypeError, ValueError, RuntimeError: one exception that is all three, where a gradient cannot be written; none has been
            changed then.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import tensorflow
        >>> gradient = np.array([3.0, 4.0])
        >>> gradclip.clip_(gradient, tensorflow.clip_by_norm(clip_norm=1.0)).coefficient
        [0.2]
        >>> gradient.round(3)
        array([0.6, 0.8])
    """
    return carry_out(open_(grads), rule, params, in_place=True)


@as_it_is
def norm(grads: Any, rule: Rule) -> Any:
    """The first of two stages: the norm that :func:`clip` would use, before anything is scaled.

    Reduce it across processes, log it, or look at it, then hand it to :func:`scale_by_norm`.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> gradclip.norm([np.array([3.0]), np.array([4.0])], torch.clip_grad_norm(max_norm=1.0))
        5.0
    """
    return carry_out(open_(grads), rule, stage="norm").norm


@as_it_is
def scale_by_norm(grads: Any, rule: Rule, norm: Any, *, params: Any = None) -> ClipResult:
    """The second of two stages: clip as ``rule`` does, by a norm that is known already.

    Args:
        grads, rule, params: as for :func:`clip`.
        norm: of the form that :func:`norm` returns for this rule.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> rule = torch.clip_grad_norm(max_norm=1.0)
        >>> gradclip.scale_by_norm(np.array([3.0, 4.0]), rule, norm=10.0).grads.round(3)
        array([0.3, 0.4])
    """
    return carry_out(open_(grads), rule, params, known=norm)


@as_it_is
def scale_by_norm_(grads: Any, rule: Rule, norm: Any, *, params: Any = None) -> ClipResult:
    """:func:`scale_by_norm` in place."""
    return carry_out(open_(grads), rule, params, in_place=True, known=norm)


@as_it_is
def carry_out(
    opened: Gradients, rule: Rule, params: Any = None, *, in_place: bool = False, known: Any = None, stage: str = "all"
) -> ClipResult:
    """Clip gradients that have been found already: what every public function comes to.

    Everything is checked and computed before the first gradient is written.
    """
    no_norm = rule.scope is Scope.VALUE
    backend = opened.backend
    if backend is None or all(leaf is None for leaf in opened.leaves):
        _warn_of_nothing(opened)
        return ClipResult(opened.rebuild(opened.leaves), None if no_norm else 0.0, None if no_norm else 1.0)
    rule = settled(rule)
    check(opened, backend, rule, in_place=in_place)
    with backend.arithmetic(in_place):
        if no_norm:
            return ClipResult(opened.rebuild(_clamped(opened, backend, rule, in_place)), None, None)
        measured = measure(opened, rule) if known is None else known
        if rule.error_if_nonfinite:
            check_finite(opened, backend, rule, measured)
        if stage == "norm":
            return ClipResult(None, measured, None)
        factors = coefficients(opened, rule, measured, params)
        if rule.scope is Scope.EXAMPLE:
            scaled = _summed(opened, backend, factors)
        else:
            scaled = _scaled(opened, backend, factors, in_place)
        return ClipResult(opened.rebuild(scaled), measured, factors)


def check(opened: Gradients, backend: Backend, rule: Rule, *, in_place: bool = False) -> None:
    """Refuse what cannot be clipped, before anything is computed."""
    present = [x for x in opened.leaves if x is not None]
    if rule.scope is Scope.VALUE:
        _check_bounds(backend, present, rule)
    else:
        check_dtypes(backend, present)
    if rule.scope is Scope.EXAMPLE:
        _check_examples(backend, present, rule, in_place)
    if rule.scope is Scope.AXES:
        for x in present:
            if 0 not in (axes_of(backend, x, rule) or (0,)) and rule.relative_to is not None and backend.is_sparse(x):
                what, hint = "A sparse gradient has no norm for each row of its parameter.", "leave the first axis in axis=."
                raise backend.error(ArgumentError(what, f"axis={rule.axes}", hint))
    if in_place:
        for x in present:
            backend.check_writable(x)


def _check_examples(backend: Backend, tensors: list[Tensor], rule: Rule, in_place: bool) -> None:
    if in_place:
        what = "A rule that sums over examples changes the shape of a gradient."
        raise ArgumentError(what, f"rule={rule}", "use gradclip.clip, which returns new ones.")
    if any(backend.is_sparse(x) for x in tensors):
        raise backend.error(ArgumentError("A sparse gradient has no examples along its first axis.", f"rule={rule}"))
    shapes = [backend.shape(x) for x in tensors]
    if any(not shape for shape in shapes) or len({shape[0] for shape in shapes if shape} - {None}) > 1:
        what = "Every gradient must have the examples along its first axis."
        raise backend.error(ShapeError(what, f"shapes {shapes}", "clip per example before averaging over them."))


def _check_bounds(backend: Backend, tensors: list[Tensor], rule: Rule) -> None:
    whole = all(isinstance(bound, float) and bound.is_integer() for bound in (rule.lower, rule.upper))
    for x in tensors:
        dtype = backend.dtype(x)
        if dtype in ("complex64", "complex128"):
            raise backend.error(DTypeError("Complex numbers have no order to clip by value in.", f"dtype={dtype}"))
        if dtype not in WIDE and not (whole and "int" in dtype):
            what = "A gradient must be of a floating point dtype, or the bounds whole numbers of its own."
            raise backend.error(DTypeError(what, f"dtype={dtype}, lower={rule.lower}, upper={rule.upper}"))
        if backend.is_sparse(x) and not (rule.lower <= 0 <= rule.upper):
            what = "Bounds that exclude 0 would make a sparse gradient dense."
            raise backend.error(ArgumentError(what, f"lower={rule.lower}, upper={rule.upper}"))


def check_finite(opened: Gradients, backend: Backend, rule: Rule, measured: Any) -> None:
    """Raise :class:`NonFiniteError`, with the names of the culprits, if a norm is not finite."""
    found = [n for n in (measured if isinstance(measured, list) else [measured]) if n is not None]
    if any(not isinstance(n, float) and not backend.can_look(n) for n in found):
        hint = "look at the norm that is returned, outside of the traced function."
        what = "error_if_nonfinite needs to look at the norm, which tracing forbids."
        raise ArgumentError(what, "error_if_nonfinite=True", hint)
    values = [n if isinstance(n, float) else backend.number(backend.max(backend.abs(n), None)) for n in found]
    if all(value - value == 0 for value in values):
        return
    paths = opened.paths()
    culprits = []
    for i in opened.unique():
        values = backend.values(opened.leaves[i])
        wide = backend.abs(backend.cast(values, WIDE[backend.dtype(values)]))
        bad = backend.size(wide) - backend.number(backend.sum(backend.cast(wide - wide >= 0, backend.dtype(wide)), None))
        if bad:
            culprits.append(f"{paths[i]}: {bad:.0f} of {backend.size(wide)} elements")
    raise backend.error(
        NonFiniteError(
            f"The total norm of order {rule.order} for gradients is non-finite, so it cannot be clipped.",
            "; ".join(culprits) or "finite gradients whose norm overflows their dtype",
            "set error_if_nonfinite=False to scale by the non-finite norm all the same.",
        )
    )


def _clamped(opened: Gradients, backend: Backend, rule: Rule, in_place: bool) -> list[Tensor | None]:
    clamped = list(opened.leaves)
    for i in opened.unique() if in_place else range(len(clamped)):
        x = clamped[i]
        if x is not None:
            merged = backend.merge(x)
            values = backend.clamp(backend.values(merged), rule.lower, rule.upper)
            _check_shape(backend, merged, values)
            clamped[i] = backend.with_values(merged, values)
    return _written(opened, backend, clamped) if in_place else clamped


def _scaled(opened: Gradients, backend: Backend, factors: Any, in_place: bool) -> list[Tensor | None]:
    """Each gradient times its coefficient; not touched at all where that is known to be 1."""
    leaves = opened.leaves
    each = factors if isinstance(factors, list) else [factors] * len(leaves)
    if not in_place:
        return [None if x is None else _scaled_copy(backend, x, c) for x, c in zip(leaves, each, strict=True)]
    places = opened.unique()
    if not isinstance(factors, list):
        if not isinstance(factors, float) or factors != 1.0:
            backend.scale_([leaves[i] for i in places], factors)
        return leaves
    for i in places:
        if not isinstance(each[i], float) and backend.is_sparse(leaves[i]):
            backend.assign_(leaves[i], _scaled_copy(backend, leaves[i], each[i]))  # a coefficient for each of the merged rows
        elif not isinstance(each[i], float) or each[i] != 1.0:
            backend.scale_([leaves[i]], each[i])
    return leaves


def _scaled_copy(backend: Backend, x: Tensor, c: Any) -> Tensor:
    if isinstance(c, float) and c == 1.0:
        return backend.copy(x)
    merged = backend.merge(x)
    scaled = backend.scale(backend.values(merged), c)
    _check_shape(backend, merged, scaled)
    return backend.with_values(merged, scaled)


def _check_shape(backend: Backend, x: Tensor, values: Tensor) -> None:
    """A limit may broadcast to a gradient, and not the other way round."""
    before, after = backend.shape(backend.values(x)), backend.shape(values)
    if before != after and before is not None and after is not None and None not in before:
        raise backend.error(ShapeError("The limit does not fit the gradient.", f"shapes {before} and {after}"))


def _summed(opened: Gradients, backend: Backend, factors: Tensor) -> list[Tensor | None]:
    """The sum over the examples, each times its coefficient."""
    summed: list[Tensor | None] = []
    for x in opened.leaves:
        if x is None:
            summed.append(None)
            continue
        ones = tuple(1 for _ in (backend.shape(x) or ())[1:])
        factor = backend.reshape(backend.cast(factors, WIDE[backend.dtype(x)]), (-1, *ones))
        total = backend.sum(backend.cast(x, WIDE[backend.dtype(x)]) * factor, (0,))
        summed.append(backend.cast(total[0, ...], backend.dtype(x)))
    return summed


def _written(opened: Gradients, backend: Backend, new: list[Tensor | None]) -> list[Tensor | None]:
    for i in opened.unique():
        backend.assign_(opened.leaves[i], new[i])
    return opened.leaves


def _warn_of_nothing(opened: Gradients) -> None:
    """Nothing was clipped, and the caller most likely believes otherwise."""
    if any(owner is not None for owner in opened.owners):
        what = "None of the parameters has a gradient: nothing was clipped."
        hint = "clip after backward(), and before zero_grad()."
        received = f"{len(opened.owners)} parameters"
    elif opened.was_iterator:
        what, hint = "The iterator is empty: nothing was clipped.", "an iterator can be used once; pass a list to use it again."
        received = "an empty or exhausted iterator"
    else:
        return
    warnings.warn(message(what, received, hint), GradclipWarning, stacklevel=_outside())


def _outside() -> int:
    """The stack level of the first frame that is not gradclip's own."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gradclip":
        level, frame = level + 1, frame.f_back
    return level
