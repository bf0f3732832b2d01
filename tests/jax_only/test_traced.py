"""jit, vmap, grad and scan, with every rule that supports JAX's transformations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frameworks.jax import framework
from jax import export
from oracle import ulps
from rules import functions

import gradclip
from gradclip.core.rule import Rule
from gradclip.dialects import optax, tensorflow, torch

RULES = functions(lambda rule: rule.scope.value in ("global", "tensor", "axes") and rule.order >= 1)
GRADIENTS = [np.array([[3.0, -4.0, 1.0], [0.5, 2.0, -6.0]]), np.array([[1.0, 2.0, 7.0]])]
PARAMS = [np.array([[1.0, 0.5, -2.0], [0.3, 1.0, 0.1]]), np.array([[0.5, 0.25, 1.0]])]


@pytest.fixture(params=RULES.values(), ids=RULES)
def rule_of(request: pytest.FixtureRequest) -> Callable[[Any], Rule]:
    return request.param


def tensors(arrays: list[np.ndarray], dtype: str = "float32") -> list[jax.Array]:
    return [framework.make(a, dtype) for a in arrays]


def clipped(grads: list[Any], rule: Rule) -> list[Any]:
    params = tensors(PARAMS[: len(grads)], str(grads[0].dtype)) if rule.relative_to else None
    result: list[Any] = gradclip.clip(grads, rule, params=params).grads
    return result


def assert_close(got: list[Any], want: list[Any]) -> None:
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        assert not mine.weak_type
        assert ulps(framework.read(mine), framework.read(theirs), str(mine.dtype)) <= 4


def test_a_limit_may_be_traced(rule_of: Callable[[Any], Rule]) -> None:
    got = jax.jit(lambda grads, limit: clipped(grads, rule_of(limit)))(tensors(GRADIENTS), jnp.float32(0.5))
    assert_close(got, clipped(tensors(GRADIENTS), rule_of(0.5)))


def test_vmap_clips_each_by_itself(rule_of: Callable[[Any], Rule]) -> None:
    factors = np.array([1.0, 0.01, 100.0], np.float32)
    stacked = [jnp.stack([g * f for f in factors]) for g in tensors(GRADIENTS)]
    got = jax.jit(jax.vmap(lambda grads: clipped(grads, rule_of(0.5))))(stacked)
    for i, f in enumerate(factors):
        assert_close([g[i] for g in got], clipped([g * f for g in tensors(GRADIENTS)], rule_of(0.5)))


@pytest.mark.parametrize("rule", [torch.clip_grad_norm(1.0), optax.clip_by_block_rms(1.0)], ids=["global", "each"])
def test_vmap_of_rows_of_other_scales(rule: Rule) -> None:
    """A branch becomes a select there: each row has its own norm, and none is NaN because of another."""
    scales = np.array([[1.0, 1e30], [1e-30, 0.0]])
    rows = framework.make(np.random.default_rng(0).normal(size=(2, 2, 5000)) * scales[..., None])
    same = framework.make(np.full(6000, 1e-3))

    def norms(row: Any, same: Any) -> list[Any]:
        return jax.tree.leaves(gradclip.norm([row, same], rule))

    got = jax.jit(jax.vmap(jax.vmap(norms, (0, None)), (0, None)))(rows, same)
    for place in np.ndindex(scales.shape):
        for mine, theirs in zip(got, norms(rows[place], same), strict=True):
            assert ulps(np.float64(mine[place]), np.float64(theirs), "float32") <= 4


def test_vmap_without_jit() -> None:
    rows = framework.make([[3.0, 4.0], [0.3, 0.4]])
    got = jax.vmap(lambda row: gradclip.clip(row, torch.clip_grad_norm(1.0)).grads)(rows)
    assert_close(list(got), [gradclip.clip(row, torch.clip_grad_norm(1.0)).grads for row in rows])


def test_a_compiled_function_returns_a_result() -> None:
    rule = torch.clip_grad_norm(1.0)
    grads = {"w": framework.make([3.0, 4.0]), "b": framework.make([12.0])}
    result = jax.jit(lambda grads: gradclip.clip(grads, rule))(grads)
    assert isinstance(result, gradclip.ClipResult)
    assert ulps(framework.read(result.norm), np.array(13.0), "float32") <= 4
    assert_close(list(result.grads.values()), list(gradclip.clip(grads, rule).grads.values()))
    for taken in (result, [result]):  # its norm is not a gradient
        with pytest.raises(TypeError, match=r"ClipResult"):
            gradclip.clip(taken, rule)


def test_scan() -> None:
    rule = torch.clip_grad_norm(1.0)

    def step(carry: Any, g: Any) -> Any:
        result = gradclip.clip(g, rule)
        return carry + result.grads, result.norm

    g = framework.make([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    total, norms = jax.lax.scan(step, jnp.zeros(2), g)
    want = sum(gradclip.clip(row, rule).grads for row in g)
    assert ulps(framework.read(total), framework.read(want), "float32") <= 4
    assert ulps(framework.read(norms), np.array([5.0, 0.5, 10.0]), "float32") <= 4


@pytest.mark.drawn(17)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_derivative_at_zero_is_one(rule_of: Callable[[Any], Rule], dtype: str) -> None:
    zeros = tensors([np.zeros((2, 3)), np.zeros((1, 3))], dtype)

    def loss(grads: list[Any]) -> Any:
        return sum(jnp.sum(jnp.real(g)) for g in clipped(grads, rule_of(0.5)))

    for derivative in jax.jit(jax.grad(loss))(zeros):
        assert derivative.dtype == dtype
        assert np.array_equal(framework.read(derivative), np.ones(derivative.shape))


def test_derivative_at_zero_with_a_limit_of_zero_is_finite(rule_of: Callable[[Any], Rule]) -> None:
    zeros = tensors([np.zeros((2, 3)), np.zeros((1, 3))])
    rule = rule_of(framework.make(0.0))  # paddle's rule would refuse a Python number
    for derivative in jax.jit(jax.grad(lambda grads: sum(jnp.sum(g) for g in clipped(grads, rule))))(zeros):
        assert np.isfinite(framework.read(derivative)).all()


def test_derivative_with_respect_to_the_limit() -> None:
    g = framework.make([3.0, 4.0], "float64")
    derivative = jax.grad(lambda limit: gradclip.clip(g, optax.clip_by_global_norm(limit)).grads[0])
    assert ulps(framework.read(derivative(framework.make(1.0, "float64"))), np.array(0.6), "float64") <= 4
    assert framework.read(derivative(framework.make(9.0, "float64"))) == 0


def test_second_derivative_is_finite() -> None:
    g = framework.make([3.0, 4.0], "float64")
    hessian = framework.read(jax.hessian(lambda x: jnp.sum(gradclip.clip(x, torch.clip_grad_norm(1.0)).grads ** 2))(g))
    assert np.isfinite(hessian).all()
    assert np.isfinite(framework.read(jax.hessian(lambda x: gradclip.norm(x, torch.clip_grad_norm(1.0)))(g * 0))).all()


@pytest.mark.parametrize("values", [[3e30, 4e30], [3e-30, 4e-30]])
def test_derivative_where_squares_overflow_or_vanish(values: list[float]) -> None:
    g = framework.make(values)
    norm = float(np.hypot(*framework.read(g)))
    got = framework.read(jax.grad(lambda x: gradclip.norm(x, torch.clip_grad_norm(1.0)))(g))
    assert ulps(got, framework.read(g) / norm, "float32") <= 4


def test_constants_of_a_traced_function_are_not_looked_at() -> None:
    """A captured array has a value; a value computed from it during tracing has none."""
    rule = torch.clip_grad_norm(1.0)
    for values in ([3.0, 4.0], [3e30, 4e30]):
        constant = framework.make(values)
        want = gradclip.clip(constant, rule).grads
        assert_close([jax.jit(lambda x, c=constant: gradclip.clip(c, rule).grads + x)(constant * 0)], [want])
        twice = jax.vmap(lambda x, c=constant: gradclip.clip(c, rule).grads + x)(jnp.stack([constant * 0] * 2))
        assert_close([twice[1]], [want])


def test_unclipped_is_the_input_to_the_bit(rule_of: Callable[[Any], Rule]) -> None:
    bits = np.array([[1e-40, -0.0, 1.5], [3.4e-3, 1 / 3, -7e-39]], np.float32)
    grads = [jnp.asarray(bits), jnp.asarray(bits[:1])]
    for function in (clipped, jax.jit(clipped, static_argnums=1)):
        for got, g in zip(function(grads, rule_of(1e4)), grads, strict=True):
            assert np.asarray(got).tobytes() == np.asarray(g).tobytes()


@pytest.mark.parametrize(
    "rule", [torch.clip_grad_norm(1.0), optax.clip_by_block_rms(0.1), tensorflow.clip_by_norm(1.0, axes=[0])]
)
def test_symbolic_shapes(rule: Rule) -> None:
    shape = export.symbolic_shape("a, b")
    exported = export.export(jax.jit(lambda g: gradclip.clip(g, rule).grads))(jax.ShapeDtypeStruct(shape, np.float32))
    for rows in (1, 3):
        g = framework.make(np.arange(rows * 4).reshape(rows, 4))
        assert_close([exported.call(g)], [gradclip.clip(g, rule).grads])
