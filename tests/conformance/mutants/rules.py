"""The meaning of each operation, from its native's documentation: converts the arguments of a call to the numbers of a clip.

This file and ``reference.py`` use none of gradclip's own clips: the reference must not share code with the suite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WIDE = np.longdouble


@dataclass
class Rule:
    """One call's arguments."""

    scope: str  #: "global", "tensor", "axes", "unit", "example" or "element"
    limit: Any = math.inf  #: a number, or an array of wide numbers
    order: float = 2.0
    eps: float = 0.0  #: added to the norm
    min_divisor: float = 0.0  #: the least divisor
    mean: bool = False  #: root mean square
    axes: tuple[int, ...] | None = None
    nan_if_infinite: bool = False
    keeps_nan: bool = False
    strict: bool = False  #: whether a norm that is not finite raises
    known: Any = None  #: the norm, if the caller knows it already
    lower: Any = -math.inf
    upper: Any = math.inf
    parameters: list[Any] = field(default_factory=list)
    least: float = 0.0  #: the least norm of a parameter


def number(value: Any, *, text: bool = False, several: bool = False) -> Any:
    """Convert a limit to a wide number, or to an array if several elements may broadcast."""
    if isinstance(value, str) and not text:
        raise TypeError(f"a limit must be a number, not {value!r}")
    if isinstance(value, np.ndarray):
        if value.size != 1 and not several:
            raise ValueError("a limit must have one element")
        wide = value.astype(WIDE)
        return wide if several and value.size != 1 else WIDE(wide.reshape(-1)[0])
    return WIDE(float(value))


def checked(limit: Any, *, negative_is_zero: bool = False) -> Any:
    """Return a valid limit; raise for any other."""
    if np.isnan(limit).any() or ((limit < 0).any() and not negative_is_zero):
        raise ValueError(f"a limit must not be negative or NaN: {limit}")
    return np.maximum(limit, WIDE(0))


def _by_order(arguments: dict[str, Any], orders: tuple[float, ...] | None = None) -> Rule:
    order = arguments.get("norm_type", 2.0)
    if orders is not None and order not in orders:
        raise ValueError(f"norm_type must be one of {orders}")
    limit = checked(number(arguments["max_norm"], text=True))
    return Rule("global", limit, float(order), eps=1e-6, strict=bool(arguments.get("error_if_nonfinite")))


def _global(name: str, **options: Any) -> Callable[[dict[str, Any]], Rule]:
    text, off = options.pop("text", False), options.pop("off", False)

    def rule(arguments: dict[str, Any]) -> Rule:
        limit = checked(number(arguments[name], text=text))
        known = arguments.get("use_norm")
        if known is not None:
            known = number(known)
            if known < 0:
                raise ValueError("a norm must not be negative")
        keeps_nan = bool(arguments.get("auto_skip_clip"))
        return Rule("global", math.inf if off and limit == 0 else limit, known=known, keeps_nan=keeps_nan, **options)

    return rule


def _own(name: str, zero: str = "zeros", text: bool = False, mean: bool = False) -> Callable[[dict[str, Any]], Rule]:
    def rule(arguments: dict[str, Any]) -> Rule:
        limit = checked(number(arguments[name], text=text))
        if limit == 0 and zero == "error":
            raise ValueError(f"{name} must be greater than 0")
        return Rule("tensor", math.inf if limit == 0 and zero == "off" else limit, mean=mean)

    return rule


def _axes(axes: Any) -> tuple[int, ...] | None:
    return None if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)


def _by_axes(arguments: dict[str, Any]) -> Rule:
    limit = checked(number(arguments["clip_norm"], several=True), negative_is_zero=True)
    return Rule("axes", limit, axes=_axes(arguments.get("axes")))


def _by_units(arguments: dict[str, Any]) -> Rule:
    least = checked(number(arguments.get("eps", 1e-3)))
    limit, axes = checked(number(arguments["clipping"])), _axes(arguments.get("axis"))
    return Rule("unit", limit, min_divisor=1e-6, axes=axes, parameters=list(arguments["parameters"]), least=least)


def _by_examples(arguments: dict[str, Any]) -> Rule:
    return Rule("example", checked(number(arguments["l2_norm_clip"])), keeps_nan=True)


def _symmetric(name: str, text: bool = False, off: bool = False) -> Callable[[dict[str, Any]], Rule]:
    def rule(arguments: dict[str, Any]) -> Rule:
        bound = checked(number(arguments[name], text=text))
        bound = WIDE(math.inf) if off and bound == 0 else bound
        return Rule("element", lower=-bound, upper=bound)

    return rule


def _between(arguments: dict[str, Any]) -> Rule:
    lower, upper = (number(arguments[name], several=True) for name in ("clip_value_min", "clip_value_max"))
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError("a bound must not be NaN")
    return Rule("element", lower=lower, upper=upper)


def _max_first(arguments: dict[str, Any]) -> Rule:
    upper = number(arguments["max"])
    if arguments.get("min") is None:
        if not upper > 0:
            raise ValueError("max must be greater than 0")
        return Rule("element", lower=-upper, upper=upper)
    lower = number(arguments["min"])
    if not lower <= upper:
        raise ValueError("max must not be less than min")
    return Rule("element", lower=lower, upper=upper)


RULES: dict[str, Callable[[dict[str, Any]], Rule]] = {
    "torch.clip_grad_norm_": _by_order,
    "torch.clip_grad_value_": _symmetric("clip_value", text=True),
    "tensorflow.clip_by_norm": _by_axes,
    "tensorflow.clip_by_global_norm": _global("clip_norm", nan_if_infinite=True),
    "tensorflow.clip_by_value": _between,
    "paddle.ClipGradByNorm": _own("clip_norm", "error", text=True),
    "paddle.ClipGradByGlobalNorm": _global("clip_norm", text=True),
    "paddle.ClipGradByValue": _max_first,
    "paddle.clip_grad_norm_": lambda arguments: _by_order(arguments, (0.0, 1.0, 2.0, math.inf)),
    "paddle.clip_grad_value_": _symmetric("clip_value", text=True),
    "optax.clip_by_global_norm": _global("max_norm"),
    "optax.clip": _symmetric("max_delta"),
    "optax.clip_by_block_rms": _own("threshold", mean=True),
    "optax.adaptive_grad_clip": _by_units,
    "optax.per_example_global_norm_clip": _by_examples,
    "keras.clipnorm": _own("clipnorm", "off"),
    "keras.global_clipnorm": _global("global_clipnorm", off=True, nan_if_infinite=True),
    "keras.clipvalue": _symmetric("clipvalue", off=True),
}
IN_PLACE = (
    *("torch.clip_grad_norm_", "torch.clip_grad_value_"),
    *("paddle.ClipGradByGlobalNorm", "paddle.clip_grad_norm_", "paddle.clip_grad_value_"),
)
REPORTS_NORM = ("torch.clip_grad_norm_", "tensorflow.clip_by_global_norm", "paddle.clip_grad_norm_")
TEXT = (*IN_PLACE, "paddle.ClipGradByNorm")
