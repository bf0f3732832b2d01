"""The clip, once: norm -> coefficient -> scale, for any rule on any backend's tensors."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from gradclip.backend import Backend, Tensor
from gradclip.check import check, check_finite, check_known, check_limits
from gradclip.coefficient import coefficients, settled
from gradclip.distributed import Shared, shared
from gradclip.dtypes import INTEGERS, WIDE
from gradclip.errors import GradclipWarning, message
from gradclip.norms import measure
from gradclip.registry import Gradients, find, open_
from gradclip.rule import ClipResult, Rule, Scope, check_rule
from gradclip.tracing import as_it_is

__all__ = ["UNKNOWN", "carry_out", "clip", "clip_", "norm", "scale_by_norm", "scale_by_norm_"]

UNKNOWN: Any = object()  #: for a norm that is to be measured


@as_it_is
def clip(grads: Any, rule: Rule, *, params: Any = None, reduce: Any = None) -> ClipResult:
    """Clip gradients into new ones.

    Args:
        grads: a tensor, a parameter (which stands for its gradient), or any container of them that their framework uses: a
            list, tuple, dict, iterator, JAX pytree, TF nest, Paddle ``(parameter, gradient)`` pairs. None stays where it is.
            Any floating dtype, complex where the framework has the arithmetic; dtypes and devices may be mixed.
        rule: what to do, from a dialect.
        params: the parameters, in a container of the same structure (an iterator for a list), for a rule whose limit is
            relative to their norm (``optax.adaptive_grad_clip``). Not needed where the gradients come with their parameters.
        reduce: for one norm over all gradients of which other processes hold some, as in pipeline parallelism: their group
            (torch: a ``ProcessGroup`` or ``DeviceMesh``; JAX, in ``shard_map`` and ``pmap``: the name of an axis, or a tuple of
            names), or a function that is given the sum of the p-th powers of this
            process's gradients, as a 0-d float64 tensor (for an infinite order their maximum), and returns that of all
            processes, or writes it in place. Gradients whose own type says how they are split need none (torch: DTensors; JAX:
            sharded arrays under ``jit``).

    Returns:
        The clipped gradients in the same container, of the same dtypes, with the norm and the coefficient. Differentiable
        where the framework is; a gradient that is not clipped is equal to the input bit for bit. Tensors that can be written
        are never returned themselves.

    Raises:
        TypeError: for what is no gradient or no rule, and for tensors of two frameworks in one call.
        ValueError: for a limit or axes that do not fit.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> result = gradclip.clip({"w": np.array([3.0, 4.0])}, torch.clip_grad_norm(max_norm=1.0))
        >>> result.grads["w"].round(3), result.norm
        (array([0.6, 0.8]), 5.0)
    """
    return carry_out(open_(grads), rule, params, reduce=reduce)


@as_it_is
def clip_(grads: Any, rule: Rule, *, params: Any = None, reduce: Any = None) -> ClipResult:
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
    return carry_out(open_(grads), rule, params, in_place=True, reduce=reduce)


@as_it_is
def norm(grads: Any, rule: Rule, *, reduce: Any = None) -> Any:
    """The first of two stages: the norm that :func:`clip` would use, before anything is scaled.

    Log it, or look at it, then hand it to :func:`scale_by_norm`; ``reduce`` as for :func:`clip`.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> gradclip.norm([np.array([3.0]), np.array([4.0])], torch.clip_grad_norm(max_norm=1.0))
        5.0
    """
    return carry_out(open_(grads), rule, stage="norm", reduce=reduce).norm


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
    """:func:`scale_by_norm` in place, where the framework's tensors can be written.

    Args:
        grads, rule, norm, params: as for :func:`scale_by_norm`.

    Raises:
        TypeError, ValueError, RuntimeError: one exception that is all three, as for :func:`clip_`.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> gradient, rule = np.array([3.0, 4.0]), torch.clip_grad_norm(max_norm=1.0)
        >>> gradclip.scale_by_norm_(gradient, rule, norm=10.0).norm
        10.0
        >>> gradient.round(3)
        array([0.3, 0.4])
    """
    return carry_out(open_(grads), rule, params, in_place=True, known=norm)


@as_it_is
def carry_out(
    opened: Gradients,
    rule: Rule,
    params: Any = None,
    *,
    in_place: bool = False,
    keep: bool = False,
    known: Any = UNKNOWN,
    stage: str = "all",
    reduce: Any = None,
) -> ClipResult:
    """Clip gradients that have been found already: what every public function comes to.

    Everything is checked and computed before the first gradient is written. With ``keep`` a gradient that is not clipped is
    returned itself, and not copied.
    """
    check_rule(rule, keeps_shape=in_place)
    no_norm = rule.scope is Scope.VALUE
    several = None
    if reduce is not None or not opened.plain or len(opened.present) < len(opened.leaves):
        several = shared(opened, rule, reduce, differentiates=stage == "all" and not in_place)
        opened = opened if several is None else several.held
    backend = opened.backend
    if backend is None or (not opened.present and (several is None or known is not UNKNOWN or no_norm)):
        _warn_of_nothing(opened)
        return ClipResult(opened.rebuild(opened.leaves), None if no_norm else 0.0, None if no_norm else 1.0)
    doubt = backend.doubt(opened.present) if stage == "all" and known is UNKNOWN else None
    if doubt is not None:
        warnings.warn(doubt, GradclipWarning, stacklevel=_outside())
    is_plain = opened.plain and known is UNKNOWN and rule.is_plain
    if not is_plain:
        check_limits(rule)
        rule = settled(rule)
        check(opened, backend, rule, in_place=in_place)
        if known is not UNKNOWN:
            known = check_known(opened, backend, rule, known)
    elif in_place:
        backend.check_writable(opened.present[0])
    with backend.arithmetic(in_place and not is_plain):  # of what is plain nobody records what is written
        if no_norm:
            return ClipResult(opened.rebuild(_clamped(opened, backend, rule, in_place)), None, None)
        measured = _measured(opened, rule, several) if known is UNKNOWN else known
        if rule.error_if_nonfinite:
            check_finite(opened, backend, rule, measured, None if several is None else several.culprits)
        if stage == "norm":
            return ClipResult(None, measured, None)
        factors = coefficients(opened, rule, measured, params)
        if rule.scope is Scope.EXAMPLE:
            scaled = _summed(opened, backend, factors)
        else:
            scaled = _scaled(opened, backend, factors, in_place, keep)
        return ClipResult(opened.rebuild(scaled), measured, factors)


def _measured(opened: Gradients, rule: Rule, several: Shared | None) -> Any:
    """The norm of these gradients, or with those of several processes."""
    if several is None:
        return measure(opened, rule)
    measured = several.measure(rule)
    if not opened.present and measured == 0:
        _warn_of_nothing(opened)
    return measured


def _clamped(opened: Gradients, backend: Backend, rule: Rule, in_place: bool) -> list[Tensor | None]:
    """Each element between the bounds; everything is computed before the first gradient is written."""
    leaves = opened.leaves
    if opened.plain and isinstance(rule.lower, float) and isinstance(rule.upper, float):
        if not in_place:
            return opened.placed(backend.clamped(opened.present, rule.lower, rule.upper))
        backend.clamp_(opened.present, rule.lower, rule.upper)
        return leaves
    places = opened.unique() if in_place else [i for i, x in enumerate(leaves) if x is not None]
    clamped: list[Tensor | None] = [None] * len(leaves)
    for i in places:
        merged = backend.merge(leaves[i])
        values = backend.values(merged)
        values = backend.clamp(values, _bound(backend, rule.lower, values), _bound(backend, rule.upper, values))
        clamped[i] = backend.with_values(merged, values)
    if not in_place:
        return clamped
    for i in places:
        backend.assign_(leaves[i], clamped[i])
    return leaves


def _bound(backend: Backend, bound: Any, x: Tensor) -> Any:
    """A bound as :meth:`Backend.clamp` takes it: for integers one of them, because floats lack most of those."""
    dtype = backend.dtype(x)
    if dtype not in INTEGERS:
        return bound if isinstance(bound, float) else backend.asarray(bound, WIDE[dtype], x)
    least, most = INTEGERS[dtype]
    owner = None if isinstance(bound, float) else find(bound)
    if owner is None:
        return int(min(max(bound, least), most))
    own = owner.dtype(bound)
    bound = backend.asarray(bound, own, x)
    if own == dtype:
        return bound
    return backend.cast(backend.clamp(bound, max(INTEGERS[own][0], least), min(INTEGERS[own][1], most)), dtype)


def _scaled(opened: Gradients, backend: Backend, factors: Any, in_place: bool, keep: bool) -> list[Tensor | None]:
    """Each gradient times its coefficient; not touched at all where that is known to be 1."""
    leaves = opened.leaves
    if in_place and not isinstance(factors, list):
        if not isinstance(factors, float) or factors != 1.0:
            backend.scale_(opened.present if opened.plain else [leaves[i] for i in opened.unique()], factors, opened.plain)
        return leaves
    if not in_place and not isinstance(factors, list) and not (isinstance(factors, float) and factors == 1.0):
        merged = opened.present if opened.plain else [backend.merge(x) for x in opened.present]
        scaled = backend.scaled([backend.values(x) for x in merged], factors, opened.plain)
        return opened.placed(list(map(backend.with_values, merged, scaled)))
    each = factors if isinstance(factors, list) else [factors] * len(leaves)
    if not in_place:
        return _each_scaled(opened, backend, each, keep)
    for i in opened.unique():
        if not isinstance(each[i], float) and backend.is_sparse(leaves[i]):
            backend.assign_(leaves[i], _scaled_copy(backend, leaves[i], each[i]))  # a coefficient for each of the merged rows
        elif not isinstance(each[i], float) or each[i] != 1.0:
            backend.scale_([leaves[i]], each[i], opened.plain)
    return leaves


def _each_scaled(opened: Gradients, backend: Backend, factors: list[Any], keep: bool) -> list[Tensor | None]:
    """New gradients, each times its own coefficient."""
    leaves = opened.leaves
    places = [i for i, c in enumerate(factors) if c is not None and not (type(c) is float and c == 1.0)]
    if opened.plain and places and type(factors[places[0]]) is float:
        scaled = backend.scaled([leaves[i] for i in places], [factors[i] for i in places], opened.plain)
    else:
        scaled = [_scaled_copy(backend, leaves[i], factors[i]) for i in places]
    clipped = dict(zip(places, scaled, strict=True))
    return [clipped[i] if i in clipped else x if keep or x is None else backend.copy(x) for i, x in enumerate(leaves)]


def _scaled_copy(backend: Backend, x: Tensor, c: Any) -> Tensor:
    merged = backend.merge(x)
    return backend.with_values(merged, backend.scale(backend.values(merged), c))


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
