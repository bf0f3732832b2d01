"""The private names of a framework stand in its ``versions`` file only, each with what is done where it is missing."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator

import pytest
from sources import SOURCES

# Modules that are private, or not kept from version to version, though no underscore says so.
PRIVATE = ("tensorflow.python", "tensorflow.core", "jax.extend", "jax.interpreters", "paddle.base")
# Named tuples have these: https://docs.python.org/3/library/collections.html#collections.namedtuple
PYTHON = {"_asdict", "_fields", "_make", "_replace"}
# What has no versions file, and why it needs private names all the same.
ELSEWHERE = {
    "backends.keras.__init__": "it overrides the two private methods in which Keras clips, and raises where Keras has them not",
    "backends.targets.paddle": "it shows Paddle's own clips to the conformance suite, which uses none of gradclip's backends",
    "backends.targets.keras": "likewise Keras's",
    "conformance.slots": "a Keras optimizer clips in a private method, which is handed the gradients that are to be clipped",
    "migrate.codemod.places": "LibCST's public way finds the places of a whole module; this finds those of a statement",
    "mistakes": "a state_dict of torch is told by the name that it carries; one without it counts as any other dict",
    "tracing": "the marks that frameworks look for on a function; nobody who does not look is disturbed",
}


def private(source: str, own: frozenset[str] = frozenset()) -> list[str]:
    """The private names that a source takes from elsewhere: in imports, as attributes, and as texts for ``getattr``."""
    tree = ast.parse(source)
    aliases = [name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    modules = {name.asname: name.name for name in aliases if name.asname}
    found = {(name, parts) for node in ast.walk(tree) for name, parts in _names(node, modules)}
    return sorted({name for name, parts in found if _is_private(name, [x for x in parts if x not in own])})


def _names(node: ast.AST, modules: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What one node names, from a module on where it can be told, and the parts of it that the node adds."""
    if isinstance(node, ast.Import):
        yield from ((name.name, tuple(name.name.split("."))) for name in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] != "gradclip":
        names = [f"{node.module}.{name.name}" for name in node.names]
        yield from ((name, tuple(name.split("."))) for name in names)
    elif isinstance(node, ast.Attribute):
        yield _dotted(node, modules), (node.attr,)
    elif isinstance(node, ast.Call):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in ("getattr", "hasattr", "setattr", "attrgetter", "methodcaller"):
            texts = [x.value for x in node.args if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            yield from ((f"?.{text}", (text,)) for text in texts)


def _dotted(node: ast.expr, modules: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, modules)}.{node.attr}"
    return modules.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def _is_private(name: str, parts: list[str]) -> bool:
    """By an underscore; a name with two on both sides is Python's or a protocol's, but for TensorFlow's ``__internal__``."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return False
    if any(f"{name}.".startswith(f"{module}.") for module in PRIVATE):
        return True
    return any(x == "__internal__" or (x.startswith("_") and not x.startswith("__") and x not in PYTHON) for x in parts)


# ---- gradclip's own ---------------------------------------------------------------------------------------------------------


@functools.cache
def _defined(module: str) -> frozenset[str]:
    """The names that a module defines: functions, classes, variables, and attributes of its own objects."""
    found = set()
    for node in ast.walk(ast.parse(SOURCES[module].read_text("utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _dotted(node.value, {}) == "self":
            found.add(node.attr)
    return frozenset(found)


def _own(module: str) -> frozenset[str]:
    """The names that are defined in gradclip where a module may get them from: its room, the core and the host's loops."""

    def room(name: str) -> str:
        return ".".join(name.split(".")[:2]) if name.startswith("backends.") else "core"

    near = {"core", "backends.host", room(module)}
    return frozenset().union(*(_defined(other) for other in SOURCES if room(other) in near))


@pytest.mark.parametrize(
    "module", [name for name in SOURCES if name not in ELSEWHERE and name.rpartition(".")[2] != "versions"]
)
def test_private_names_stand_in_versions(module: str) -> None:
    assert private(SOURCES[module].read_text("utf-8"), _own(module)) == []


@pytest.mark.parametrize("module", ELSEWHERE)
def test_what_needs_them_elsewhere(module: str) -> None:
    assert private(SOURCES[module].read_text("utf-8"), _own(module))


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
