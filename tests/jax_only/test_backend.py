"""Specific to JAX: weak types, accuracy at size, immutable arrays, several devices, and no float64."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import copies
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frameworks.jax import framework
from oracle import ulps

import gradclip
from gradclip.backends.jax import JaxBackend, places, versions
from gradclip.core import registry
from gradclip.dialects import optax, tensorflow, torch

MILLION = {
    "normal": lambda: np.random.default_rng(0).normal(size=10**6),
    "uniform": lambda: np.random.default_rng(0).uniform(size=10**6),
    "all equal": lambda: np.full(10**6, 0.1),
    "one and many small": lambda: np.r_[1.0, np.full(10**6 - 1, 1e-5)],
}


def in_a_process(script: str, **environment: str) -> None:
    """Run a script in a separate process, with every warning an error."""
    kept = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = copies.run("jax", "-W", "error", "-c", script, env=kept | environment)
    assert done.returncode == 0, done.stderr


def parts(result: gradclip.ClipResult) -> tuple[Any, Any, Any]:
    return result.grads, result.norm, result.coefficient


@pytest.mark.accuracy
@pytest.mark.drawn(8)
@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("make", MILLION.values(), ids=MILLION)
def test_a_million_elements(make: Any, order: float) -> None:
    g = framework.make(make())
    exact = np.sum(np.abs(framework.read(g)) ** order) ** (1 / order)
    rule = torch.clip_grad_norm(1.0, norm_type=order)
    eager = gradclip.norm(g, rule)
    assert ulps(np.float64(eager), exact, "float32") <= 4
    traced = jax.jit(lambda x: gradclip.norm(x, rule))(g)
    assert ulps(framework.read(traced), exact, "float32") <= framework.ulps_of(order)


@pytest.mark.accuracy
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_a_million_elements_of_other_dtypes(dtype: str) -> None:
    g = framework.make(np.full(10**6, 0.1), dtype)
    exact = np.abs(framework.read(g)[0]) * 1000
    rule = torch.clip_grad_norm(1.0)
    for norm in (gradclip.norm(g, rule), jax.jit(lambda x: gradclip.norm(x, rule))(g)):
        assert ulps(np.float64(norm), exact, "float64" if dtype == "float64" else "float32") <= framework.ulps


@pytest.mark.accuracy
@pytest.mark.parametrize(
    ("shape", "axes"), [((500_000, 2), [0]), ((2, 500_000), [1]), ((1000, 4, 250), [0, 2]), ((4, 250_000), None)]
)
def test_a_million_elements_over_axes(shape: tuple[int, ...], axes: Any) -> None:
    g = framework.make(np.random.default_rng(1).uniform(size=shape))
    exact = np.sqrt(np.sum(framework.read(g) ** 2, axis=None if axes is None else tuple(axes), keepdims=axes is not None))
    norm = jax.jit(lambda x: gradclip.norm(x, tensorflow.clip_by_norm(1.0, axes=axes)))(g)
    assert ulps(framework.read(norm), exact, "float32") <= framework.ulps


@pytest.mark.drawn(9)
@pytest.mark.parametrize("dtype", framework.dtypes)
@pytest.mark.parametrize(
    "rule", [torch.clip_grad_norm(1.0), optax.clip_by_block_rms(1.0), tensorflow.clip_by_norm(1.0, axes=[0])], ids=str
)
def test_results_are_not_weakly_typed(rule: gradclip.Rule, dtype: str) -> None:
    g = framework.make([3.0, 4.0], dtype)
    assert not gradclip.clip(g, rule).grads.weak_type
    traced = jax.jit(lambda x: parts(gradclip.clip(x, rule)))(g)
    wide = "float64" if dtype in ("float64", "complex128") else "float32"
    assert [str(x.dtype) for x in jax.tree.leaves(traced)] == [dtype, wide, wide]
    assert not any(x.weak_type for x in jax.tree.leaves(traced))


def test_a_weakly_typed_gradient_keeps_its_dtype() -> None:
    g = jnp.asarray(5.0)
    assert g.weak_type
    assert gradclip.clip(g, torch.clip_grad_norm(1.0)).grads.dtype == g.dtype


def test_arrays_cannot_be_written() -> None:
    g = framework.make([3.0, 4.0])
    with pytest.raises(TypeError) as error:
        gradclip.clip_([g], torch.clip_grad_norm(1.0))
    assert str(error.value).splitlines() == [
        "This gradient cannot be written in place.",
        "Received: an immutable tensor of jax",
        "Hint: use gradclip.clip, which returns new ones.",
    ]
    assert np.array_equal(framework.read(g), [3.0, 4.0])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_by_value_are_compared_as_integers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    g = jnp.asarray([limits.min, limits.max, limits.max - 1, 1, 0], dtype)
    far = gradclip.clip(g, torch.clip_grad_value(2.0**70)).grads
    assert far.dtype == dtype
    assert np.array_equal(far, g)
    near = gradclip.clip(g, torch.clip_grad_value(100)).grads
    assert np.array_equal(near, np.clip(np.asarray(g).astype(object), -100, 100).astype(dtype))


def test_arrays_and_tracers_are_tensors() -> None:
    backend = registry.get("jax")
    assert isinstance(backend, JaxBackend)
    assert registry.get("jaxlib") is backend
    seen: list[bool] = []

    def look(x: Any) -> Any:
        seen.append(registry.find(x) is backend and not backend.can_read(x))
        return jnp.sum(x)

    for transform in (jax.jit, jax.vmap, jax.grad):
        transform(look)(jnp.ones(3))
    assert seen == [True] * 3
    assert registry.find(jax.ShapeDtypeStruct((2,), np.float32)) is None


@pytest.mark.usefixtures("accelerator")
def test_without_looking_as_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """If reading costs a synchronisation, norm and coefficient stay arrays, and nothing reads one."""
    monkeypatch.setattr(JaxBackend, "tolist", lambda self, x: pytest.fail("a value was read"))
    grads = [framework.make([3.0, 4.0]), framework.make([0.0, 12.0], "bfloat16")]
    result = gradclip.clip(grads, torch.clip_grad_norm(6.5))
    assert isinstance(result.norm, jax.Array)
    assert ulps(framework.read(result.norm), np.float64(13.0), "float32") <= 1
    assert framework.read(result.grads[1])[1] == 6.0


def test_how_often_a_value_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host reads one value for each gradient, an accelerator none; under jit nothing is transferred either."""
    read: list[Any] = []
    as_array = np.asarray

    def counted(x: Any, *args: Any, **kwargs: Any) -> Any:
        read.extend([x] if isinstance(x, jax.Array) else [])
        return as_array(x, *args, **kwargs)

    grads = [framework.make(np.ones(5000)), framework.make(np.ones((70, 80)))]
    for name in ("__array__", "__bool__", "__float__", "__int__", "__index__", "item", "tolist"):
        monkeypatch.setattr(type(grads[0]), name, lambda self, *args, **kwargs: read.append(self))
    monkeypatch.setattr(np, "asarray", counted)
    for rule in (torch.clip_grad_norm(1.0), torch.clip_grad_norm(1.0, 3.0), optax.clip_by_block_rms(0.1)):
        read.clear()
        gradclip.clip(grads, rule)
        assert len(read) == len(grads)
        with monkeypatch.context() as patch:
            patch.setattr(places, "is_host", lambda platform: False)
            read.clear()
            gradclip.clip(grads, rule)
        compiled = jax.jit(lambda given, rule=rule: gradclip.clip(given, rule).grads)
        with jax.transfer_guard("disallow"):
            compiled(grads)
        assert not read


