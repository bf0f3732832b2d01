"""``shards=``: which processes hold other shards of gradients whose type does not say so."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradclip.core.backend import Backend
from gradclip.core.errors import ArgumentError, ArgumentTypeError, page, shown
from gradclip.core.gradients import Gradients
from gradclip.core.parts import Both, Parts, Processes
from gradclip.core.registry import of_type
from gradclip.core.selections import names_of, selected_by

__all__ = ["Told", "check_shards", "joined", "told"]

Told = list[tuple[Processes, list[int]]]  #: each group of processes, and the places of the gradients of which they have shards

_HINT = 'a dict such as {"*.experts.*": group}, or a function of name and parameter that returns a group or None.'
_SECTION = "distributed.md#experts-and-other-plain-shards"

_GROUPS = "A group is a torch ProcessGroup or DeviceMesh, a paddle.distributed group or ProcessMesh, or the name of an axis of "
_GROUPS += "the JAX shard_map, pmap or vmap around the call."


def told(grads: Gradients, shards: Any) -> tuple[Backend | None, Told]:
    """The processes that hold other shards of each gradient, as the caller tells.

    A mapping names its groups also where nothing is selected: a process without such gradients takes part with nothing.

    Raises:
        TypeError: for anything but a mapping or a function, and for a group that is none of the framework's.
        ValueError: for a gradient that two entries select, and for a group without this process.
    """
    check_shards(shards)
    if isinstance(shards, Mapping):
        entries = [(group, selected_by(grads, selection, "shards")) for selection, group in shards.items()]
    else:
        entries = _asked(grads, shards)
    _check_distinct(grads, [places for _, places in entries])
    backend, found = grads.backend, []
    for given, places in entries:
        if given is not None and (backend := backend or of_type(type(given))) is not None:
            group = _group(backend, given, is_needed=bool(places))
            found += [] if group is None else [(group, places)]
    return backend, found


def check_shards(shards: Any) -> None:
    """Refuse anything but a mapping or a function.

    Its groups are not looked at: an entry without a gradient of this process may have any, as torch's ``new_group`` returns a
    number on a process outside of it.
    """
    if not isinstance(shards, Mapping) and (isinstance(shards, type) or not callable(shards)):
        what = "shards must tell the processes of some gradients."
        raise ArgumentTypeError(what, f"shards={shown(shards)}", f"{_HINT} {_see()}")


def _asked(grads: Gradients, shards: Callable[[str, Any], Any]) -> list[tuple[Any, list[int]]]:
    """Each group that a function returns, with its gradients. It is not called without a gradient and a parameter."""
    by_group: dict[int, tuple[Any, list[int]]] = {}
    for i, (name, x, param) in enumerate(zip(names_of(grads), grads.leaves, grads.params, strict=True)):
        tensor = x if param is None else param
        group = None if tensor is None else shards(name, tensor)
        if group is not None:
            key = hash(group) if isinstance(group, (str, tuple)) else id(group)
            by_group.setdefault(key, (group, []))[1].append(i)
    return list(by_group.values())


def _group(backend: Backend, given: Any, *, is_needed: bool) -> Processes | None:
    try:
        group = backend.distributed.group(given, "shards")
    except ArgumentError:
        if is_needed:
            raise
        return None  # the gradients of a group without this process are not here either
    if group is None and is_needed:
        hint = f"{_HINT} {_GROUPS} {_see()}"
        raise ArgumentTypeError("shards must name groups of processes.", f"a group of {shown(given)}", hint)
    return group


def _see() -> str:
    return f"See {page(_SECTION)}"


def _check_distinct(grads: Gradients, entries: Sequence[Sequence[int]]) -> None:
    seen: set[int] = set()
    for places in entries:
        both = sorted(seen.intersection(places))
        if both:
            what = "Two entries of shards= select one gradient."
            hint = f"give the mesh of all processes that share it, in one entry. {_see()}"
            raise ArgumentError(what, f"{names_of(grads)[both[0]]!r} in two entries", hint)
        seen.update(places)


# ---- with the shards that types show ---------------------------------------------------------------------------------------


def joined(grads: Gradients, parts: Parts | None, given: Told) -> Parts:
    """The shards that types show and those that the caller tells. A gradient may be both: its processes are those of both."""
    leaves = grads.leaves
    if parts is None:
        parts = Parts(list(leaves), [], [], lambda: list(leaves), frozenset(), lambda i, new: new)
    pairs = list(zip(parts.groups, parts.places, strict=True))
    base = {i: group for group, places in pairs for i in places}
    found: dict[Hashable, tuple[Processes, list[int]]] = {}

    def add(group: Processes, places: Sequence[int]) -> None:
        found.setdefault(group.key, (group, []))[1].extend(places)

    moved: dict[int, Processes] = {}  # the group of each gradient that is told
    for group, places in given:
        for i in places:
            if not _is_known(grads, parts, base.get(i), group, i):
                moved[i] = Both(base[i], group) if i in base else group
    for group, of_group in pairs:
        rest = [i for i in of_group if i not in moved]
        if rest:
            add(group, rest)
    for group, places in given:
        own = group.parts(leaves)  # a framework may know more: that a gradient does not differ along an axis
        if own is not None:
            for one, of_one in zip(own.groups, own.places, strict=True):
                add(one, [i for i in of_one if i in places])
        elif not places:
            add(group, [])
        else:
            for i in places:
                if i in moved:
                    add(moved[i], [i])
    return replace(
        parts,
        groups=[group for group, _ in found.values()],
        places=[sorted(places) for _, places in found.values()],
        ranks=parts.ranks.union(*(group.ranks for group, _ in given)),
        told=frozenset(moved),
    )


def _is_known(grads: Gradients, parts: Parts, base: Processes | None, group: Processes, i: int) -> bool:
    """Whether the gradient's type already shows these shards; an error if it shows replicas there."""
    named = frozenset() if parts.named is None else parts.named(i)
    if len(named & group.ranks) < 2:
        return False
    if base is not None and group.ranks <= base.ranks:
        return True
    what = "The type of a gradient shows its shards and replicas on these processes, and shards= tells something else."
    received = f"{names_of(grads)[i]!r} on ranks {sorted(named)}, shards= over ranks {sorted(group.ranks)}"
    hint = f"leave it out of shards=, or give the group of the processes that its type leaves out. {_see()}"
    raise ArgumentError(what, received, hint)
