"""A complete clip as one call of a compiled function, for eager arrays that are not in this process's memory.

On an accelerator each operation is a launch. For arrays on several processes each reduction is a program that all run.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradclip.backend import Tensor
from gradclip.backends.jax.distributed import awaited
from gradclip.backends.jax.norm import real
from gradclip.backends.jax.places import are_together, is_on_host, is_tracing
from gradclip.dtypes import LARGEST, WIDE
from gradclip.engine import UNKNOWN, Options, run
from gradclip.gradients import Gradients, open_
from gradclip.groups import Rules
from gradclip.result import Outcome
from gradclip.rule import VALUE, Rule

__all__ = ["fused"]


def fused(opened: Gradients, rules: Rules, options: Options) -> Outcome | None:
    """The clip by a rule of numbers, or None for the engine."""
    if not isinstance(rules, Rule) or not rules.is_plain or rules.error_if_nonfinite or not _takes(opened.present):
        return None
    if options.reduce is not None or options.into == "place" or options.norm is not UNKNOWN:
        return None
    wide = "float64" if "float64" in map(real, opened.present) else "float32"
    numbers = {name: _number(value, wide) for name, value in _numbers(rules).items()}
    zeros: dict[str, Any] = dict.fromkeys(numbers, 0.0)
    rule = dataclasses.replace(rules, **zeros)  # another limit uses the same program
    found = _compiled(opened.present, numbers, rule, options.until)
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
    one_of_each = dict(zip(((type(x), x.dtype) for x in tensors), tensors, strict=True)).values()
    if any(isinstance(x, jax.core.Tracer) or str(x.dtype) not in WIDE for x in one_of_each):
        return False
    return not is_on_host(tensors[0]) and are_together(tensors) and not is_tracing()


def _numbers(rule: Rule) -> dict[str, float]:
    """The limit and the bounds. An infinite limit stays in the rule, which only measures then."""
    values = {"limit": rule.limit, "lower": rule.lower, "upper": rule.upper}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _number(value: float, dtype: str) -> Any:
    most = LARGEST[dtype]
    return np.array(min(max(value, -most), most), dtype)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _compiled(tensors: list[Tensor], numbers: dict[str, Tensor], rule: Rule, until: Any) -> tuple[Any, Any, Any]:
    result = run(open_(tensors), dataclasses.replace(rule, **numbers), Options(until=until))
    norm, coefficient = jax.tree.map(_as_tensor, (result.norm, result.coefficient))
    return result.grads, norm, coefficient


def _as_tensor(x: Any) -> Tensor:
    return jnp.float32(x) if isinstance(x, float) else x
