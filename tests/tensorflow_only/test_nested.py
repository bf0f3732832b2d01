"""Objects with components, as tf.nest takes them apart, that contain themselves."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import gradclip
from gradclip.dialects import tensorflow as dialect


class Node:
    def __init__(self, weight: Any, rest: Any) -> None:
        self.weight, self.rest = weight, rest

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, Any]]:
        return (), (self.weight, self.rest)

    @classmethod
    def __tf_unflatten__(cls, metadata: Any, components: Any) -> Node:
        return cls(*components)


def test_an_object_with_components() -> None:
    node = Node(tf.constant([3.0, 4.0]), [None])
    assert float(gradclip.norm(node, dialect.clip_by_global_norm(1.0))) == 5.0
    node.rest.append(node)
    for given in (node, [node], {"a": [node]}):
        with pytest.raises(TypeError, match="A container contains itself"):
            gradclip.clip(given, dialect.clip_by_global_norm(1.0))
