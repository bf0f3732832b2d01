"""Only a framework's ``versions`` file uses private names."""

from __future__ import annotations

import ast
import functools

import pytest
from private_names import dotted, named, not_own, private
from sources import SOURCES

# Modules without a versions file that need private names all the same, and why.
ELSEWHERE = {
    "backends.keras.__init__": "it overrides private methods in which Keras clips, and raises if Keras lacks them",
    "backends.keras.slot.skipping": "it overrides those in which Keras updates, and reads the variables of an optimizer",
    "backends.targets.paddle": "it shows Paddle's own clips to the conformance suite, which uses none of gradclip's backends",
    "backends.targets.keras": "it shows Keras's own clips in the same way",
    "backends.targets.torch_ranks": "it makes the shards of FSDP2 over tensor parallel; without the name there are none",
    "backends.torch.trainers": "these are the marks of trainers on a parameter; one without them is a parameter without marks",
    "conformance.slots": "a Keras optimizer clips in a private method, and the suite passes the gradients to it",
    "source.places": "LibCST's public function computes the positions in a module; this one those in a statement",
    "core.mistakes": "a private attribute identifies a state_dict of torch; without it, a state_dict counts as any other dict",
    "core.tracing": "frameworks look for these attributes on a function; others ignore them",
}


# ---- gradclip's own sources -------------------------------------------------------------------------------------------------


@functools.cache
def _read(module: str) -> tuple[frozenset[str], frozenset[tuple[str, tuple[str, ...]]]]:
    """Return the names that a module defines, and those that it uses; it is parsed once."""
    nodes = list(ast.walk(ast.parse(SOURCES[module].read_text("utf-8"))))
    return _defined(nodes), named(nodes)


def _defined(nodes: list[ast.AST]) -> frozenset[str]:
    """Return the names that a module defines: functions, classes, variables, and attributes of its own objects."""
    found = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node.value, {}) == "self":
            found.add(node.attr)
    return frozenset(found)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2]) if module.startswith("backends.") else "core"


@functools.cache
def _own(room: str) -> frozenset[str]:
    """Return gradclip's names that a package may use: its own, those of the core and of the host's loops."""
    near = {"core", "backends.host", room}
    return frozenset().union(*(_read(module)[0] for module in SOURCES if _room(module) in near))


@pytest.mark.parametrize(
    "module", [name for name in SOURCES if name not in ELSEWHERE and name.rpartition(".")[2] != "versions"]
)
def test_private_names_stand_in_versions(module: str) -> None:
    assert not_own(_read(module)[1], _own(_room(module))) == []


@pytest.mark.parametrize("module", ELSEWHERE)
def test_what_needs_them_elsewhere(module: str) -> None:
    assert not_own(_read(module)[1], _own(_room(module)))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from torch._subclasses.fake_tensor import FakeTensor", "torch._subclasses.fake_tensor.FakeTensor"),
        ("from torch.distributed.tensor import _StridedShard", "torch.distributed.tensor._StridedShard"),
        ("import jax._src.core", "jax._src.core"),
        ("def f():\n    from jax.extend.core import get_opaque_trace_state", "jax.extend.core.get_opaque_trace_state"),
        ("from tensorflow.python.eager import record", "tensorflow.python.eager.record"),
        ("import paddle\npaddle.base.framework", "paddle.base.framework"),
        ("from paddle import _C_ops as operations", "paddle._C_ops"),
        ("import tensorflow as tf\ntf.python", "tensorflow.python"),
        ("tf.__internal__", "tf.__internal__"),
        ("getattr(tf, '__internal__', None)", "?.__internal__"),
        ("torch._C", "torch._C"),
        ("torch._foreach_norm(tensors)", "torch._foreach_norm"),
        ("tensors[0]._grad_ivar()", "?._grad_ivar"),
        ("operator.attrgetter('_local_value')", "?._local_value"),
        ("self._trainable_variables", "self._trainable_variables"),
    ],
)
def test_a_private_name_is_found(source: str, found: str) -> None:
    assert found in private(source)


def test_what_is_no_private_name() -> None:
    assert private("from gradclip.backends.host import _kernels\nx.__dlpack__()\npair._replace(a=1)\ntorch.nn.init") == []
    assert private("self._own", frozenset({"_own"})) == []
