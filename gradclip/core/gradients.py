"""The gradients in a container: found, named, and put back.

:func:`open_` takes what a user passes: a tensor, parameters, any container that the framework itself uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gradclip.core.backend import Backend, Tensor
from gradclip.core.containers import DEEPEST, nested_too_deep
from gradclip.core.errors import ArgumentError, ArgumentTypeError, TensorTypeError
from gradclip.core.lane import Lane
from gradclip.core.mistakes import advice, has_no_length, symbolic
from gradclip.core.registry import find, installed, loaded, of_type
from gradclip.core.tracing import untraced

__all__ = ["ANONYMOUS", "Container", "Gradients", "Holders", "made", "open_", "parameters", "refusal"]

Holders = Literal["declared", "all", "none"]

ANONYMOUS = "the gradient"  #: the name of a gradient without a container and a name


@dataclass(slots=True)
class Container:
    """What the caller gave: how to name its leaves, and how to make one like it."""

    tree: Any  #: for an iterator a list, or a dict if it yields pairs of a name and a tensor
    rebuild: Callable[[list[Any]], Any]
    was_iterator: bool = False
    names_params: bool = False  #: whether it names the parameter of each gradient, as Paddle's pairs do
    native_warning: str = ""  #: the native's own sentence for an empty iterator, if it has one


@dataclass(slots=True)
class Gradients:
    """An opened container. It never changes: :meth:`only` and :meth:`other` make another. Lists have an entry for each leaf."""

    backend: Backend | None  #: None if the container has no tensors
    leaves: list[Tensor | None]  #: the gradients, and None in gaps
    params: list[Any]  #: the parameter of a gradient, or None if the caller gave the gradient itself
    container: Container
    present: list[Tensor]  #: the gradients without the gaps
    lane: Lane  #: the lane for them
    dtypes: set[str]  #: theirs; one that they promote to, if the lane knows it

    def other(self, leaves: list[Any], params: list[Any], rebuild: Callable[[list[Any]], Any] | None = None) -> Gradients:
        """A container like this one with other leaves."""
        container = self.container if rebuild is None else replace(self.container, rebuild=rebuild)
        return made(self.backend, leaves, params, container)

    def only(self, places: Sequence[int]) -> Gradients:
        """Some of the gradients, with gaps in the place of the others."""
        if len(places) == len(self.leaves):
            return self
        chosen = set(places)
        leaves = [x if i in chosen else None for i, x in enumerate(self.leaves)]
        params = [x if i in chosen else None for i, x in enumerate(self.params)]
        # a lane for tensors that are alike and distinct is right for some of them too
        return made(self.backend, leaves, params, self.container, self.lane if self.lane.dtype else None)

    def placed(self, new: list[Any]) -> list[Any]:
        """A list with an entry for each leaf, from one for each gradient."""
        if len(new) == len(self.leaves):
            return new
        rest = iter(new)
        return [None if leaf is None else next(rest) for leaf in self.leaves]

    def paths(self) -> list[str]:
        """A name for each leaf, for messages: its place in the container and its parameter's own name."""
        names = [getattr(param, "name", None) for param in self.params]
        named = zip(self.places(), names, strict=True)
        return [" ".join(filter(None, (place, name))) or ANONYMOUS for place, name in named]

    def places(self) -> list[str]:
        """The place of each leaf in the container: ``"['dense'][0]"``."""
        return [] if self.backend is None else [place for place, _ in self.backend.containers.walk(self.container.tree)]

    def unique(self) -> list[int]:
        """The places of the gradients, each gradient and each parameter once."""
        if self.lane.dtype:
            return [i for i, leaf in enumerate(self.leaves) if leaf is not None]
        return [i for i, first in enumerate(self.firsts()) if first == i and self.leaves[i] is not None]

    def firsts(self) -> list[int]:
        """For each place the first place of the same gradient, or of a gradient of the same parameter."""
        if self.backend is None or self.lane.dtype:
            return list(range(len(self.leaves)))
        seen: dict[Hashable, int] = {}
        places = []
        for i, (leaf, param) in enumerate(zip(self.leaves, self.params, strict=True)):
            keys: list[Hashable] = [] if leaf is None else [self.backend.identity(leaf)]
            # other processes may have the gradient of a parameter
            if param is not None and (leaf is None or self.container.names_params):
                keys.append(id(param))
            first = min([i, *map(seen.get, keys, [i] * len(keys))])
            seen.update(dict.fromkeys(keys, first))
            places.append(first)
        return places


