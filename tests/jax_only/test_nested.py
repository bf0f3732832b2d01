"""Registered pytrees that contain themselves: JAX's own loop over them would leave the interpreter unusable."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import pytest
from jax import tree_util

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax


@functools.partial(tree_util.register_dataclass, data_fields=["weight", "rest"], meta_fields=[])
@dataclasses.dataclass
class Node:
    weight: Any
    rest: Any


def test_a_registered_class() -> None:
    node = Node(jnp.float32([3.0, 4.0]), [])
    assert float(gradclip.norm(node, optax.clip_by_global_norm(1.0))) == 5.0
    node.rest.append(node)
    for call in (
        lambda: gradclip.clip(node, optax.clip_by_global_norm(1.0)),
        lambda: gradclip.norms_by_name({"node": node}),
        lambda: gradient_transformation(optax.clip_by_global_norm(1.0)).update(node, ()),
    ):
        with pytest.raises(TypeError, match="A container contains itself"):
            call()
