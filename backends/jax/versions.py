"""Names of JAX and optax that are private, or not in every version, each with what is done where it is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from gradclip.floors import check_version

__all__ = [
    "HAS_RULES_IN_SHARD_MAP",
    "axis_size",
    "enable_x64",
    "init_empty_state",
    "is_committed",
    "is_without_mesh",
    "trace_state",
    "varying",
    "widens_alone",
]

check_version("jax", jax.__version__)


def _trace_state() -> Callable[[], object]:
    """What tells whether a function is being traced: equal at the same level. Without it no two are equal."""
    try:
        from jax.extend.core import get_opaque_trace_state  # from 0.10 on
    except ImportError:
        get_opaque_trace_state = getattr(jax.core, "get_opaque_trace_state", None)
    found: Callable[..., object] | None = get_opaque_trace_state
    if found is None:
        return object
    return functools.partial(found, convention="flax") if jax.__version_info__ < (0, 6) else found  # it wants to know for whom


trace_state = _trace_state()
_WIDENS_ALONE = (0, 7, 2)  # the first that was seen to; 0.6.2 does not

if hasattr(jax, "enable_x64"):
    enable_x64 = jax.enable_x64
else:
    from jax.experimental import enable_x64  # type: ignore[no-redef]


#: whether a function may have a rule of its own for ``vmap`` inside ``shard_map``, which moved to ``jax`` when it learned that
HAS_RULES_IN_SHARD_MAP = hasattr(jax, "shard_map")


def widens_alone() -> bool:
    """Whether a part of a function can be in float64 where JAX is not set to it: else XLA refuses the mixture."""
    return jax.__version_info__ >= _WIDENS_ALONE or bool(jax.config.jax_enable_x64)


def init_empty_state() -> Any:
    """What initialises an optax transformation that has no state."""
    import optax

    return getattr(optax, "init_empty_state", lambda params: optax.EmptyState())


def is_committed(x: Any) -> bool:
    """Whether an array was put on its device on purpose. Where JAX does not say, it counts as if it was."""
    return bool(getattr(x, "committed", getattr(x, "_committed", True)))


def is_without_mesh() -> bool:
    """Whether no mesh is set, to which arrays go that were put nowhere on purpose. Before this function none could be."""
    get_abstract_mesh = getattr(jax.sharding, "get_abstract_mesh", None)
    return get_abstract_mesh is None or bool(get_abstract_mesh().empty)


def axis_size(names: tuple[str, ...]) -> int:
    """How many devices there are along these axes. A sum of ones is a constant where there is no such function."""
    found: int = lax.axis_size(names) if hasattr(lax, "axis_size") else lax.psum(1, names)
    return found


def varying(x: Any) -> frozenset[str]:
    """The axes that JAX has recorded an array to differ along: none where it keeps no record."""
    described = jax.typeof(x) if hasattr(jax, "typeof") else None
    kind = getattr(described, "manual_axis_type", None)
    found: frozenset[str] = getattr(described, "vma", frozenset()) if kind is None else kind.varying
    return found
