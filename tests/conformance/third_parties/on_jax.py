"""The clips of packages for JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from conformance.third_parties.clips import Clip, alone, imported

from gradclip.conformance import Target, function_target

__all__ = ["CLIPS"]


def _of_gradients(call: Callable[..., Any], operation: str, name: str) -> Target:
    return function_target(call, operation, "jax", name=name, takes="gradients", in_place=False)


def _jax_privacy() -> Target:
    clip = imported("jax_privacy.clipping", "clip_pytree")

    def run(grads: Sequence[Any], max_norm: Any) -> Any:
        return clip(list(grads), max_norm)[0]

    return _of_gradients(run, "optax.clip_by_global_norm", "jax-privacy")


def _numpyro() -> Target:
    """A step of the optimizer, whose Adam is replaced by a function that returns the gradients which Adam would get."""
    kind = imported("numpyro.optim", "ClippedAdam")

    def run(grads: Sequence[Any], max_delta: Any) -> Any:
        made = kind(step_size=1.0, clip_norm=max_delta)
        made.update_fn = lambda step, seen, state: seen
        return made.update(list(grads), (0, None))[1]

    return _of_gradients(run, "optax.clip", "numpyro")


def _rlax() -> Target:
    """The identity whose derivative is clipped."""
    clip = alone("rlax._src.clipping", "clip_gradient")

    def run(grads: Sequence[Any], max_delta: Any) -> Any:
        return [jax.vjp(lambda x: clip(x, -max_delta, max_delta), one)[1](one)[0] for one in grads]

    return _of_gradients(run, "optax.clip", "rlax")


CLIPS: tuple[Clip, ...] = (
    Clip("jax-privacy", "jax_privacy.clipping.clip_pytree", "optax.clip_by_global_norm", _jax_privacy),
    Clip("numpyro", "numpyro.optim.ClippedAdam", "optax.clip", _numpyro),
    Clip("rlax", "rlax.clip_gradient", "optax.clip", _rlax),
)