_NO_LANE = Lane(None)  #: of a container without tensors


def made(
    backend: Backend | None, leaves: list[Any], params: list[Any], container: Container, lane: Lane | None = None
) -> Gradients:
    """Gradients with the lane that suits them, or with a known one."""
    present = [x for x in leaves if x is not None]
    if backend is None:
        return Gradients(None, leaves, params, container, present, _NO_LANE, set())
    if lane is None and present and not (container.names_params and len(set(map(id, params))) < len(params)):
        lane = backend.lane(present)  # gradients of a parameter that is named twice count once, though they may be two tensors
    if lane is None:
        assert backend.reference is not None
        lane = backend.reference(backend)
    dtypes = {lane.dtype} if lane.dtype else set(map(backend.dtype, present))
    return Gradients(backend, leaves, params, container, present, lane, dtypes)


@untraced
def open_(tree: Any, *, holders: Holders = "declared") -> Gradients:
    """Find the gradients in a tensor, a parameter, or any container of them that their framework uses.

    Args:
        tree: the user's argument; an iterator is consumed, once.
        holders: which tensors stand for the gradient that they hold, if the framework has such: those declared as
            parameters, "all" (torch's functions take any tensor's ``.grad``), or "none".

    Raises:
        TypeError: for anything else, for a type that no backend knows, and for tensors of two frameworks.
    """
    backend, leaves, container = _flat(tree)
    params: list[Any] = [None] * len(leaves)
    if backend is None or holders == "none":
        return made(backend, leaves, params, container)
    is_alike = container.rebuild is type(tree)  # a list or tuple of tensors names no parameters
    named = None if is_alike else backend.containers.params(container.tree)
    if named is not None:
        container = replace(container, names_params=True)
    if backend.holds_gradients:
        if holders == "all" and type(None) in set(map(type, leaves)):
            raise TensorTypeError("None is not a parameter.", "", "leave it out: a parameter without a gradient may stay.")
        leaves, params = backend.containers.gradients(leaves, holders == "all")
    return made(backend, leaves, named or params, container)


def _flat(tree: Any) -> tuple[Backend | None, list[Any], Container]:
    """The backend and the leaves of a container."""
    if type(tree) in (list, tuple) and len(set(map(type, tree))) == 1:  # the usual container, by a quick test
        backend = find(tree[0])
        if backend is not None and not backend.containers.has_gaps(tree):
            return backend, list(tree), Container(tree, type(tree))
    backend = find(tree)
    if backend is not None:
        return backend, [tree], Container(tree, _only)
    was_iterator, tree = isinstance(tree, Iterator), _materialised(tree)
    backend = _first_backend(tree, tree)
    if backend is None:
        return None, [], Container(tree, lambda new: tree, was_iterator)
    leaves, rebuild = backend.containers.flatten(tree)
    _check_leaves(leaves, backend, tree)
    return backend, leaves, Container(tree, rebuild, was_iterator)


def _check_leaves(leaves: list[Any], backend: Backend, tree: Any) -> None:
    """Refuse leaves that are not tensors of this framework. It tests one leaf of each type."""
    for leaf in dict(zip(map(type, leaves), leaves, strict=True)).values():
        if leaf is not None and not backend.is_tensor(leaf):
            raise _not_a_gradient(leaf, backend, tree)


def _only(new: list[Any]) -> Any:
    return new[0]


