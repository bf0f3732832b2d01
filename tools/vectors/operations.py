"""The operations: what the vectors need of each native, which follows from its record and its rule."""

from __future__ import annotations

from collections.abc import Iterator

from gradclip.core.rule import Rule, Scope
from gradclip.natives import OPERATIONS as NATIVES
from gradclip.natives import Native
from gradclip.natives.model import KERAS_BACKENDS
from vectors import bounds, formulas, slices
from vectors.formulas import Formula
from vectors.spec import Operation, takes

_ORDERS = (0.0, 0.5, 1.0, 2.0, 3.0, float("inf"), float("-inf"))
#: a formula that its documentation writes in another form than those of the same rule
_WRITTEN = {"optax.clip_by_global_norm": "g if n < {0} else g / n * {0}"}
_JOINT = "n = sqrt(sum of ||g||**2 over all gradients)"
_UNIT = "for each unit u: g_u if ||g_u|| < L_u else g_u * L_u / max(||g_u||, 1e-6), L_u = {0} * max(||w_u||, eps)"


def _operation(native: Native) -> Operation:
    rule, takes_text = native.rule(), takes(native, "1.0")
    text = "".join(_text(native, rule)).format(native.limit)
    on_keras = tuple(f"keras@{backend}" for backend in KERAS_BACKENDS)
    recorders = on_keras if native.framework == "keras" else (native.framework,)
    return Operation(native, _formula(native, rule, takes_text), text, takes_text, native.variants, recorders)


def _formula(native: Native, rule: Rule, takes_text: bool) -> Formula:
    """The closed form of a rule."""
    limit, zero = native.limit, native.at_zero
    if rule.scope is Scope.EXAMPLE:
        return slices.by_examples(limit)
    if rule.relative_to is not None:
        return slices.by_units(limit, rule.relative_to, rule.min_divisor)
    if rule.is_by_value:
        if len(native.needed) == 2:
            return bounds.between(native.needed)
        return bounds.max_first if zero == "error" else bounds.symmetric(limit, text=takes_text, off_at_zero=zero == "off")
    if "norm_type" in native.arguments:
        return formulas.by_order(limit, rule.eps, _orders(native))
    if rule.is_total:
        return formulas.global_norm(limit, rule, text=takes_text, off_at_zero=zero == "off")
    if "axes" in native.arguments:
        return slices.by_axes(limit)
    return formulas.own_norm(limit, rule, text=takes_text, zero=zero)


def _text(native: Native, rule: Rule) -> Iterator[str]:
    """The formula in words, with ``{0}`` for the limit."""
    if rule.is_by_value:
        low = native.needed[0] if len(native.needed) == 2 else "min" if "min" in native.arguments else "-{0}"
        yield f"max(min(g, {{0}}), {low})" + (", min = -max unless it is given" if low == "min" else "")
    elif rule.scope is Scope.EXAMPLE:
        yield f"sum over b of g_b * min(1, {{0}} / n_b), {_JOINT.replace('n =', 'n_b =').replace('||g||', '||g_b||')}"
    elif rule.relative_to is not None:
        yield _UNIT
    elif "norm_type" in native.arguments:
        yield f"{_scaled(rule, 'n')}, n = the norm_type norm of the norm_type norms of all gradients"
        yield "" if _orders(native) is None else ", norm_type one of 0, 1, 2 and inf"
    elif rule.is_total:
        yield f"{_WRITTEN.get(native.operation, _scaled(rule, 'n'))}, {_JOINT}"
        yield ", or use_norm" * ("use_norm" in native.arguments) + "; all NaN where n is infinite" * rule.nan_if_infinite
    elif rule.mean:
        yield "g / max(1, rms(g) / {0}), rms(g) = ||g|| / sqrt(size of g)"
    else:
        yield _scaled(rule, "||g||" if rule.order == 2 else f"||g||_{rule.order:g}")
        yield ", ||g|| over axes, which are kept" * ("axes" in native.arguments)
    yield "; 0 is off" * (native.at_zero == "off")


def _scaled(rule: Rule, n: str) -> str:
    """A gradient clipped by the norm that is written ``n``."""
    return f"g * min(1, {{0}} / ({n} + {rule.eps:.0e}))".replace("e-0", "e-") if rule.eps else f"g * {{0}} / max({n}, {{0}})"


def _orders(native: Native) -> tuple[float, ...] | None:
    """The orders of the norm that it takes; None for all."""
    taken = tuple(order for order in _ORDERS if takes(native, 1.0, norm_type=order))
    return None if taken == _ORDERS else taken


OPERATIONS = tuple(map(_operation, NATIVES.values()))
BY_NAME = {operation.name: operation for operation in OPERATIONS}
