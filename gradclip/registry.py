"""Which backend owns this tensor, found from its type alone.

A type is matched by the top-level modules of its bases (``torch``, ``jaxlib``), so that nothing is imported that the tensor's
own framework has not imported already; the backend then confirms. Third parties join by an entry point of the group
``gradclip.backends``, named after the top-level module of their tensors, or by :func:`register`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any, Literal

from gradclip.backend import Backend, Tensor
from gradclip.errors import TensorTypeError
from gradclip.mistakes import advice
from gradclip.tracing import as_it_is, constant

__all__ = [
    "GROUP",
    "Gradients",
    "Holders",
    "find",
    "get",
    "home",
    "installed",
    "loaded",
    "looked_at",
    "of_type",
    "open_",
    "register",
]

GROUP = "gradclip.backends"

#: top-level module of a tensor's type -> where its backend is
_SOURCES: dict[str, str | Callable[[], Backend]] = {
    "numpy": "gradclip.backends.numpy:NumpyBackend",
    "ml_dtypes": "gradclip.backends.numpy:NumpyBackend",
    "torch": "gradclip.backends.torch:TorchBackend",
    "tensorflow": "gradclip.backends.tensorflow:TensorFlowBackend",
    "paddle": "gradclip.backends.paddle:PaddleBackend",
    "jax": "gradclip.backends.jax:JaxBackend",
    "jaxlib": "gradclip.backends.jax:JaxBackend",
}
Holders = Literal["declared", "all", "none"]

_backends: dict[str, Backend] = {}  # by top-level module
_by_type: dict[type, int] = {}  # place in _numbered, or -1
_numbered: list[Backend] = []
_entry_points_read = False


def register(module: str, backend: Backend | Callable[[], Backend]) -> None:
    """Make gradclip use ``backend`` for the tensors whose type is defined in ``module``.

    Args:
        module: the top-level module of the tensors' type: ``"mylib"``.
        backend: a :class:`gradclip.Backend`, or what makes one when it is first needed (its class, for example).

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
        raise TensorTypeError("A backend is a gradclip.Backend, or a callable that makes one.", f"backend={backend!r}")
    _backends.pop(module, None)
    _SOURCES[module] = (lambda: backend) if isinstance(backend, Backend) else backend
    _by_type.clear()


def _sources() -> dict[str, str | Callable[[], Backend]]:
    global _entry_points_read
    if not _entry_points_read:
        for point in metadata.entry_points(group=GROUP):
            _SOURCES.setdefault(point.name, point.value)
        _entry_points_read = True  # not before: another thread would take a third party's tensors for none
    return _SOURCES


def get(module: str) -> Backend:
    """The backend for a top-level module; imports the framework."""
    if module not in _backends:
        source = given = _sources()[module]
        if isinstance(source, str):
            where, _, attribute = source.partition(":")
            source = getattr(importlib.import_module(where), attribute)
        # one instance however many modules a framework's types are spread over
        same = (known for other, known in _backends.items() if _SOURCES[other] == given)
        _backends[module] = next(same, None) or source()
    return _backends[module]


def home(module: str) -> Backend | None:
    """The backend for a top-level module if this process has imported the framework."""
    return get(module) if module in sys.modules and module in _sources() else None


def loaded() -> Iterator[Backend]:
    """The backends whose framework this process has imported."""
    for module in list(_sources()):
        if module in sys.modules:
            yield get(module)


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
    """The backend of the framework that defines a type, be it of a tensor or of something else."""
    number = _number_of(kind)
    return None if number < 0 else _numbered[number]


def looked_at(x: Any) -> Any:
    """A number as a float, and a tensor of one element too if looking at it is free; anything else as it is."""
    if isinstance(x, (int, float)):
        return float(x)
    backend = find(x)
    if backend is None or any(length != 1 for length in backend.shape(x) or ()) or not backend.is_concrete([x]):
        return x
    return backend.number(x)


@constant
def _number_of(kind: type) -> int:
    """The place in ``_numbered`` of the backend of a type, by the top-level modules of its bases; -1 for none."""
    if kind not in _by_type:
        roots = dict.fromkeys(base.__module__.partition(".")[0] for base in kind.__mro__)
        backend = next((get(root) for root in roots if root in _sources() and root in sys.modules), None)
        if backend is not None and backend not in _numbered:
            _numbered.append(backend)
        _by_type[kind] = -1 if backend is None else _numbered.index(backend)
    return _by_type[kind]


