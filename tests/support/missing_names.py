"""``python missing_names.py torch [NAME ...]``: run a backend without each of the private names that it uses, and of others.

For each name it loads the backend again, with a ``versions`` file that asks for a name that does not exist; then it clips.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from launched import failure
from private_names import dotted, private
from sources import SOURCES

HALF = ([[1.5, 2.0], [[0.0, 6.0]]], 13.0)  #: [[3, 4], [[0, 12]]] after the clip, and their norm


def names(backend: str) -> list[str]:
    """Return the private names of a backend's ``versions`` file, without their modules; NumPy's has none."""
    if f"backends.{backend}.versions" not in SOURCES:
        return []
    return sorted({name.rpartition(".")[2] for name in private(_source(backend))})


def _source(backend: str) -> str:
    return SOURCES[f"backends.{backend}.versions"].read_text("utf-8")


class Renamed(ast.NodeTransformer):
    """The syntax tree of a ``versions`` file that asks for another name."""

    def __init__(self, backend: str, name: str) -> None:
        self.name = name
        self.found = {found for found in private(_source(backend)) if found.rpartition(".")[2] == name} or {name}
        self.modules: dict[str, str] = {}
        self.tree = self.visit(ast.parse(_source(backend)))

    def visit_Import(self, node: ast.Import) -> ast.AST:
        self.modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        for alias in node.names:
            if f"{node.module}.{alias.name}" in self.found:
                alias.name, alias.asname = f"{alias.name}_renamed", alias.asname or alias.name
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if dotted(node, self.modules) in self.found:
            node.attr += "_renamed"
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(f"{self.name}_renamed") if node.value == self.name else node


def without(backend: str, name: str) -> Any:
    """Load gradclip again, with a backend that lacks a name, and return it."""
    for module in [module for module in sys.modules if module.partition(".")[0] == "gradclip"]:
        del sys.modules[module]
    gc.collect()  # unregisters the operators that gradclip registered with torch
    versions = types.ModuleType(f"gradclip.backends.{backend}.versions")
    sys.modules[versions.__name__] = versions
    # under its own path: Paddle recognises gradclip's code by that, and does not rewrite it
    path = str(SOURCES[f"backends.{backend}.versions"])
    exec(compile(ast.unparse(Renamed(backend, name).tree), path, "exec"), vars(versions))
    return importlib.import_module("gradclip")


def gradients(framework: Any) -> list[Any]:
    return [framework.make([3.0, 4.0]), framework.make([[0.0, 12.0]])]


def check(framework: Any, grads: list[Any], norm: Any = 13.0) -> None:
    """Assert that gradients are half of their former values, and that their norm is right."""
    for got, want in zip(grads, HALF[0], strict=True):
        np.testing.assert_allclose(framework.read(got), want, rtol=1e-6)
    np.testing.assert_allclose(float(norm), HALF[1], rtol=1e-6)


def clips(gradclip: Any, framework: Any) -> None:
    """Clip in every way that a framework supports: functional, in place, parameters, sparse, traced, differentiated."""
    from gradclip.dialects import tensorflow

    rule = tensorflow.clip_by_global_norm(6.5)
    result = gradclip.clip(gradients(framework), rule)
    check(framework, result.grads, result.norm)
    bounds = gradclip.clip([framework.make([-3.0, 1.0])], tensorflow.clip_by_value(-2.0, 2.0)).grads
    assert framework.read(bounds[0]).tolist() == [-2.0, 1.0]
    if framework.mutable:
        grads = gradients(framework)
        gradclip.clip_(grads, rule)
        check(framework, grads)
    if framework.holds_gradients:
        params = list(map(framework.parameter, gradients(framework)))
        gradclip.clip_(params, rule)
        check(framework, list(map(framework.gradient, params)))
    if framework.has_sparse:
        sparse = framework.sparse([1, 1], [[3.0], [0.0]], 4)
        clipped = gradclip.clip([sparse, framework.make([4.0])], tensorflow.clip_by_global_norm(2.5)).grads
        assert framework.densify(clipped[0])[:, 0].tolist() == [0.0, 1.5, 0.0, 0.0]
    for how in framework.jits if framework.name != "torch" else ():  # a minute to compile, and no private names
        check(framework, framework.jit(how, lambda grads: gradclip.clip(grads, rule).grads)(gradients(framework)))
    if framework.trains:
        total = framework.derivative(lambda xs: framework.sum(gradclip.clip(xs, rule).grads[0]), gradients(framework))
        # d(6.5 (x + y) / norm): 6.5 / 13 - 6.5 * 7 * x / 13 ** 3
        np.testing.assert_allclose(total[0], [0.5 - 45.5 * x / 2197 for x in (3, 4)], rtol=1e-5)
        np.testing.assert_allclose(total[1], [[0.0, -45.5 * 12 / 2197]], rtol=1e-5, atol=1e-9)


def of_torch(gradclip: Any, framework: Any) -> None:
    import torch
    from torch.autograd import forward_ad

    from gradclip.backends.host import kernels
    from gradclip.dialects import tensorflow

    rule = tensorflow.clip_by_global_norm(6.5)
    importlib.import_module("gradclip.backends.torch.dtensor")

    def total(x: Any) -> Any:
        return gradclip.clip([x], rule).grads[0].sum()

    x = torch.tensor([3.0, 4.0, 12.0])
    found = torch.func.grad(total)(x)
    torch.testing.assert_close(found, 0.5 - 6.5 * 19 * x / 2197)
    each = torch.func.vmap(lambda x: gradclip.clip([x], rule).grads[0])(torch.stack([x, 2 * x]))
    torch.testing.assert_close(each, torch.stack([x / 2, x / 2]))
    with forward_ad.dual_level():
        [clipped] = gradclip.clip([forward_ad.make_dual(x, torch.ones(3))], rule).grads
        torch.testing.assert_close(forward_ad.unpack_dual(clipped).tangent, 0.5 - 6.5 * 19 * x / 2197)
    seen, other = [], x.clone()

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(operation)
            return operation(*args, **kwargs or {})

    with Mode():
        gradclip.clip_([other], rule)
    assert seen
    gradient, weight = x.clone(), torch.ones(3, requires_grad=True)
    product = (weight * gradient).sum()
    gradclip.clip_([gradient], rule)
    assert "modified by an inplace operation" in failure(product.backward)
    kinds, kernels.KINDS = kernels.KINDS, {}  # as without compiled kernels, and as on an accelerator
    try:
        clips(gradclip, framework)
        assert gradclip.clip_([x.clone()], tensorflow.clip_by_value(-3.0, 3.5)).grads[0].tolist() == [3.0, 3.5, 3.5]
    finally:
        kernels.KINDS = kinds


def of_paddle(gradclip: Any, framework: Any) -> None:
    import paddle
    import paddle.distributed as dist

    from gradclip.backends.paddle import lanes, versions
    from gradclip.dialects import tensorflow

    rule = tensorflow.clip_by_global_norm(6.5)
    x = framework.make([3.0, 4.0, 12.0])
    weight = framework.make([1.0, 1.0, 1.0])
    weight.stop_gradient = False
    product = (weight * x).sum()
    gradclip.clip_([x], rule)
    assert "inplace" in failure(product.backward)
    sparse = framework.sparse([1, 2, 1], [[3.0], [8.0], [3.0]], 4)
    gradclip.clip_([sparse], tensorflow.clip_by_global_norm(5.0))
    assert framework.densify(sparse)[:, 0].tolist() == [0.0, 3.0, 4.0, 0.0]
    layer = paddle.nn.Linear(1, 1)
    assert type(layer.weight) is versions.Parameter
    mesh = dist.ProcessMesh([0], dim_names=["x"])
    part = dist.shard_tensor(framework.make([[3.0, 4.0]]), mesh, [dist.Shard(0)])
    [clipped] = gradclip.clip([part], tensorflow.clip_by_norm(2.5)).grads
    assert framework.read(versions.local_value(clipped)).tolist() == [[1.5, 2.0]]
    assert isinstance(part.process_mesh, versions.MESHES)
    assert isinstance(mesh, versions.MESHES)
    assert not versions.has_memory(paddle.zeros([0, 3]))
    assert versions.has_memory(x)
    assert versions.topology() is None
    of_program(versions)
    on_host, lanes.on_host = lanes.on_host, lambda tensors: False
    try:  # as if the tensors were on an accelerator
        # Paddle's operation divides float16 on accelerators only
        for dtype in ("float32",) if versions.operations is paddle._C_ops else ("float32", "bfloat16"):
            for clip in (gradclip.clip, gradclip.clip_):
                given = [framework.make([3.0, 4.0], dtype), framework.make([[0.0, 12.0]], dtype)]
                result = clip(given, rule)
                check(framework, result.grads, result.norm)
                [low] = clip([framework.make([-3.0, 1.0])], tensorflow.clip_by_value(-2.0, 2.0)).grads
                assert framework.read(low).tolist() == [-2.0, 1.0]
    finally:
        lanes.on_host = on_host


def of_program(versions: Any) -> None:
    """Return a variable that keeps its value between runs of a program."""
    import paddle

    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program(), start := paddle.static.Program()):
            versions.persistent("kept", np.array([1.0, 2.0], np.float32))
        scope, executor = paddle.static.Scope(), paddle.static.Executor(paddle.CPUPlace())
        with paddle.static.scope_guard(scope):
            executor.run(start)
            assert versions.read_and_set(scope, "kept", np.array([3.0, 4.0], np.float32)).tolist() == [1.0, 2.0]
            assert versions.read(scope, "kept").tolist() == [3.0, 4.0]
    finally:
        paddle.disable_static()


def of_tensorflow(gradclip: Any, framework: Any) -> None:
    import tensorflow as tf

    rule = importlib.import_module("gradclip.dialects.tensorflow").clip_by_global_norm(6.5)
    for dtype in ("bfloat16", "float64"):
        result = gradclip.clip([framework.make([3.0, 4.0], dtype), framework.make([[0.0, 12.0]], dtype)], rule)
        check(framework, result.grads, result.norm)
        assert {x.dtype for x in result.grads} == {tf.as_dtype(dtype)}


def of_jax(gradclip: Any, framework: Any) -> None:
    import jax
    import optax

    from gradclip.dialects import tensorflow

    rule = tensorflow.clip_by_global_norm(6.5)
    x = framework.make([3.0, 4.0, 12.0])
    each = jax.vmap(lambda x: gradclip.clip([x], rule).grads[0])(jax.numpy.stack([x, 2 * x]))
    np.testing.assert_allclose(each, np.array([[1.5, 2.0, 6.0]] * 2), rtol=1e-6)
    slot = importlib.import_module("gradclip.backends.jax").gradient_transformation(rule)
    updates, _ = optax.chain(slot, optax.sgd(1.0)).update([x], optax.chain(slot, optax.sgd(1.0)).init([x]))
    np.testing.assert_allclose(updates[0], [-1.5, -2.0, -6.0], rtol=1e-6)


OWN: dict[str, Callable[[Any, Any], None]] = {
    "torch": of_torch,
    "paddle": of_paddle,
    "tensorflow": of_tensorflow,
    "jax": of_jax,
}


def main(backend: str, *others: str) -> None:
    """Print as JSON what fails without each name."""
    importlib.import_module(backend)
    gc.freeze()  # for each name Python's collector looks at all objects but these
    framework = importlib.import_module(f"frameworks.{backend}").framework
    found = {}
    for name in (*names(backend), *others):

        def run(name: str = name) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gradclip = without(backend, name)
                clips(gradclip, framework)
                OWN[backend](gradclip, framework)

        found[name] = failure(run)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
