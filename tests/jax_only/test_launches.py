"""What an accelerator would run: one program for a whole clip, no float64, no value read by the host.

The host stands in for an accelerator. The counts are programs of XLA; optax's own clip runs eagerly in the same way.
``tests/docs/test_accelerators_page.py`` makes the table of the docs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from frameworks.jax import framework
from jax._src import pjit
from jax._src.interpreters import pxla

import gradclip
from gradclip import Rule
from gradclip.backends.jax import fused, gradient_transformation
from gradclip.dialects import keras, torch
from gradclip.dialects import optax as dialect

PAIRS: dict[str, tuple[Callable[[float], optax.GradientTransformation], Callable[[float], Rule]]] = {
    "clip_by_global_norm": (optax.clip_by_global_norm, dialect.clip_by_global_norm),
    "clip_by_block_rms": (optax.clip_by_block_rms, dialect.clip_by_block_rms),
    "clip": (optax.clip, dialect.clip),
}
OTHERS: dict[str, Callable[[float], Rule]] = {
    "p = 1": lambda limit: torch.clip_grad_norm(limit, 1.0),
    "p = inf": lambda limit: torch.clip_grad_norm(limit, "inf"),
    "each norm": keras.clipnorm,
}
COUNTS = (1, 10, 1000)


def launches(function: Callable[[], Any]) -> list[str]:
    """Return the programs that a compiled call runs; JAX's fast path is off, because its calls cannot be counted."""
    ran: list[str] = []
    call = pxla.ExecuteReplicated.__call__

    def counted(self: Any, *arguments: Any) -> Any:
        ran.append(self.name)
        return call(self, *arguments)

    with mock.patch.object(pjit, "_get_fastpath_data", return_value=None):
        function()
        with mock.patch.object(pxla.ExecuteReplicated, "__call__", counted):
            function()
    return ran


def gradients(count: int, dtype: str) -> list[jax.Array]:
    return [framework.make(np.full(64, 0.5 + i), dtype) for i in range(count)]


def updated(transformation: optax.GradientTransformation, grads: list[jax.Array]) -> Callable[[], Any]:
    return lambda: transformation.update(grads, transformation.init(grads))[0]


def counted(name: str, count: int, dtype: str) -> tuple[int, int]:
    """Return the number of programs of optax and of gradclip; clipping must not change it."""
    native, rule_of = PAIRS[name]
    grads = gradients(count, dtype)
    clipped, unclipped = (
        (len(launches(updated(native(limit), grads))), len(launches(updated(gradient_transformation(rule_of(limit)), grads))))
        for limit in (1e-3, 1e6)
    )
    assert clipped == unclipped
    return clipped


@pytest.mark.drawn(4)
@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize(
    ("count", "dtype"),
    [
        *((count, "float32") for count in COUNTS[:-1]),
        pytest.param(COUNTS[-1], "float32", marks=pytest.mark.slow("a number of programs that grows only with hundreds")),
        *((count, "bfloat16") for count in COUNTS[:-1]),
    ],  # a thousand gradients take a minute to compile
)
@pytest.mark.parametrize("name", PAIRS)
def test_no_more_than_optax(name: str, count: int, dtype: str) -> None:
    theirs, ours = counted(name, count, dtype)
    assert theirs >= count, "the programs of optax were not counted"
    assert ours == 1


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("rule_of", OTHERS.values(), ids=OTHERS)
def test_other_rules_are_one_program_too(rule_of: Callable[[float], Rule]) -> None:
    grads = {"a": gradients(3, "float32"), "b": gradients(2, "bfloat16"), "none": None}
    for function in (gradclip.clip, gradclip.norm):
        assert len(launches(lambda function=function: function(grads, rule_of(0.1)))) == 1


@pytest.mark.drawn(9)
@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("rule_of", [*(rule_of for _, rule_of in PAIRS.values()), *OTHERS.values()], ids=[*PAIRS, *OTHERS])
def test_float64_is_for_float64_alone(rule_of: Callable[[float], Rule], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jax.config.jax_enable_x64
    texts: list[str] = []
    compiled = fused._compiled

    def recorded(*arguments: Any) -> Any:
        texts.append(compiled.lower(*arguments).compile().as_text())
        return compiled(*arguments)

    monkeypatch.setattr(fused, "_compiled", recorded)
    gradclip.clip(gradients(3, dtype), rule_of(0.1))
    assert len(texts) == 1
    assert ("f64[" in texts[0]) == (dtype == "float64")


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("rule_of", [rule_of for _, rule_of in PAIRS.values()], ids=PAIRS)
def test_another_limit_is_the_same_program(rule_of: Callable[[float], Rule]) -> None:
    grads = gradients(3, "float32")
    before = fused._compiled._cache_size()
    for limit in (0.1, 0.2, 3.0, 0.0, 1e39):
        gradclip.clip(grads, rule_of(limit))
        gradclip.clip({"w": grads[0], "rest": [None, *grads[1:]]}, rule_of(limit))
    assert fused._compiled._cache_size() == before + 1


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("rule_of", [*(rule_of for _, rule_of in PAIRS.values()), *OTHERS.values()], ids=[*PAIRS, *OTHERS])
def test_no_value_is_looked_at(rule_of: Callable[[float], Rule], monkeypatch: pytest.MonkeyPatch) -> None:
    grads = gradients(3, "float32")
    for name in ("__array__", "__bool__", "__float__", "__int__", "__index__", "item", "tolist", "_value"):
        monkeypatch.setattr(type(grads[0]), name, property(lambda self: pytest.fail("a value was read")))
    monkeypatch.setattr(jax, "block_until_ready", lambda x: pytest.fail("the host waited for the device"))
    for limit in (0.1, float("inf")):
        gradclip.clip(grads, rule_of(limit))


@pytest.mark.usefixtures("accelerator")
def test_the_engine_is_for_the_rest() -> None:
    """A duplicate gradient counts once, an error names integer gradients, and a norm that is not finite raises."""
    x = jnp.float32([3.0, 4.0])
    assert gradclip.norm([x, x], torch.clip_grad_norm(1.0)) == 5.0
    with pytest.raises(TypeError, match="int32"):
        gradclip.clip({"step": jnp.int32([1])}, torch.clip_grad_norm(1.0))
    with pytest.raises(RuntimeError, match="'b'"):
        gradclip.clip({"a": x, "b": x * np.nan}, torch.clip_grad_norm(1.0, error_if_nonfinite=True))
    with pytest.raises(TypeError, match="cannot be written"):
        gradclip.clip_([x], torch.clip_grad_norm(1.0))
    assert gradclip.scale_by_norm([x], torch.clip_grad_norm(1.0), gradclip.norm([x], torch.clip_grad_norm(1.0))).norm == 5.0


@pytest.mark.usefixtures("accelerator")
def test_what_was_put_somewhere_stays_there() -> None:
    free, put = jnp.float32([3.0, 4.0]), jax.device_put(jnp.float32([6.0, 8.0]), jax.devices()[0])
    for g in (free, put):
        for rule in (torch.clip_grad_norm(1.0), dialect.clip(1.0)):
            made = gradclip.clip(g, rule).grads
            assert (made.committed, made.sharding, made.weak_type) == (g.committed, g.sharding, g.weak_type)
