"""A complete clip as one call of a compiled function, for eager arrays that no loop of the host clips.

On an accelerator each operation is a launch. For arrays on several processes each reduction is a program that all run. A clip
of slices is a dozen operations for each array, and XLA compiles each of them for each shape.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradclip.backends.host import fused as host
from gradclip.backends.jax.distributed import awaited
from gradclip.backends.jax.norm import real
from gradclip.backends.jax.places import are_together, is_on_host, is_tracing
from gradclip.core.backend import Tensor
from gradclip.core.dtypes import LARGEST, WIDE
from gradclip.core.engine import UNKNOWN, Options, run
from gradclip.core.errors import GradclipError
from gradclip.core.gradients import Gradients, open_, parameters
from gradclip.core.groups import Rules
from gradclip.core.result import Outcome
from gradclip.core.rule import AXES, VALUE, Rule

__all__ = ["fused", "in_memory"]


def fused(opened: Gradients, rules: Rules, options: Options) -> Outcome | None:
    """The clip by a rule of numbers, or None for the engine."""
    if not isinstance(rules, Rule) or not rules.is_plain or rules.error_if_nonfinite or not _takes(opened.present):
        return None
    if options.reduce is not None or options.into == "place" or options.norm is not UNKNOWN:
        return None
    return _clipped(opened, rules, options, None)


def in_memory(opened: Gradients, rules: Rules, options: Options) -> Outcome | None:
    """The clip in the host's memory: by its loops, or of slices by a rule of numbers; None for the engine.

    Not of examples: XLA adds up many products along the first axis one after the other, 160 ulp off for 100,000.
    """
    if not isinstance(rules, Rule) or rules.scope is not AXES:
        return host.fused(opened, rules, options)
    if (
        type(rules.limit) is not float
        or rules.skip_above is not None
        or rules.error_if_nonfinite
        or rules.if_nonfinite != "propagate"
    ):
        return None
    if options.into == "place" or isinstance(options.params, Iterator) or not host.is_complete(opened, options):
        return None
    try:
        params = None if rules.relative_to is None else parameters(opened, rules.name, options.params)
        if params is not None and not (_are_arrays(params) and are_together([*opened.present, *params])):
            return None
        return _clipped(opened, rules, options, params)
    except GradclipError:
        return None  # the engine raises it, with the names of the gradients


def _clipped(opened: Gradients, rules: Rule, options: Options, params: list[Tensor] | None) -> Outcome:
    wide = "float64" if "float64" in map(real, opened.present) else "float32"
    numbers = {name: _number(value, wide) for name, value in _numbers(rules).items()}
    zeros: dict[str, Any] = dict.fromkeys(numbers, 0.0)
    rule = dataclasses.replace(rules, **zeros)  # another limit uses the same program
    found = _compiled(opened.present, params, numbers, rule, options.until)
    grads, norm, coefficient = jax.tree.map(awaited, found)
    by_value = rules.scope is VALUE
    return Outcome(
        None if grads is None else opened.container.rebuild(opened.placed(grads)),
        opened.placed(norm) if isinstance(norm, list) else norm,
        opened.placed(coefficient) if isinstance(coefficient, list) else coefficient,
        bounds={0: (rules.lower, rules.upper, range(len(opened.leaves)))} if by_value else {},
    )


def _takes(tensors: list[Tensor]) -> bool:
    """Whether these are distinct arrays in one place, outside of the host's memory."""
    if not tensors or isinstance(tensors[0], jax.core.Tracer) or len(set(map(id, tensors))) < len(tensors):
        return False
    return _are_arrays(tensors) and not is_on_host(tensors[0]) and are_together(tensors) and not is_tracing()


def _are_arrays(tensors: list[Any]) -> bool:
    """Whether these are arrays of numbers, and none is traced."""
    if not all(isinstance(x, jax.Array) for x in tensors):
        return False
    one_of_each = dict(zip(((type(x), x.dtype) for x in tensors), tensors, strict=True)).values()
    return not any(isinstance(x, jax.core.Tracer) or str(x.dtype) not in WIDE for x in one_of_each)


def _numbers(rule: Rule) -> dict[str, float]:
    """The limit and the bounds. An infinite limit stays in the rule, which only measures then."""
    values = {"limit": rule.limit, "lower": rule.lower, "upper": rule.upper}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _number(value: float, dtype: str) -> Any:
    most = LARGEST[dtype]
    return np.array(min(max(value, -most), most), dtype)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _compiled(
    tensors: list[Tensor], params: list[Tensor] | None, numbers: dict[str, Tensor], rule: Rule, until: Any
) -> tuple[Any, Any, Any]:
    result = run(open_(tensors), dataclasses.replace(rule, **numbers), Options(until=until, params=params))
    norm, coefficient = jax.tree.map(_as_tensor, (result.norm, result.coefficient))
    return result.grads, norm, coefficient


def _as_tensor(x: Any) -> Tensor:
    return jnp.float32(x) if isinstance(x, float) else x
