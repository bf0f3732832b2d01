"""The gradients in a container: found, named, and put back.

:func:`open_` takes what a user passes: a tensor, parameters, any container that the framework itself uses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gradclip.backend import Backend, Tensor
from gradclip.errors import TensorTypeError
from gradclip.lane import Lane
from gradclip.mistakes import advice
from gradclip.registry import find, installed, loaded
from gradclip.tracing import as_it_is

__all__ = ["ANONYMOUS", "Gradients", "Holders", "open_"]

Holders = Literal["declared", "all", "none"]

ANONYMOUS = "the gradient"  #: the name of a gradient without a container and a name


@dataclass(slots=True)
class Gradients:
    """A container of gradients, opened."""

    backend: Backend | None  #: None if the container has no tensors
    leaves: list[Tensor | None]  #: the gradients
    present: list[Tensor]  #: the gradients without the gaps
    owners: list[Any]  #: the parameter of a gradient, or None if the caller gave the gradient itself
    rebuild: Callable[[list[Any]], Any]
    tree: Any  #: the container; a list for an iterator
    was_iterator: bool = False
    is_named: bool = False  #: whether the container names the parameter of each gradient
    is_excerpt: bool = False  #: whether these are only some of the call's gradients
    chosen_lane: Lane | None = None  #: the lane, once chosen

    @property
    def lane(self) -> Lane:
        """The lane for these gradients, chosen once."""
        lane = self.chosen_lane
        if lane is None:
            backend = self.backend
            assert backend is not None
            found = backend.lane(self.present) if self.present and not self._repeats_owners() else None
            lane = (backend.reference or Lane)(backend) if found is None else found
            self.chosen_lane = lane
        return lane

    def _repeats_owners(self) -> bool:
        """Whether the container names a parameter twice: its gradients count once, though they may be two tensors."""
        return self.is_named and len(set(map(id, self.owners))) < len(self.owners)

    def placed(self, new: list[Any]) -> list[Any]:
        """The leaves with new tensors in the place of the gradients."""
        if len(new) == len(self.leaves):
            return new
        rest = iter(new)
        return [None if leaf is None else next(rest) for leaf in self.leaves]

    def paths(self) -> list[str]:
        """A name for each leaf, for messages: its place in the container and its parameter's own name."""
        names = [getattr(owner, "name", None) for owner in self.owners]
        named = zip(self.places(), names, strict=True)
        return [" ".join(filter(None, (place, name))) or ANONYMOUS for place, name in named]

    def places(self) -> list[str]:
        """The place of each leaf in the container: ``"['dense'][0]"``."""
        return [] if self.backend is None else [place for place, _ in self.backend.containers.walk(self.tree)]

    def unique(self) -> list[int]:
        """The places of the gradients, each gradient and each parameter once."""
        if self.backend is not None and self.lane.dtype:
            return [i for i, leaf in enumerate(self.leaves) if leaf is not None]
        return [i for i, first in enumerate(self.firsts()) if first == i and self.leaves[i] is not None]

    def firsts(self) -> list[int]:
        """For each place the first place of the same gradient, or of a gradient of the same parameter."""
        if self.backend is not None and self.lane.dtype:
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
        """A list with an entry for each leaf: the values for some places, None elsewhere."""
        by_place = dict(zip(places, found, strict=True))
        return [by_place.get(i) for i in range(len(self.leaves))]

    def only(self, places: Sequence[int]) -> Gradients:
        """Some of the gradients: lists with an entry for each of these places, and no container."""
        leaves, owners = [self.leaves[i] for i in places], [self.owners[i] for i in places]
        present = [x for x in leaves if x is not None]
        # a lane for tensors that are alike and distinct is right for some of them too
        lane = self.chosen_lane if self.chosen_lane is not None and self.chosen_lane.dtype else None
        return Gradients(self.backend, leaves, present, owners, list, leaves, False, self.is_named, False, lane)

    def of(self, leaves: list[Any], owners: list[Any], rebuild: Callable[[list[Any]], Any]) -> Gradients:
        """A container like this one with other leaves."""
        present = [x for x in leaves if x is not None]
        return replace(self, leaves=leaves, owners=owners, present=present, rebuild=rebuild, chosen_lane=None)


