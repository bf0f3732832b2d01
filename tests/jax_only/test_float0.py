"""float0, JAX's gradient of integers, counts as a missing gradient and keeps its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax, torch

RULE = optax.clip_by_global_norm(1.0)
W = jnp.array([3.0, 4.0])


def gradients(w: Any) -> dict[str, Any]:
    """Return a gradient that equals the weights, and the float0 gradient of integers."""
    return jax.grad(lambda x: (x["i"] * x["w"] ** 2 / 2).sum(), allow_int=True)({"i": jnp.array([1, 1]), "w": w})


CONTAINERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": lambda grads: grads,
    "list": lambda grads: [grads["i"], grads["w"]],
    "list, it last": lambda grads: [grads["w"], grads["i"]],
    "nested": lambda grads: (grads["w"], {"a": [grads["i"]]}),
    "as older versions have it": lambda grads: {"i": np.zeros(2, jax.dtypes.float0), "w": grads["w"]},
}


def check(given: Any, clipped: Any) -> None:
    """Assert that the gradient is clipped, and that the structure and all dtypes are unchanged."""
    before, after = jax.tree.leaves(given), jax.tree.leaves(clipped)
    assert jax.tree.structure(given) == jax.tree.structure(clipped)
    assert [x.dtype for x in before] == [x.dtype for x in after]
    (found,) = [x for x in after if x.dtype != jax.dtypes.float0]
    np.testing.assert_allclose(found, [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_it_is_left_out(container: Callable[[dict[str, Any]], Any]) -> None:
    given = container(gradients(W))
    result = gradclip.clip(given, RULE)
    assert float(result.norm) == 5.0
    check(given, result.grads)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_it_is_left_out_in_jit(container: Callable[[dict[str, Any]], Any]) -> None:
    clipped = jax.jit(lambda w: gradclip.clip(container(gradients(w)), RULE).grads)(W)
    check(container(gradients(W)), clipped)


def test_alone_it_is_no_gradient() -> None:
    integers = gradients(W)["i"]
    for given in (integers, [integers], [integers, integers]):
        assert float(gradclip.clip(given, RULE).norm) == 0.0
    assert jax.jit(lambda w: gradclip.clip(gradients(w)["i"], RULE).grads)(W).dtype == jax.dtypes.float0


def test_in_optax_slot() -> None:
    link = gradient_transformation(RULE)
    updates, _ = link.update(gradients(W), link.init(W))
    check(gradients(W), updates)
    check(gradients(W), jax.jit(lambda w: link.update(gradients(w), link.init(w))[0])(W))
    relative = gradient_transformation(optax.adaptive_grad_clip(0.5))
    params = {"i": np.array([1, 1]), "w": 2 * W}
    updates, _ = relative.update(gradients(W), relative.init(params), params)
    np.testing.assert_allclose(updates["w"], [3.0, 4.0])


def test_other_functions() -> None:
    grads = gradients(W)
    assert float(gradclip.global_norm([grads["i"], grads["w"]])) == 5.0
    assert float(gradclip.get_total_norm(grads)) == 5.0
    pairs = gradclip.ClipGradByNorm(1.0)([("i", grads["i"]), ("w", grads["w"])])
    check([grads["i"], grads["w"]], [g for _, g in pairs])
    check(grads, gradclip.clip(grads, [gradclip.Group(RULE, "w")]).grads)
    assert gradclip.clip(grads, torch.clip_grad_value(1.0)).grads["w"].tolist() == [1.0, 1.0]
