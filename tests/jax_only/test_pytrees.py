"""Containers: every registered pytree keeps its type, its structure and its None."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frameworks.jax import framework
from jax.experimental import sparse
from oracle import ulps

import gradclip
from gradclip.core import registry
from gradclip.dialects import optax, tensorflow, torch


@jax.tree_util.register_pytree_node_class
class Pair:
    """A node with auxiliary data."""

    def __init__(self, left: Any, right: Any, label: str) -> None:
        self.left, self.right, self.label = left, right, label

    def tree_flatten(self) -> tuple[tuple[Any, Any], str]:
        return (self.left, self.right), self.label

    @classmethod
    def tree_unflatten(cls, label: str, children: tuple[Any, Any]) -> Pair:
        return cls(*children, label)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weight", "bias"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "dense"


class Named(NamedTuple):
    first: Any
    second: Any


def p() -> jax.Array:
    return framework.make([3.0, 4.0])


def q() -> jax.Array:
    return framework.make([[0.0], [12.0]])


TREES = {
    "node": Pair(p(), q(), "a label"),
    "dataclass": Layer(p(), q(), "first"),
    "nested": {"b": [Pair(None, (p(), None), "x"), Layer(q(), None)], "a": None, "c": ()},
    "named tuple": Named(p(), {"x": q()}),
    "ordered": collections.OrderedDict(z=p(), a=q()),
    "default": collections.defaultdict(list, z=p(), a=[q()]),
    "None and empty": [None, [], p(), {}, q(), None],
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_structure_is_kept(tree: Any) -> None:
    got = gradclip.clip(tree, torch.clip_grad_norm(6.5))
    assert jax.tree.structure(got.grads) == jax.tree.structure(tree)
    assert ulps(np.float64(got.norm), np.float64(13.0), "float32") <= 1
    for mine, given in zip(jax.tree.leaves(got.grads), jax.tree.leaves(tree), strict=True):
        assert ulps(framework.read(mine), framework.read(given) * 0.5 / (1 + 1e-6 / 13), "float32") <= 4
    traced = jax.jit(lambda grads: gradclip.clip(grads, torch.clip_grad_norm(6.5)).grads)(tree)
    assert jax.tree.structure(traced) == jax.tree.structure(tree)


def test_none_has_its_place_in_norm_and_coefficient() -> None:
    result = gradclip.clip([None, p(), Pair(None, q(), "x")], tensorflow.clip_by_norm(2.5))
    for found, want in ((result.norm, [5.0, 12.0]), (result.coefficient, [0.5, np.float32(2.5 / 12)])):
        assert jax.tree.structure(found) == jax.tree.structure(result.grads)
        assert found[0] is None
        assert [float(x) for x in jax.tree.leaves(found)] == want


def test_params_may_lie_where_a_gradient_is_none() -> None:
    rule = optax.adaptive_grad_clip(0.5)
    params = {"frozen": q(), "trained": framework.make([0.6, 0.8])}
    got = gradclip.clip({"frozen": None, "trained": p()}, rule, params=params).grads
    assert got["frozen"] is None
    assert ulps(framework.read(got["trained"]), np.array([0.3, 0.4]), "float32") <= 4


def test_empty_containers_stay() -> None:
    for tree in ({}, (), Pair(None, [], "x")):
        result = gradclip.clip(tree, optax.clip_by_global_norm(1.0))
        assert jax.tree.structure(result.grads) == jax.tree.structure(tree)
        assert (result.norm, result.coefficient) == (0.0, 1.0)


def test_paths_of_what_is_not_finite() -> None:
    tree = {
        "conv": [Layer(p(), framework.make([np.inf, 1.0, np.nan]))],
        "head": Pair(q(), Named(p(), framework.make(np.nan)), "x"),
    }
    rule = torch.clip_grad_norm(1.0, error_if_nonfinite=True)
    with pytest.raises(RuntimeError) as error:
        gradclip.clip(tree, rule)
    paths = [jax.tree_util.keystr(keys) for keys, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    assert paths[1] == "['conv'][0].bias"
    received = f"Received: {paths[1]}: 2 of 3 elements; {paths[4]}: 1 of 1 elements"
    assert str(error.value).splitlines()[1] == received


def test_only_registered_types_are_containers() -> None:
    backend = registry.get("jax")
    for tree in (Pair(p(), p(), "x"), Layer(p(), p()), jax.tree_util.Partial(print)):
        assert backend.containers.is_container(tree)

    class Module:
        def parameters(self) -> list[Any]:
            return []

    for other in ("text", b"bytes", 3, 3.5, object(), Module(), np.zeros(2), p(), range(3), iter([p()]), {1, 2}, print):
        assert not backend.containers.is_container(other)


def test_what_is_no_gradient_is_refused() -> None:
    rule = torch.clip_grad_norm(1.0)
    with pytest.raises(TypeError, match=r"A name is not a tensor\.\nReceived: 'dense'"):
        gradclip.clip({"w": p(), "name": "dense"}, rule)
    with pytest.raises(TypeError, match="Received: tensors of jax and of numpy"):
        gradclip.clip([p(), np.ones(2)], rule)
    with pytest.raises(AttributeError, match=r"A number is not a gradient\.\nReceived: 1\.0"):  # optax raises the same type
        gradclip.clip(Pair(1.0, p(), "x"), rule)
    with pytest.raises(TypeError, match=r"dtype=key<fry>"):
        gradclip.clip([p(), jax.random.key(0)], rule)
    for dtype in (jnp.float8_e4m3fn, jnp.int32, jnp.bool_):
        with pytest.raises(TypeError, match=f"dtype={jnp.dtype(dtype)}"):
            gradclip.clip(Pair(p(), jnp.ones(2, dtype), "x"), rule)
    if hasattr(jax, "new_ref"):  # available from JAX 0.7 on
        with pytest.raises(TypeError, match="No backend knows tensors of type"):
            gradclip.clip(jax.new_ref(p()), rule)


def test_sparse_matrices_are_refused() -> None:
    """Their indices are integers: a clip by value would have clipped them."""
    matrix = sparse.BCOO.fromdense(jnp.eye(4))
    for tree in (matrix, [matrix], {"w": matrix, "v": jnp.ones(3)}, sparse.BCSR.fromdense(jnp.eye(4))):
        for rule in (optax.clip(1.0), optax.clip_by_global_norm(1.0)):
            for run in (functools.partial(gradclip.clip, rule=rule), jax.jit(functools.partial(gradclip.norm, rule=rule))):
                with pytest.raises(
                    TypeError, match=r"JAX's sparse matrices.*\nReceived: a 4x4 jax BC.*\nHint: pass grad.todense"
                ):
                    run(tree)