def _materialised(tree: Any) -> Any:
    """An iterator or a view as a list, or as a dict if it yields names; an object with a mapping's methods as a dict."""
    if tree is None or isinstance(tree, (list, tuple, Mapping, str, bytes)):
        return tree
    if isinstance(tree, Iterable) and (error := refusal(tree)) is not None:  # a framework's data set
        raise error
    if isinstance(tree, Iterator):
        listed = list(tree)
        return _by_name(listed) if listed and type(listed[0]) is tuple else listed
    if not isinstance(tree, Iterable) or has_no_length(type(tree)):
        return tree
    items = getattr(tree, "items", None)
    if callable(getattr(tree, "keys", None)) and callable(items):  # torch.nn.ParameterDict
        return dict(items())
    if any(known.containers.is_container(tree) or known.containers.is_gap(tree) for known in loaded()):
        return tree
    return _by_name(list(tree))  # the items of a dict


def _by_name(listed: list[Any]) -> Any:
    """Pairs of a name and a tensor as a dict, as ``model.named_parameters()`` and ``grads.items()`` yield them; or the list."""
    if not listed or not all(type(x) is tuple and len(x) == 2 and isinstance(x[0], str) for x in listed):
        return listed
    named = dict(listed)
    if len(named) < len(listed):
        twice = Counter(name for name, _ in listed).most_common(1)[0][0]
        hint = "give each a name of its own, or pass the gradients without names."
        raise TensorTypeError("Two gradients have one name.", f"name={twice!r}", hint)
    return named


def _first_backend(tree: Any, given: Any, depth: int = 0) -> Backend | None:
    """The backend of the first tensor in ``tree``, which is the given container or a part of it."""
    if depth > DEEPEST:
        raise nested_too_deep(given)
    if tree is None:
        return None
    backend = find(tree)
    if backend is not None:
        return backend
    if isinstance(tree, (list, tuple, Mapping)):
        if hasattr(tree, "_fields") and (error := refusal(tree)) is not None:  # a framework's named tuple
            raise error
        children = tree.values() if isinstance(tree, Mapping) else tree
        for child in children:
            found = _first_backend(child, given, depth + 1)
            if found is not None:
                return found
        return None
    backend = next((known for known in loaded() if known.containers.is_container(tree)), None)
    if backend is None and any(known.containers.is_gap(tree) for known in loaded()):
        return None
    if backend is None:
        raise _not_a_gradient(tree, None, given)
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
        return TensorTypeError(f"{backend.name} does not take this as a container.", kind, "pass a dict of it.")
    error = refusal(x) or advice(x, tree)
    if error is not None:
        return error
    names = ", ".join(sorted({module for module, here in installed().items() if here} - {"jaxlib", "ml_dtypes"}))
    return TensorTypeError(
        f"No backend knows tensors of type {kind}.",
        f"{kind}; installed backends: {names or 'none'}",
        "gradclip.register(module, backend) adds one, as does an entry point of the group 'gradclip.backends'.",
    )


def refusal(x: object) -> TensorTypeError | None:
    """The error for an object of a framework that is no tensor here, if its framework says why; else None."""
    own = of_type(type(x))
    return symbolic(x) if own is None else own.refused(x) or symbolic(x)


def parameters(grads: Gradients, name: str, params: Any) -> list[Any]:
    """The parameter of each gradient, for the rule of this name: at the same path in ``params``, or the gradient's own."""
    if params is None:
        if all(param is not None or x is None for x, param in zip(grads.leaves, grads.params, strict=True)):
            return grads.params
        hint = "pass params=, in a container of the same structure as the gradients."
        raise ArgumentTypeError(f"{name} needs the parameters.", "params=None", hint)
    backend, leaves, container = _flat(params)
    if backend is None or backend is not grads.backend:
        received = "params without a tensor" if backend is None else f"tensors of {backend.name}"
        raise ArgumentTypeError("A parameter must be a tensor of its gradient's framework.", received)
    wanted, found = grads.places(), [place for place, _ in backend.containers.walk(container.tree)]
    if wanted == found:
        return leaves
    if len(wanted) != len(found) or set(wanted) != set(found):
        differing = sorted(set(wanted) ^ set(found)) or [f"{len(wanted)} gradients and {len(found)} parameters"]
        hint = "pass params= in a container of the same structure as the gradients."
        raise ArgumentError("There must be one parameter for each gradient.", ", ".join(differing), hint)
    by_place = dict(zip(found, leaves, strict=True))
    return [by_place[place] for place in wanted]
