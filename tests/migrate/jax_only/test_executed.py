"""Updates of optax, before and after their migration; also the optimizer's state, which checkpoints contain."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from migrate.codemods import migrate
from migrate.executed import agree, run, same

STEP = """
import jax
import jax.numpy as jnp
import numpy as np
import optax

params = {{"w": jnp.linspace(-2.0, 2.0, 12).reshape(3, 4), "b": jnp.linspace(0.5, 1.5, 5)}}
gradients = {{"w": jnp.linspace(-1.0, 2.0, 12).reshape(3, 4), "b": jnp.linspace(-1.0, 3.0, 5)}}
optimizer = {optimizer}
state = optimizer.init(params)
update = jax.jit(optimizer.update) if {jit} else optimizer.update
updates, after = update(gradients, state, params)
RAW = [np.asarray(leaf) for leaf in jax.tree.leaves(gradients)]
GRADIENTS = [np.asarray(leaf) for leaf in jax.tree.leaves(updates)]
"""

OPTIMIZERS = {
    "by the global norm": ("optax.chain(optax.clip_by_global_norm(1.0), optax.scale(-1.0))", ["GO501"]),
    "alone": ("optax.clip_by_global_norm(max_norm=1.0)", ["GO501"]),
    "by value": ("optax.chain(optax.clip(0.5), optax.sgd(1.0))", ["GO502"]),
    "by root mean square": ("optax.named_chain(('clip', optax.clip_by_block_rms(0.5)), ('sgd', optax.sgd(1.0)))", ["GO503"]),
    "relative to the parameters": ("optax.chain(optax.adaptive_grad_clip(0.01, eps=0.1), optax.sgd(1.0))", ["GO504"]),
    "masked": ("optax.chain(optax.masked(optax.clip(0.1), {'w': True, 'b': False}), optax.sgd(1.0))", ["GO502"]),
    "two": ("optax.chain(optax.clip(0.9), optax.clip_by_global_norm(1.0), optax.sgd(1.0))", ["GO502", "GO501"]),
    "in several steps": ("optax.MultiSteps(optax.chain(optax.clip(0.5), optax.sgd(1.0)), every_k_schedule=1)", ["GO502"]),
}


def structure(names: dict[str, Any]) -> Any:
    return jax.tree.structure(names["state"]), jax.tree.structure(names["after"])


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_is_the_same(name: str, jit: bool) -> None:
    optimizer, codes = OPTIMIZERS[name]
    agree(STEP.format(optimizer=optimizer, jit=jit), codes)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_checkpoint_from_before_is_one_for_after(name: str) -> None:
    source = STEP.format(optimizer=OPTIMIZERS[name][0], jit=False)
    before, after = run(source), run(migrate(source).source)
    assert structure(after) == structure(before)
    updates, _ = after["optimizer"].update(after["gradients"], before["after"], after["params"])
    want, _ = before["optimizer"].update(before["gradients"], before["after"], before["params"])
    same(jax.tree.leaves(updates), jax.tree.leaves(want))


def test_the_line_for_injected_hyperparameters_keeps_the_state() -> None:
    optimizer = "optax.inject_hyperparams(optax.clip_by_global_norm)(max_norm=1.0)"
    source = STEP.format(optimizer=optimizer, jit=True)
    (site,) = migrate(source).sites
    assert site.code == "GM115"
    line = site.advice.removeprefix("Write: ").partition(", whose")[0]
    by_hand = source.replace("optax.inject_hyperparams(optax.clip_by_global_norm)", line)
    before, after = run(source), run("import gradclip.backends.jax\n" + by_hand)
    assert structure(after) == structure(before)
    assert after["after"].hyperparams.keys() == {"max_norm"}
    same(after["GRADIENTS"], before["GRADIENTS"])
