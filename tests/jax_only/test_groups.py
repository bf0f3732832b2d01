"""Groups in an optax chain, and the names in a pytree."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest
from oracle import ulps

import gradclip
from gradclip import Group
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as dialect


class Dense(NamedTuple):
    kernel: Any
    bias: Any


TREE = {
    "layers": [Dense(jnp.array([3.0, 4.0]), jnp.array([12.0])), Dense(jnp.array([8.0]), None)],
    "out": {7: jnp.array([6.0])},
}


def test_names_in_a_pytree() -> None:
    seen: dict[str, Any] = {}
    gradclip.norm(TREE, Group(dialect.clip_by_global_norm(1.0), lambda name, x: seen.setdefault(name, x) is None))
    assert list(seen) == ["layers.0.kernel", "layers.0.bias", "layers.1.kernel", "out.7"], "the function is not called for None"
    assert gradclip.norm(TREE, Group(dialect.clip_by_global_norm(1.0), ["layers.0.*"])) == 13.0
    assert gradclip.norm(TREE, Group(dialect.clip_by_global_norm(1.0), ["*.7", "*.1.kernel"])) == 10.0


def test_in_a_chain() -> None:
    groups = [
        Group(dialect.clip_by_global_norm(1.3), "layers.0.*"),
        Group(dialect.adaptive_grad_clip(0.1), "out.7"),
    ]
    chain = optax.chain(gradient_transformation(groups), optax.scale(2.0))
    params = jax.tree.map(jnp.ones_like, TREE)

    @jax.jit
    def update(grads: Any) -> Any:
        return chain.update(grads, chain.init(params), params)[0]

    got = update(TREE)
    assert ulps(got["layers"][0].kernel, [0.6, 0.8], "float32") <= 4
    assert ulps(got["layers"][0].bias, [2.4], "float32") <= 4
    assert got["layers"][1].kernel == 16.0
    assert ulps(got["out"][7], [0.2], "float32") <= 4
    with pytest.raises(TypeError, match=r"adaptive_grad_clip needs the parameters"):
        chain.update(TREE, chain.init(params))
    with pytest.raises(ValueError, match="changes the shape of a gradient"):
        gradient_transformation([Group(dialect.per_example_global_norm_clip(1.0))])
