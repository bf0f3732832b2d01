"""Clips by norm written out in JAX: each is rewritten, and both versions give the same gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from migrate.by_hand import agrees, refuses, source
from migrate.forms import JAX_NORMS as NORMS
from migrate.forms import JAX_SCALES as SCALES
from migrate.forms import TREE_NORM

HEADER = "import jax\nimport jax.numpy as jnp\nimport optax"
OWN = f"{HEADER}\n\n\n{TREE_NORM}"


def make() -> Any:
    key = jax.random.key(3)
    return {"w": jax.random.normal(key, (3, 4)) * 3, "b": (jax.random.normal(key, (5,)), jnp.ones(()))}


@pytest.mark.drawn(60)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_clip_written_out_is_one_call_of_the_same_value(norm: str, scale: str) -> None:
    new = agrees(source(OWN, NORMS[norm], SCALES[scale]), make, jax.tree.leaves)
    assert "gradclip.clip(grads, " in new


#: another meaning by one token
OTHERS = {
    "turned round": "return jax.tree.map(lambda g: jnp.where(n < limit, g * limit / n, g), grads)",
    "the other extreme": "return jax.tree.map(lambda g: g * jnp.maximum(1.0, limit / n), grads)",
    "another divisor": "return jax.tree.map(lambda g: g / jnp.minimum(1.0, n / limit), grads)",
    "another bound": "return jax.tree.map(lambda g: g * jnp.minimum(2.0, limit / n), grads)",
    "another epsilon": "return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / (n + 1e-3)), grads)",
    "another limit": "return jax.tree.map(lambda g: jnp.where(n > 2 * limit, g * limit / n, g), grads)",
    "other gradients": "return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / n), grads['w'])",
    "a factor more": "return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / n) / 2, grads)",
    "lax's order of the arguments": "c = jax.lax.clamp(limit / n, 0.0, 1.0)\nreturn jax.tree.map(lambda g: g * c, grads)",
    "lax's bound of 2": "c = jax.lax.clamp(0.0, limit / n, 2.0)\nreturn jax.tree.map(lambda g: g * c, grads)",
    "lax's bound from below": "c = jax.lax.clamp(0.5, limit / n, 1.0)\nreturn jax.tree.map(lambda g: g * c, grads)",
    "a square": "return jax.tree.map(lambda g: g * g * jnp.minimum(1.0, limit / n), grads)",
    "another dtype": "return jax.tree.map(lambda g: g.astype(jnp.float16) * jnp.minimum(1.0, limit / n), grads)",
    "a flat result": "return jax.tree.map(lambda g: g.ravel() * jnp.minimum(1.0, limit / n), grads)",
    "other gradients by then": "grads = f(grads)\nreturn jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / n), grads)",
    "another limit by then": "c = limit / n\nlimit = 3.0\nreturn jax.tree.map(lambda g: g * jnp.minimum(1.0, c), grads)",
    "a loop around": "while n:\n    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / n), grads)\nreturn grads",
}


@pytest.mark.drawn(60)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", OTHERS)
def test_another_meaning_is_not_rewritten(norm: str, scale: str) -> None:
    refuses(source(OWN, NORMS[norm], OTHERS[scale]))


#: what is no norm over all gradients
OTHER_NORMS = {
    "a matrix's spectral norm": "n = jnp.linalg.norm(grads, 2)",
    "a maximum": "n = max(jnp.linalg.norm(g) for g in jax.tree.leaves(grads))",
    "a sum of norms": "n = sum(jnp.linalg.norm(g) for g in jax.tree.leaves(grads))",
    "rows": "n = jnp.sqrt(sum(jnp.sum(g ** 2, axis=0) for g in jax.tree.leaves(grads)))",
    "a mean": "n = jnp.sqrt(sum(jnp.mean(g ** 2) for g in jax.tree.leaves(grads)))",
    "some": "n = jnp.sqrt(sum(jnp.sum(g ** 2) for g in jax.tree.leaves(grads) if g.ndim > 1))",
    "another function's": "n = distance.global_norm(grads)",
    "half": "n = jnp.sqrt(sum(jnp.sum(g ** 2) for g in jax.tree.leaves(grads)) / 2)",
    "in a branch": "n = 1.0\nif limit > 3:\n    n = optax.tree.norm(grads)",
}


@pytest.mark.parametrize("norm", OTHER_NORMS)
def test_another_norm_is_not_rewritten(norm: str) -> None:
    refuses(source(HEADER, OTHER_NORMS[norm], SCALES["a minimum"]))


EACH = {
    "a minimum": "return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / jnp.linalg.norm(g)), grads)",
    "a norm with a name": "def scale(g):\n    n = jnp.sqrt(jnp.sum(g ** 2))\n    return jnp.where(n > limit, g * limit / n, g)"
    "\n"
    "return jax.tree.map(scale, grads)",
    "an epsilon": "return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / (jnp.linalg.norm(g) + 1e-6)), grads)",
}


@pytest.mark.parametrize("kind", EACH)
def test_a_clip_of_each_gradient(kind: str) -> None:
    agrees(source(HEADER, EACH[kind]), make, jax.tree.leaves)


def test_a_norm_that_is_read_stays() -> None:
    code = source(HEADER, NORMS["optax"], SCALES["a minimum with a name"].replace("grads)", "grads), n"))
    new = agrees(code, make, lambda result: jax.tree.leaves(result[0]))
    assert "n = optax.tree.norm(grads)" in new
    assert "c = " not in new


def test_a_clip_runs_in_a_compiled_function() -> None:
    code = source(HEADER, NORMS["optax"], SCALES["a minimum"]).replace("def clip", "@jax.jit\ndef clip")
    agrees(code, make, lambda tree: [np.asarray(one) for one in jax.tree.leaves(tree)])


@pytest.mark.parametrize("leaves", ["jax.tree.leaves(grads)", "jax.tree_util.tree_leaves(grads)", "list(grads.values())"])
def test_what_the_call_reads_stays(leaves: str) -> None:
    body = f"leaves = {leaves}\nn = jnp.sqrt(sum(jnp.sum(x ** 2) for x in leaves))\n"
    code = source(HEADER, body + "return [g * jnp.minimum(1.0, limit / n) for g in leaves]")
    assert f"leaves = {leaves}" in agrees(code, lambda: {"w": jnp.arange(4.0), "b": jnp.ones(3)}, list)
