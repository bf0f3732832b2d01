"""The backend of a tensor, found from the tensor's type.

gradclip matches the top-level modules of the type's bases (``torch``, ``jaxlib``), so it imports no framework that is not
imported already; the backend then confirms. Third parties add a backend with an entry point of the group
``gradclip.backends``, named after the top-level module of their tensors, or with :func:`register`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib import util
from typing import Any

from gradclip.core.backend import Backend, number
from gradclip.core.dtypes import LARGEST, is_real
from gradclip.core.errors import TensorTypeError, VersionError, shown
from gradclip.core.tracing import constant

__all__ = [
    "GROUP",
    "as_float",
    "find",
    "get",
    "home",
    "installed",
    "loaded",
    "of_type",
    "register",
    "resolve",
    "widened",
]

GROUP = "gradclip.backends"

#: top-level module of a tensor's type -> the backend's module and class
_SOURCES: dict[str, str | Callable[[], Backend]] = {
    "numpy": "gradclip.backends.numpy:NumpyBackend",
    "ml_dtypes": "gradclip.backends.numpy:NumpyBackend",
    "torch": "gradclip.backends.torch:TorchBackend",
    "tensorflow": "gradclip.backends.tensorflow:TensorFlowBackend",
    "paddle": "gradclip.backends.paddle:PaddleBackend",
    "jax": "gradclip.backends.jax:JaxBackend",
    "jaxlib": "gradclip.backends.jax:JaxBackend",
}

_backends: dict[str | Callable[[], Backend], Backend] = {}  # by source: one for all modules of a framework's types
_by_type: dict[type, int] = {}  # place in _numbered, or -1
_numbered: list[Backend] = []
_too_old: set[str] = set()  # modules of frameworks below their minimum, which are not asked again
_entry_points_read = False


def register(module: str, backend: Backend | Callable[[], Backend]) -> None:
    """Make gradclip use ``backend`` for the tensors whose type is defined in ``module``.

    Args:
        module: the top-level module of the tensors' type: ``"mylib"``.
        backend: a :class:`gradclip.Backend`, or a callable that makes one at its first use (its class, for example).

    Raises:
        TypeError: if ``backend`` is neither, or ``module`` is not a string.

    Example:
        >>> import gradclip
        >>> class MyBackend(gradclip.Backend):
        ...     name = "mylib"
        >>> gradclip.register("mylib", MyBackend)
    """
    given: object = module
    if not isinstance(given, str):
        hint = 'the top-level module of the tensors\' type: "mylib".'
        raise TensorTypeError("A module is given by its name.", f"module={module!r}", hint)
    if not isinstance(backend, Backend) and not callable(backend):
        raise TensorTypeError("A backend is a gradclip.Backend, or a callable that makes one.", f"backend={shown(backend)}")
    _backends.pop(_SOURCES.get(module, ""), None)
    _too_old.discard(module)
    _SOURCES[module] = (lambda: backend) if isinstance(backend, Backend) else backend
    _by_type.clear()


def _sources() -> dict[str, str | Callable[[], Backend]]:
    global _entry_points_read
    if not _entry_points_read:
        from importlib import metadata  # imported here: it takes a quarter of the time of gradclip's import

        for point in metadata.entry_points(group=GROUP):
            _SOURCES.setdefault(point.name, point.value)
        _entry_points_read = True  # not before: another thread would not recognise a third party's tensors
    return _SOURCES


def get(module: str) -> Backend:
    """The backend for a top-level module; imports the framework."""
    source = _sources()[module]
    backend = _backends.get(source)
    if backend is None:
        made: Backend = (resolve(source) if isinstance(source, str) else source)()
        for kind, path in made.fused.items():
            kind.fused = staticmethod(resolve(path))
        made.reference = made.reference or resolve("gradclip.core.reference:Reference")
        if made.slot and made.as_slot is None:
            made.as_slot = resolve(made.slot)
        backend = _backends.setdefault(source, made)  # another thread may have made one meanwhile
    return backend


def resolve(path: str) -> Any:
    """The object ``"package.module:name"``; this imports the module."""
    where, _, attribute = path.partition(":")
    return getattr(importlib.import_module(where), attribute)


def home(module: str) -> Backend | None:
    """The backend for a top-level module if this process has imported the framework."""
    return get(module) if module in sys.modules and module in _sources() else None


def loaded() -> Iterator[Backend]:
    """The backends of the frameworks that this process has imported; a framework that is too old is left out."""
    for module in list(_sources()):
        if module in sys.modules and module not in _too_old:
            try:
                backend = get(module)
            except VersionError:
                _too_old.add(module)
                continue
            yield backend


def installed() -> dict[str, bool]:
    """Every known backend's module, and whether its framework is installed (nothing is imported)."""
    return {module: module in sys.modules or util.find_spec(module) is not None for module in _sources()}


def find(x: object) -> Backend | None:
    """The backend that owns ``x``, or None if ``x`` is no tensor of a known framework."""
    number = _number_of(type(x))
    if number < 0:
        return None
    backend = _numbered[number]
    return backend if backend.is_tensor(x) else None


def of_type(kind: type) -> Backend | None:
    """The backend of the framework that defines a type, a tensor's or any other."""
    number = _number_of(kind)
    return None if number < 0 else _numbered[number]


def as_float(x: Any) -> Any:
    """A number as a float, and a tensor of one element too if reading it is free; anything else unchanged."""
    if isinstance(x, (int, float)):
        return float(x)
    backend = find(x)
    if backend is None or any(length != 1 for length in backend.shape(x) or ()) or not backend.reads_free([x]):
        return x
    return number(backend, x)


def widened(x: Any) -> Any:
    """A real tensor of another dtype than float32 and float64 as a float32, which half precision fits; else ``x`` itself."""
    backend = find(x)
    if backend is None or (dtype := backend.dtype(x)) in LARGEST or not is_real(dtype):
        return x
    return backend.cast(x, "float32")


@constant
def _number_of(kind: type) -> int:
    """The place in ``_numbered`` of the backend of a type, by the top-level modules of its bases; -1 for none."""
    place = _by_type.get(kind)
    if place is None:
        roots = dict.fromkeys(base.__module__.partition(".")[0] for base in kind.__mro__)
        backend = next((get(root) for root in roots if root in _sources() and root in sys.modules), None)
        if backend is not None and backend not in _numbered:
            _numbered.append(backend)
        place = _by_type[kind] = -1 if backend is None else _numbered.index(backend)
    return place