@dataclass(slots=True)
class Gradients:
    """A container of gradients, opened."""

    backend: Backend | None  #: None where it holds no tensor at all
    leaves: list[Tensor | None]  #: the gradients
    present: list[Tensor]  #: the gradients without the gaps
    owners: list[Any]  #: the parameter that a gradient came with, or None where the gradient itself was given
    rebuild: Callable[[list[Any]], Any]
    tree: Any  #: the container; a list where an iterator was given
    was_iterator: bool = False
    plain: str = ""  #: the dtype of gradients that :meth:`Backend.plain` vouches for
    is_named: bool = False  #: whether the container names the parameter of each gradient
    is_excerpt: bool = False  #: whether there are other gradients, which are clipped by themselves

    def placed(self, new: list[Any]) -> list[Any]:
        """New tensors in the place of those that are present."""
        if len(new) == len(self.leaves):
            return new
        rest = iter(new)
        return [None if leaf is None else next(rest) for leaf in self.leaves]

    def paths(self) -> list[str]:
        """A name for each leaf, for messages: its place in the container and its parameter's own name."""
        names = [getattr(owner, "name", None) for owner in self.owners]
        named = zip(self.places(), names, strict=True)
        return [" ".join(filter(None, (place, name))) or "the gradient" for place, name in named]

    def places(self) -> list[str]:
        """The place of each leaf in the container: ``"['dense'][0]"``."""
        return [] if self.backend is None else [place for place, _ in self.backend.walk(self.tree)]

    def unique(self) -> list[int]:
        """The places of the gradients, each gradient and each parameter once."""
        if self.plain:
            return [i for i, leaf in enumerate(self.leaves) if leaf is not None]
        return [i for i, first in enumerate(self.firsts()) if first == i and self.leaves[i] is not None]

    def firsts(self) -> list[int]:
        """For each place the first at which the same gradient, or that of the same parameter, is listed."""
        if self.plain:
            return list(range(len(self.leaves)))
        seen: dict[Hashable, int] = {}
        places = []
        for i, (leaf, owner) in enumerate(zip(self.leaves, self.owners, strict=True)):
            keys: list[Hashable] = [] if leaf is None or self.backend is None else [self.backend.identity(leaf)]
            if owner is not None and (leaf is None or self.is_named):  # other processes may have the gradient of a parameter
                keys.append(id(owner))
            first = min([i, *(seen[key] for key in keys if key in seen)])
            seen.update(dict.fromkeys(keys, first))
            places.append(first)
        return places

    def spread(self, places: Sequence[int], found: Sequence[Any]) -> list[Any]:
        """What was found for some places in a list with an entry for each leaf, None elsewhere."""
        by_place = dict(zip(places, found, strict=True))
        return [by_place.get(i) for i in range(len(self.leaves))]

    def only(self, places: Sequence[int]) -> Gradients:
        """Some of the gradients: lists with an entry for each of these places, and no container."""
        leaves, owners = [self.leaves[i] for i in places], [self.owners[i] for i in places]
        present = [x for x in leaves if x is not None]
        plain = self.plain
        if not plain and self.backend is not None and present and not self.is_named:
            plain = self.backend.plain(present)
        return Gradients(self.backend, leaves, present, owners, list, leaves, False, plain, self.is_named)


