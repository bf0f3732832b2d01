"""Programs of JAX and optax for ``gradclip doctor``: the last argument names one. ``# <- GD104`` marks a finding's line."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import torch


def train(
    optimizer: optax.GradientTransformation, change: Callable[[Any], Any] = lambda grads: grads, broken: int = 0, more: int = 0
) -> Any:
    """Train a small model in compiled steps, the first of which are broken, and return the state of the optimizer."""
    x, y = jax.random.normal(jax.random.key(0), (64, 4)), 3 * jax.random.normal(jax.random.key(1), (64,))
    params = {"w": jnp.ones(4), "b": jnp.zeros(())}
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, scale: Any) -> Any:
        grads = jax.grad(lambda p: jnp.mean((x @ p["w"] + p["b"] - y) ** 2) * scale)(params)
        updates, state = optimizer.update(change(grads), state, params)
        return optax.apply_updates(params, updates), state

    for count in range(6 + broken + more):
        params, state = jax.block_until_ready(step(params, state, math.nan if count < broken else 1.0))
    return state


def after_adam() -> None:
    """The clip comes after the optimizer, in a compiled step."""
    train(optax.chain(optax.adam(1.0), optax.clip_by_global_norm(1.0)))  # <- GM108


def alone() -> None:
    """An optimizer without a chain, in a compiled step."""
    train(optax.adam(0.01))  # <- GD101


def diverges() -> None:
    """The learning rate is far too high, and nothing clips."""
    train(optax.sgd(100.0))  # <- GD205


def no_clip() -> None:
    """Nothing clips, in a compiled step."""
    train(optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01)))  # <- GD101


def own_after_adam() -> None:
    """gradclip's link comes after the optimizer, in a compiled step."""
    train(optax.chain(optax.adam(1.0), gradient_transformation(torch.clip_grad_norm(1.0))))  # <- GM108


def masked_with_decay() -> None:
    """The mask is meant for the decay, and keeps a parameter from the clip too."""
    inner = optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(0.1))
    train(optax.chain(optax.masked(inner, {"w": True, "b": False}), optax.adam(0.01)))  # <- GM118


def right_masked() -> None:
    """Right: the mask is the clip's own."""
    train(optax.chain(optax.masked(optax.clip_by_global_norm(1.0), {"w": True, "b": False}), optax.adam(0.01)))


def one_pass() -> None:
    """One pass makes the gradients of two optimizers, and one of them clips."""
    optimizers = {"w": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.01)), "b": optax.sgd(0.01)}  # <- GD101
    pair(optimizers, lambda params: jax.grad(lambda p: jnp.sum((p["w"] - p["b"]) ** 2))(params))


def right_two_passes() -> None:
    """Right: two passes make the gradients of two optimizers, and one of them is not clipped on purpose."""
    optimizers = {"w": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.01)), "b": optax.sgd(0.01)}
    pair(optimizers, lambda params: {name: jax.grad(lambda x: jnp.sum((x - 3) ** 2))(x) for name, x in params.items()})


def pair(optimizers: Any, gradients: Callable[[Any], Any]) -> None:
    """Train two parameters, each by an optimizer of its own, in a compiled step."""
    params = {"w": jnp.ones(4), "b": jnp.zeros(4)}
    states = {name: x.init(params[name]) for name, x in optimizers.items()}

    @jax.jit
    def step(params: Any, states: Any) -> Any:
        grads, new = gradients(params), {}
        for name, optimizer in optimizers.items():
            updates, states[name] = optimizer.update(grads[name], states[name])
            new[name] = optax.apply_updates(params[name], updates)
        return new, states

    for _ in range(6):
        params, states = jax.block_until_ready(step(params, states))


def held_back() -> None:
    """Each micro-batch is clipped, and the optimizer steps after three."""
    held = optax.MultiSteps(optax.adam(0.01), 3).gradient_transformation()
    train(optax.chain(optax.clip_by_global_norm(0.5), held), more=12)  # <- GM119


def right_held_back() -> None:
    """Right: the mean of three micro-batches is clipped."""
    held = optax.MultiSteps(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01)), 3)
    train(held.gradient_transformation(), more=12)


def right_by_hand() -> None:
    """Right: the usual clip, written out, in a compiled step."""

    def clip(grads: Any) -> Any:
        factor = jnp.minimum(1.0, 1.0 / jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(grads))))
        return jax.tree.map(lambda x: x * factor, grads)

    train(optax.adam(0.01), clip)


def right_chain() -> None:
    """Right: a clip, then the optimizer, in a compiled step."""
    train(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01)))


def right_injected() -> None:
    """Right: a clip whose limit is a hyperparameter, then the optimizer, in a compiled step."""
    train(optax.chain(optax.inject_hyperparams(optax.clip_by_global_norm)(max_norm=1.0), optax.adam(0.01)))


def right_clipped() -> None:
    """Right: gradclip around an optimizer, in a compiled step."""
    train(gradclip.clipped(optax.adam(0.01), torch.clip_grad_norm(1.0)))


def clipped_twice() -> None:
    """gradclip around a chain that clips."""
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01))
    train(gradclip.clipped(chain, torch.clip_grad_norm(1.0)))  # <- GM120


def right_own() -> None:
    """Right: gradclip's link, then the optimizer, in a compiled step."""
    train(optax.chain(gradient_transformation(torch.clip_grad_norm(1.0)), optax.adam(0.01)))


def right_own_function() -> None:
    """Right: a clip of the gradients, then a chain that has none, in a compiled step."""
    train(
        optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01)),
        lambda grads: gradclip.clip(grads, torch.clip_grad_norm(1.0)).grads,
    )


def right_skipped() -> None:
    """Right: the rule of gradclip around an optimizer skips what is not finite, in a compiled step."""
    rule = dataclasses.replace(torch.clip_grad_norm(1.0), if_nonfinite="skip")
    train(gradclip.clipped(optax.adam(0.01), rule), broken=5)


def right_finite() -> None:
    """Right: optax skips what is not finite, in a compiled step."""
    train(optax.apply_if_finite(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01)), 9), broken=5)


def right_finite_link() -> None:
    """Right: a link skips what is not finite, in a compiled step."""
    train(optax.chain(optax.clip_by_global_norm(1.0), optax.apply_if_finite(optax.adam(0.01), 9)), broken=5)


def right_own_eagerly() -> None:
    """Right: a clip of the gradients before an optimizer that has none, in a loop that is not compiled."""
    params, optimizer = {"w": jnp.ones(4)}, optax.adam(0.01)
    state = optimizer.init(params)
    for _ in range(6):
        grads = jax.grad(lambda p: jnp.sum(p["w"] ** 2))(params)
        clipped = gradclip.clip(grads, torch.clip_grad_norm(1.0)).grads
        updates, state = optimizer.update(clipped, state, params)
        params = optax.apply_updates(params, updates)


def right_in_flight() -> None:
    """Right: the script waits for no step, so that many are in flight."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01))
    params = {"w": jnp.ones((64, 64))}
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(jax.grad(lambda p: jnp.mean(p["w"] ** 2))(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(200):
        params, state = step(params, state)


if __name__ == "__main__":
    globals()[sys.argv[-1]]()