@as_it_is
def open_(tree: Any, *, holders: Holders = "declared") -> Gradients:
    """Find the gradients in a tensor, a parameter, or any container of them that their framework uses.

    Args:
        tree: the user's argument; an iterator is consumed, once.
        holders: which tensors stand for the gradient that they hold, if the framework has such: those declared as
            parameters, "all" (torch's functions take any tensor's ``.grad``), or "none".

    Raises:
        TypeError: for anything else, for a type that no backend knows, and for tensors of two frameworks.
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
            backend = _first_backend(tree, tree)
            if backend is None:
                return Gradients(None, [], [], [], lambda new: tree, tree, was_iterator)
            leaves, rebuild = backend.containers.flatten(tree)
            _check_leaves(leaves, backend, tree)
        named = None if holders == "none" else backend.containers.owners(tree)
    held, gradients = None, leaves
    if holders == "all" and backend.holds_gradients:
        held, gradients = leaves, _held(leaves, backend)
    elif holders == "declared" and backend.holds_gradients:
        held = [leaf if leaf is not None and backend.containers.is_owner(leaf) else None for leaf in leaves]
        gradients = [x if owner is None else backend.containers.gradient(owner) for x, owner in zip(leaves, held, strict=True)]
    owners = named or held or [None] * len(leaves)
    present = [x for x in gradients if x is not None]
    return Gradients(backend, gradients, present, owners, rebuild, tree, was_iterator, named is not None)


def _alike(tree: Any) -> Backend | None:
    """The backend of a list or tuple of tensors of one type: the usual container, and a quick test."""
    if type(tree) not in (list, tuple) or len(set(map(type, tree))) != 1:
        return None
    backend = find(tree[0])
    return None if backend is None or backend.containers.has_gaps(tree) else backend


def _held(parameters: list[Any], backend: Backend) -> list[Any]:
    if type(None) in set(map(type, parameters)):
        raise TensorTypeError("None is not a parameter.", "", "leave it out: a parameter without a gradient may stay.")
    return list(map(backend.containers.gradient, parameters))


def _check_leaves(leaves: list[Any], backend: Backend, tree: Any) -> None:
    """Refuse leaves that are not tensors of this framework. It tests one leaf of each type."""
    for leaf in dict(zip(map(type, leaves), leaves, strict=True)).values():
        if leaf is not None and not backend.is_tensor(leaf):
            raise _not_a_gradient(leaf, backend, tree)


def _only(new: list[Any]) -> Any:
    return new[0]


def _materialised(tree: Any) -> Any:
    """An iterator or a view as a list, an object with a mapping's methods as a dict, anything else unchanged."""
    if tree is None or isinstance(tree, (list, tuple, Mapping, str, bytes)):
        return tree
    if isinstance(tree, Iterator):
        return list(tree)
    if not isinstance(tree, Iterable):
        return tree
    items = getattr(tree, "items", None)
    if callable(getattr(tree, "keys", None)) and callable(items):  # torch.nn.ParameterDict
        return dict(items())
    return (
        tree if any(known.containers.is_container(tree) or known.containers.is_gap(tree) for known in loaded()) else list(tree)
    )


def _first_backend(tree: Any, whole: Any) -> Backend | None:
    """The backend of the first tensor in a container, which is ``whole`` or part of it."""
    if tree is None:
        return None
    backend = find(tree)
    if backend is not None:
        return backend
    if isinstance(tree, (list, tuple, Mapping)):
        children = tree.values() if isinstance(tree, Mapping) else tree
        for child in children:
            found = _first_backend(child, whole)
            if found is not None:
                return found
        return None
    backend = next((known for known in loaded() if known.containers.is_container(tree)), None)
    if backend is None and any(known.containers.is_gap(tree) for known in loaded()):
        return None
    if backend is None:
        raise _not_a_gradient(tree, None, whole)
    return backend


def _not_a_gradient(x: object, backend: Backend | None, tree: Any) -> TensorTypeError:
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    other = find(x)
    if backend is not None and other is not None:
        return TensorTypeError(
            "The tensors of one call must be of one framework.",
            f"tensors of {backend.name} and of {other.name}",
            "convert them, or clip each framework's tensors separately.",
        )
    if isinstance(x, Mapping) and backend is not None:
        return TensorTypeError(f"To {backend.name} this is no container.", kind, "pass a dict of it.")
    error = advice(x, tree)
    if error is not None:
        return error
    names = ", ".join(sorted({module for module, here in installed().items() if here} - {"jaxlib", "ml_dtypes"}))
    return TensorTypeError(
        f"No backend knows tensors of type {kind}.",
        f"{kind}; installed backends: {names or 'none'}",
        "gradclip.register(module, backend) adds one, as does an entry point of the group 'gradclip.backends'.",
    )