@pytest.mark.accuracy
@pytest.mark.skipif(jax.__version_info__ < (0, 4, 38), reason="before JAX 0.4.38 shard_map raises for a branch")
def test_the_largest_numbers_on_several_devices() -> None:
    in_a_process(LARGEST, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")


LARGEST = """
import gradclip, importlib, jax, numpy as np
from gradclip.dialects import torch
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("d",))
shard_map = jax.shard_map if hasattr(jax, "shard_map") else importlib.import_module("jax.experimental.shard_map").shard_map
for values in ([3e38, 1e38], [3.4e38, 1e37], [1e-37, 3e-38], [3.0, 4.0]):
    for order in (2.0, 3.0, -3.0):
        rule = torch.clip_grad_norm(1.0, order)
        norm = shard_map(lambda g: gradclip.norm([g], rule, reduce="d"), mesh=mesh, in_specs=P("d"), out_specs=P())
        given = np.float32(values)
        unit = given.max().astype(float)
        exact = np.linalg.norm(given / unit, order) * unit
        got = float(jax.jit(norm)(given))
        assert abs(got - exact) <= 4 * float(np.spacing(np.float32(exact))), (values, order, got, exact)
"""


def test_several_devices() -> None:
    in_a_process(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")


DEVICES = """
import gradclip, jax, numpy as np
from gradclip.backends.jax import places
from gradclip.dialects import optax, tensorflow, torch
from jax.sharding import NamedSharding, PartitionSpec as P
one, two, *rest = jax.devices()
pair, single = np.array([3, 4], np.float32), np.array([0, 12], np.float32)
split = NamedSharding(jax.make_mesh((2,), ("d",), devices=rest), P("d"))
for chosen in ((one, two), (one, split), (split, two)):
    for host in ("cpu", "none"):
        places.is_host = lambda platform: platform == host
        grads = [jax.device_put(g, place) for g, place in zip((pair, single), chosen)]
        result = gradclip.clip(grads, torch.clip_grad_norm(6.5))
        assert abs(float(result.norm) - 13) <= 4 * 2**-20, result.norm
        assert [g.sharding for g in result.grads] == [g.sharding for g in grads]
        assert abs(np.asarray(result.grads[1])[1] - 6) <= 4 * 2**-21
        each = gradclip.clip(grads, optax.clip_by_block_rms(jax.device_put(np.float32(1), one)))
        assert [g.sharding for g in each.grads] == [g.sharding for g in grads]
        rule = tensorflow.clip_by_value(jax.device_put(-pair, one), jax.device_put(np.float32(3.5), two))
        bounded = gradclip.clip(grads, rule)
        assert [np.asarray(g).tolist() for g in bounded.grads] == [[3, 3.5], [0, 3.5]]
        assert [g.sharding for g in bounded.grads] == [g.sharding for g in grads]
"""


def test_without_x64() -> None:
    in_a_process(WITHOUT_X64)


WITHOUT_X64 = """
import gradclip, jax, jax.numpy as jnp, numpy as np, optax
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as dialect, torch
assert not jax.config.jax_enable_x64
rule = torch.clip_grad_norm(1.0)
def clip(g, rule):
    result = gradclip.clip(g, rule)
    return result.grads, result.norm
rng = np.random.default_rng(0)
def ulps(got, want):
    return np.max(np.abs(np.float64(got) - want) / np.spacing(np.abs(np.float32(want))))
million = (rng.normal(size=10**6), rng.uniform(size=10**6), np.full(10**6, 0.1))
for values in (*million, [3e30, 4e30], [3e-30, 4e-30], [1.8e19, 1.8e19]):
    host = np.asarray(values, np.float32)
    exact = np.linalg.norm(host.astype(np.float64))
    for form in (clip, jax.jit(clip, static_argnums=1)):
        grads, norm = form(jnp.asarray(host), dialect.clip_by_global_norm(float(exact / 8)))
        assert ulps(norm, exact) <= 4, (norm, exact)
        assert grads.dtype == np.float32 and not grads.weak_type
        assert ulps(grads, host.astype(np.float64) / 8) <= 4
half = gradclip.clip({"a": jnp.ones(2, jnp.bfloat16), "b": jnp.full(2, 3e4, jnp.float16)}, rule).grads
assert [str(x.dtype) for x in jax.tree.leaves(half)] == ["bfloat16", "float16"]
transformation = gradient_transformation(rule)
updates, state = transformation.update([np.array([3.0, 4.0])], transformation.init(None))
assert updates[0].dtype == np.float32 and abs(float(updates[0][0]) - 0.6 / (1 + 2e-7)) <= 4 * 2**-24
"""


def test_zeros_without_64_bits_warn_of_nothing() -> None:
    rule = dataclasses.replace(torch.clip_grad_norm(1.0), if_nonfinite="zero")
    with versions.enable_x64(False):
        clipped = gradclip.clip([jnp.array([jnp.nan, 1.0]), jnp.array([2.0])], rule).grads
    assert [x.tolist() for x in clipped] == [[0.0, 0.0], [0.0]]
