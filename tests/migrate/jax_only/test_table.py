"""The migration table against optax and JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import optax
import pytest
from jax.example_libraries import optimizers
from migrate import drift


def transformation(make: Any) -> drift.Run:
    def run(gradients: drift.Gradients, limit: float) -> drift.Gradients:
        tree = [None if g is None else jnp.asarray(g) for g in gradients]
        parameters = [None if g is None else jnp.ones(2) for g in gradients]
        link = make(limit)
        return _lists(link.update(tree, link.init(parameters), parameters)[0])

    return run


def per_example(gradients: drift.Gradients, limit: float) -> drift.Gradients:
    tree = [None if g is None else jnp.asarray([g]) for g in gradients]
    flat, _ = optax.per_example_global_norm_clip([g for g in tree if g is not None], limit)
    clipped = iter(_lists(flat))  # a list of leaves, for any tree
    return [None if g is None else next(clipped) for g in tree]


def grads(gradients: drift.Gradients, limit: float) -> drift.Gradients:
    return _lists(optimizers.clip_grads([None if g is None else jnp.asarray(g) for g in gradients], limit))


def _lists(tree: Any) -> drift.Gradients:
    return [None if g is None else g.tolist() for g in tree]


def test_the_names_are_there() -> None:
    assert drift.missing("optax", "jax") == {"jax.experimental.optimizers.clip_grads"}


def test_the_signatures_are_those_of_the_table() -> None:
    assert drift.drifted("optax", "jax") == {}


@pytest.mark.parametrize(
    ("code", "run"),
    [
        ("GO501", transformation(optax.clip_by_global_norm)),
        ("GO502", transformation(optax.clip)),
        ("GO503", transformation(optax.clip_by_block_rms)),
        ("GO504", transformation(optax.adaptive_grad_clip)),
        ("GO505", per_example),
        ("GO511", grads),
    ],
)
def test_the_edges(code: str, run: drift.Run) -> None:
    said = drift.said(code)
    assert drift.done(run, said) == said
