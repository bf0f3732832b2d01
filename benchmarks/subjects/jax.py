"""JAX: optax's clips, eager, jitted, and jitted with the gradients donated; and the clips of Keras's optimizers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import numpy as np
import optax

import gradclip
from benchmarks.case import DONATED, EAGER, Function, Kind, Maker
from benchmarks.subjects import keras
from benchmarks.subjects.base import Call, NoDeviceError, Sample, Subject
from benchmarks.subjects.natives import own, resolved
from gradclip.backends.host.threads import cores
from gradclip.backends.jax import gradient_transformation
from gradclip.natives import Applied, Native
from gradclip.natives import optax as natives

MODES = (EAGER, "jit", DONATED)


def _update(make: Callable[[float], Any]) -> Maker:
    """What an optax chain does with a transformation."""

    def maker(limit: float) -> Callable[[Any], Any]:
        transformation = make(limit)
        return lambda grads: transformation.update(grads, optax.EmptyState())[0]

    return maker


def _pair(native: Native, kind: Kind) -> Function:
    ours = _update(lambda limit: gradient_transformation(native.rule(limit)))
    return Function(native.last, kind, _update(resolved(native)), ours, modes=MODES)


class JaxSubject(Subject):
    name = "jax"
    mutable = False
    modes = (EAGER, "jit")

    def __init__(self, device: str) -> None:
        self.device = device
        try:
            self.place = jax.devices(device)[0]
        except RuntimeError as error:
            raise NoDeviceError(f"jax sees no {device}") from error
        self.threads = cores()
        self.notes = ("keras is not installed: its rows are left out",) if keras.missing() else ()

    def versions(self) -> dict[str, str]:
        return {"jax": jax.__version__, "optax": optax.__version__, **keras.versions()}

    def functions(self) -> Sequence[Function]:
        return (
            *(_pair(native, kind) for native, kind in own(natives.NATIVES) if native.applied is Applied.CHAIN),
            Function(
                "global_norm",
                Kind.NORM,
                lambda limit: optax.global_norm,
                lambda limit: gradclip.global_norm,
                modes=(EAGER, "jit"),
                norm=lambda result: result,
            ),
            *keras.functions((EAGER, "jit")),
        )

    def native_norm(self, order: float) -> tuple[str, Callable[[Any], Any]] | None:
        return None if order == 3 else ("tensors", lambda grads: optax.tree.norm(grads, ord=order))  # it has 1, 2 and inf

    def make(self, array: np.ndarray, dtype: str) -> Any:
        return jax.device_put(jnp.array(array, jnp.dtype(dtype)), self.place)

    def copy(self, x: Any) -> Any:
        return jnp.copy(x)

    def restore(self, sample: Sample) -> None:
        sample.tensors[:] = [jnp.copy(x) for x in sample.pristine]
        jax.block_until_ready(sample.tensors)

    def read(self, x: Any) -> np.ndarray:
        return np.asarray(x, np.float64)

    def call(self, function: Callable[[Any], Any], mode: str, form: str, sample: Sample) -> Call:
        given = sample.form(form)  # the list, whose contents `restore` replaces
        run = function if mode == EAGER else jax.jit(function, donate_argnums=(0,) if mode == DONATED else ())
        return lambda: jax.block_until_ready(run(given))


subject = JaxSubject
