"""What a rule does about norms that are too large or not finite: it skips the step, or makes zeros. No accelerator is read.

Zeros come from a select: a product with 0 would keep NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradclip.core import scale
from gradclip.core.backend import Backend
from gradclip.core.dtypes import LARGEST
from gradclip.core.gradients import Gradients
from gradclip.core.groups import Clip
from gradclip.core.lane import Into
from gradclip.core.registry import as_float, find
from gradclip.core.rule import EXAMPLE, Rule, follows_run

__all__ = ["of_finite_examples", "skip", "zeroed"]


def skip(backend: Backend, rules: Sequence[Rule], norms: Sequence[Any]) -> Any:
    """Whether one of these norms skips the step, by its rule: a bool if all can be read freely, else a 0-d tensor of one."""
    fits: list[Any] = []
    for rule, norm in zip(rules, norms, strict=True):
        if rule.skips:
            fits += _fits(backend, rule, norm)
    tensors = [x for x in fits if not isinstance(x, bool)]
    if not tensors:
        return not all(fits)
    product = backend.asarray(float(all(x for x in fits if isinstance(x, bool))), "float32", tensors[0])
    for x in tensors:
        product = product * backend.asarray(x, "float32", tensors[0])
    return product < 1


def _fits(backend: Backend, rule: Rule, norm: Any) -> list[Any]:
    """For each norm of a rule whether it lets the step pass: a bool, or 0.0 or 1.0 as a 0-d tensor."""
    limit: Any = math.inf if rule.skip_above is None else rule.skip_above
    if follows_run(limit):
        moved, norm = limit.settle(backend, replace(rule, limit=limit, skip_above=None), norm)
        limit = moved.limit
    limit = as_float(limit)
    norms = [n for n in (norm if isinstance(norm, list) else [norm]) if n is not None]
    zero = rule.if_nonfinite == "zero"
    return [_fit(backend, as_float(n), limit, zero) for n in norms if 0 not in (getattr(n, "shape", None) or ())]


def _fit(backend: Backend, n: Any, limit: Any, zero: bool) -> Any:
    """Whether a norm is at most the limit. One that is not finite is not, unless it makes its gradients zeros."""
    if isinstance(n, float) and isinstance(limit, float):
        return n <= min(limit, LARGEST["float64"]) or (zero and not n < math.inf)
    if isinstance(n, float):
        theirs = find(limit)
        assert theirs is not None
        n = backend.asarray(n, theirs.dtype(limit), limit)
    dtype = backend.dtype(n)
    most = LARGEST[dtype]
    bound = backend.constant(min(limit, most), n) if isinstance(limit, float) else backend.asarray(limit, dtype, n)
    if not isinstance(limit, float):
        bound = backend.clip(bound, None, most)
    fits = backend.cast(n <= bound, "float32")
    if zero:
        fits = backend.where(n <= backend.constant(most, n), fits, 1.0)
    return -backend.max(-fits, None) if backend.shape(fits) != () else fits


# ---- zeros ------------------------------------------------------------------------------------------------------------------


def of_finite_examples(clips: list[Clip], norms: list[Any], factors: list[Any]) -> tuple[list[Clip], list[Any]]:
    """The clips and their coefficients; examples that are not finite are zeros before a rule that asks it sums them."""
    for k, clip in enumerate(clips):
        if clip.rule.if_nonfinite == "zero" and clip.rule.scope is EXAMPLE and clip.grads.present:
            finite, factors[k] = _finite_examples(clip.grads, norms[k], factors[k])
            clips[k] = replace(clip, grads=finite)
    return clips, factors


def zeroed(clips: list[Clip], norms: list[Any], factors: list[Any], new: list[Any] | None, into: Into) -> Any:
    """Make zeros of gradients that are not finite, for rules that ask it; returns the number of these norms."""
    of_zeros = [k for k, clip in enumerate(clips) if clip.rule.if_nonfinite == "zero" and clip.grads.present]
    if not of_zeros:
        return 0
    backend = clips[of_zeros[0]].grads.backend
    assert backend is not None
    for k in of_zeros:
        if new is not None and clips[k].rule.scope is not EXAMPLE:
            factors[k] = _zeros(backend, clips[k].scaled, norms[k], factors[k], new, into)
    return _not_finite(backend, [norms[k] for k in of_zeros])


def _finite_examples(grads: Gradients, norms: Any, factors: Any) -> tuple[Gradients, Any]:
    """The gradients with zeros for the examples whose norm is not finite, and the coefficients with a 0 for each of them."""
    backend = grads.backend
    assert backend is not None
    finite = norms <= LARGEST[backend.dtype(norms)]
    kept = [None if x is None else scale.kept(backend, x, scale.column(backend, finite, x)) for x in grads.leaves]
    return grads.other(kept, grads.params), backend.where(finite, factors, 0.0)


def _zeros(backend: Backend, scaled: Sequence[int], n: Any, factors: Any, new: list[Any], into: Into) -> Any:
    """Put zeros into ``new`` for the gradients at these places whose norm is not finite; returns the coefficients."""
    if not isinstance(n, list):
        return _kept(backend, new, scaled, n, factors, into)
    of_each = enumerate(zip(n, factors, strict=True))
    return [factor if norm is None else _kept(backend, new, [i], norm, factor, into) for i, (norm, factor) in of_each]


def _kept(backend: Backend, new: list[Any], places: Sequence[int], norm: Any, factor: Any, into: Into) -> Any:
    """Put zeros at these places of ``new`` unless their norm is finite; returns the coefficient."""
    if isinstance(norm, float) and norm < math.inf:
        return factor
    is_finite = None if isinstance(norm, float) else norm <= LARGEST[backend.dtype(norm)]
    for i in places:
        if new[i] is not None:
            kept = scale.kept(backend, new[i], is_finite)
            if into == "place":
                backend.assign_(new[i], kept)
            else:
                new[i] = kept
    if is_finite is None:
        return 0.0
    return backend.where(is_finite, backend.asarray(factor, backend.dtype(norm), norm), 0.0)


def _not_finite(backend: Backend, norms: Sequence[Any]) -> Any:
    """How many of these norms are not finite: an int if all can be read freely, else a 0-d tensor."""
    each = [n for x in norms for n in (x if isinstance(x, list) else [x]) if n is not None]
    total: Any = sum(not n < math.inf for n in each if isinstance(n, float))
    for n in each:
        if not isinstance(n, float):
            bad = 1.0 - backend.cast(n <= backend.constant(LARGEST[backend.dtype(n)], n), "float32")
            first = bad if isinstance(total, int) else total
            total = backend.asarray(total, "float32", first) + backend.asarray(backend.sum(bad, None), "float32", first)
    return total if isinstance(total, int) else backend.cast(total, "int32")
