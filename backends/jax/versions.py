"""Names of JAX and optax that are private or not in every version, each with its fallback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
from jax import lax

from gradclip.core.versions import check_version

__all__ = [
    "ADDS_ALONG_AN_AXIS",
    "ADDS_IN_A_ROW",
    "axis_size",
    "enable_x64",
    "explicit_sharding",
    "init_empty_state",
    "is_committed",
    "is_in_pmap",
    "is_sparse",
    "is_without_mesh",
    "manual_axes",
    "trace_state",
    "varying",
    "widens_alone",
]

check_version("jax", jax.__version__)


def _trace_state() -> Callable[[], object]:
    """JAX's function whose results are equal at the same level of tracing. Without it no two results are equal."""
    try:
        from jax.extend.core import get_opaque_trace_state  # from 0.10 on
    except ImportError:
        get_opaque_trace_state = getattr(jax.core, "get_opaque_trace_state", None)
    found: Callable[..., object] | None = get_opaque_trace_state
    if found is None:
        return object
    return functools.partial(found, convention="flax") if jax.__version_info__ < (0, 6) else found  # before 0.6 it wants a name


trace_state = _trace_state()
_WIDENS_ALONE = (0, 7, 2)  # the first version known to do it; 0.6.2 does not

if hasattr(jax, "enable_x64"):
    enable_x64 = jax.enable_x64
else:
    from jax.experimental import enable_x64  # type: ignore[no-redef]


#: whether XLA for the host may add up an array of several axes one number after the other, so that a sum of 4 million is off by
#: 184 ulp: https://github.com/jax-ml/jax/issues/585
ADDS_IN_A_ROW = jax.__version_info__ < (0, 10)
#: whether it does so along one axis too
ADDS_ALONG_AN_AXIS = (0, 9) <= jax.__version_info__ < (0, 10)


def widens_alone() -> bool:
    """Whether a part of a function can be in float64 if JAX's float64 is off; otherwise XLA refuses the mixture."""
    return jax.__version_info__ >= _WIDENS_ALONE or bool(jax.config.jax_enable_x64)


def init_empty_state() -> Any:
    """The ``init`` of an optax transformation without state."""
    import optax

    return getattr(optax, "init_empty_state", lambda params: optax.EmptyState())


def is_committed(x: Any) -> bool:
    """Whether an array was put on its device explicitly; True if JAX does not tell."""
    return bool(getattr(x, "committed", getattr(x, "_committed", True)))


def is_without_mesh() -> bool:
    """Whether no mesh is set; arrays without an explicit device go to the mesh. Versions without this function have none."""
    get_abstract_mesh = getattr(jax.sharding, "get_abstract_mesh", None)
    return get_abstract_mesh is None or bool(get_abstract_mesh().empty)


def axis_size(names: tuple[str, ...]) -> int:
    """The number of devices along these axes. Without JAX's function, a sum of ones is a constant."""
    found: int = lax.axis_size(names) if hasattr(lax, "axis_size") else lax.psum(1, names)
    return found


def varying(x: Any) -> frozenset[str]:
    """The axes along which an array differs, as JAX records: none without a record."""
    described = jax.typeof(x) if hasattr(jax, "typeof") else None
    kind = getattr(described, "manual_axis_type", None)
    found: frozenset[str] = getattr(described, "vma", frozenset()) if kind is None else kind.varying
    return found


def manual_axes() -> frozenset[str]:
    """The axes of the mesh along which the ``shard_map`` being traced is written; none if JAX does not tell."""
    get_abstract_mesh = getattr(jax.sharding, "get_abstract_mesh", None)
    mesh = None if get_abstract_mesh is None else get_abstract_mesh()
    return _axes_of_type(mesh, "Manual")


def is_in_pmap() -> bool:
    """Whether ``pmap`` traces the caller, from the call stack: to JAX it is a ``shard_map`` with ``check_vma=False``.

    Without a module of this name it is False.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "jax._src.pmap":
        frame = frame.f_back
    return frame is not None


def explicit_sharding(x: Any) -> Any:
    """The sharding in an array's type, if its mesh has explicit axes; None on other meshes, and where JAX has no such types."""
    found = getattr(jax.typeof(x), "sharding", None) if hasattr(jax, "typeof") else None
    return found if _axes_of_type(getattr(found, "mesh", None), "Explicit") else None


def _axes_of_type(mesh: Any, kind: str) -> frozenset[str]:
    types = getattr(mesh, "axis_types", None) or ()
    wanted = getattr(getattr(jax.sharding, "AxisType", None), kind, None)
    if wanted is None or not isinstance(types, tuple):  # JAX 0.5 has a dict here, and no explicit meshes yet
        return frozenset()
    return frozenset(name for name, of_axis in zip(mesh.axis_names, types, strict=True) if of_axis == wanted)


def is_sparse(x: object) -> bool:
    """Whether this is a matrix of ``jax.experimental.sparse``, a pytree of numbers and their indices."""
    module = sys.modules.get("jax.experimental.sparse")
    return module is not None and isinstance(x, module.JAXSparse)