@as_it_is
def open_(tree: Any, *, holders: Holders = "declared") -> Gradients:
    """Find the gradients in a tensor, a parameter, or any container of them that their framework uses.

    Args:
        tree: what the user gave; an iterator is consumed, once.
        holders: which tensors stand for the gradient that they hold, in a framework where they do: those declared as
            parameters, "all" (torch's functions take any tensor's ``.grad``), or "none".

    Raises:
        TypeError: for what is neither, for a type no backend knows, and for tensors of two frameworks.
    """
    backend, was_iterator, named = _alike(tree), False, None
    rebuild: Callable[[list[Any]], Any] = type(tree)
    if backend is not None:
        leaves = list(tree)
    else:
        backend = find(tree)
        if backend is not None:
            leaves, rebuild = [tree], _only
        else:
            was_iterator = isinstance(tree, Iterator)
            tree = _materialised(tree)
            backend = _first_backend(tree)
            if backend is None:
                return Gradients(None, [], [], [], lambda new: tree, tree, was_iterator)
            leaves, rebuild = backend.flatten(tree)
            _check_leaves(leaves, backend)
        named = None if holders == "none" else backend.owners(tree)
    held, gradients = None, leaves
    if holders == "all" and backend.holds_gradients:
        held, gradients = leaves, _held(leaves, backend)
    elif holders == "declared" and backend.holds_gradients:
        held = [leaf if leaf is not None and backend.is_parameter(leaf) else None for leaf in leaves]
        gradients = [x if owner is None else backend.gradient(owner) for x, owner in zip(leaves, held, strict=True)]
    owners = named or held or [None] * len(leaves)
    present = [x for x in gradients if x is not None]
    distinct = named is None or len(set(map(id, named))) == len(named)
    plain = backend.plain(present) if distinct and present else ""
    return Gradients(backend, gradients, present, owners, rebuild, tree, was_iterator, plain, named is not None)


def _alike(tree: Any) -> Backend | None:
    """The backend of a list or tuple of tensors of one type: what most containers are, and quickly told."""
    if type(tree) not in (list, tuple) or len(set(map(type, tree))) != 1:
        return None
    return find(tree[0])


def _held(parameters: list[Any], backend: Backend) -> list[Any]:
    if type(None) in set(map(type, parameters)):
        raise TensorTypeError("None is not a parameter.", "", "leave it out: a parameter without a gradient may stay.")
    return list(map(backend.gradient, parameters))


def _check_leaves(leaves: list[Any], backend: Backend) -> None:
    """Refuse what is no tensor of this framework: one of each type is looked at."""
    for leaf in dict(zip(map(type, leaves), leaves, strict=True)).values():
        if leaf is not None and not backend.is_tensor(leaf):
            raise _not_a_gradient(leaf, backend)


def _only(new: list[Any]) -> Any:
    return new[0]


def _materialised(tree: Any) -> Any:
    """An iterator or a view as a list, what is a mapping in all but name as a dict; everything else as it is."""
    if tree is None or isinstance(tree, (list, tuple, Mapping, str, bytes)):
        return tree
    if isinstance(tree, Iterator):
        return list(tree)
    if not isinstance(tree, Iterable):
        return tree
    items = getattr(tree, "items", None)
    if callable(getattr(tree, "keys", None)) and callable(items):  # torch.nn.ParameterDict
        return dict(items())
    return tree if any(known.is_container(tree) for known in loaded()) else list(tree)


def _first_backend(tree: Any) -> Backend | None:
    """The backend of the first tensor in a container."""
    if tree is None:
        return None
    backend = find(tree)
    if backend is not None:
        return backend
    if isinstance(tree, (list, tuple, Mapping)):
        children = tree.values() if isinstance(tree, Mapping) else tree
        return next((found for child in children if (found := _first_backend(child)) is not None), None)
    backend = next((known for known in loaded() if known.is_container(tree)), None)
    if backend is None:
        raise _not_a_gradient(tree, None)
    return backend


def _not_a_gradient(x: object, backend: Backend | None) -> TensorTypeError:
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    other = find(x)
    if backend is not None and other is not None:
        return TensorTypeError(
            "The tensors of one call must be of one framework.",
            f"tensors of {backend.name} and of {other.name}",
            "convert them, or clip each framework's by themselves.",
        )
    if isinstance(x, Mapping) and backend is not None:
        return TensorTypeError(f"To {backend.name} this is no container.", kind, "pass a dict of it.")
    error = advice(x)
    if error is not None:
        return error
    names = ", ".join(sorted({module for module, here in installed().items() if here} - {"jaxlib", "ml_dtypes"}))
    return TensorTypeError(
        f"No backend knows tensors of type {kind}.",
        f"{kind}; installed backends: {names or 'none'}",
        "gradclip.register(module, backend) adds one, as does an entry point of the group 'gradclip.backends'.",
    )
