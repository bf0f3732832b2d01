"""Where arrays are, and whether they have values: the choice of a lane depends on it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from gradclip.backends.jax.versions import explicit_sharding, trace_state, widens_alone
from gradclip.core.backend import Tensor

__all__ = ["are_together", "beside", "compiles_for_host", "has_float64", "is_host", "is_on_host", "is_tracing"]

_SHARDING = operator.attrgetter("sharding")
with jax.ensure_compile_time_eval():  # this module may be imported while tracing
    _OUTSIDE = trace_state()


def is_host(platform: str) -> bool:
    """Whether the device is the host. Tests replace this function to treat the host as an accelerator."""
    return platform == "cpu"


def is_on_host(x: Tensor) -> bool:
    """Whether an array is in this process's memory, where reading a value is free. A tracer has no memory."""
    return not isinstance(x, Tracer) and is_host(_platform(x.sharding))


def compiles_for_host() -> bool:
    """Whether functions are compiled for the host, as far as is known while tracing."""
    return is_host(jax.default_backend())


def has_float64() -> bool:
    """Whether functions may compute in float64, and that costs no more than float32."""
    return compiles_for_host() and widens_alone()


@functools.lru_cache(64)  # the devices take 3 us
def _platform(sharding: Any) -> str:
    """The platform of all devices; "" if there are several, or if other processes have a shard."""
    platforms = {device.platform for device in sharding.device_set}
    return platforms.pop() if sharding.is_fully_addressable and len(platforms) == 1 else ""


@functools.lru_cache(64)
def _devices(sharding: Any) -> frozenset[Any]:
    return frozenset(sharding.device_set)


def are_together(tensors: Sequence[Tensor]) -> bool:
    """Whether one compiled function can take them all: while tracing, and if all are on the same devices."""
    if any(issubclass(kind, Tracer) for kind in set(map(type, tensors))):
        return True
    return len(set(map(_devices, set(map(_SHARDING, tensors))))) == 1


def is_tracing() -> bool:
    """Whether a function is being traced: then operations on constants are traced too, and have no value."""
    is_outside = bool(trace_state() == _OUTSIDE)  # this test takes a tenth of the time of a call
    return not is_outside and isinstance(_nothing(), Tracer)


@jax.jit
def _nothing() -> Tensor:
    return np.int32(0)


def beside(x: Tensor, like: Tensor) -> Tensor:
    """``x`` for arithmetic with ``like``: on its devices, and along explicit axes of the mesh sharded as it is."""
    if not isinstance(x, Tracer) and not isinstance(like, Tracer) and x.devices() != like.devices():
        mesh = getattr(like.sharding, "mesh", None)
        return jax.device_put(x, like.sharding if mesh is None else NamedSharding(mesh, PartitionSpec()))
    return _sharded_as(x, like) if x.ndim and jax.device_count() > 1 else x


def _sharded_as(x: Tensor, like: Tensor) -> Tensor:
    """``x`` with the explicit sharding of the axes that it shares with ``like``: JAX refuses arithmetic of two shardings."""
    own, wanted = explicit_sharding(x), explicit_sharding(like)
    if own is None or wanted is None:
        return x
    of_like = dict(enumerate(reversed(list(zip(like.shape, wanted.spec, strict=True)))))
    places = [of_like.get(i, (0, None)) for i in range(x.ndim)][::-1]
    spec = [names if length == own_length else None for own_length, (length, names) in zip(x.shape, places, strict=True)]
    return x if spec == list(own.spec) else jax.sharding.reshard(x, wanted.update(spec=PartitionSpec(*spec)))
