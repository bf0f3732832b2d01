"""Groups: which gradients count in a rule's norm, and which gradients it scales."""

from __future__ import annotations

import ast
import difflib
import fnmatch
import functools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.gradients import Gradients
from gradclip.mistakes import check_rule, not_a_rule
from gradclip.rule import Rule, Scope
from gradclip.tracing import constant

__all__ = ["Chosen", "Group", "Rules", "check_groups", "choose", "missing", "names_of"]

Selection = str | re.Pattern[str] | Callable[[str, Any], Any] | Sequence[Any] | None

_KEY = re.compile(r"""\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]""")  # the keys in a place: "['dense'][0]"


@dataclass(frozen=True, slots=True)
class Group:
    """A rule for some of the gradients: ``gradclip.clip(grads, [Group(rule, "encoder.*"), Group(other, "decoder.*")])``.

    A call measures all its groups in one pass over memory, and over several processes in one collective. It writes nothing
    before it has measured all groups.

    A *selection* says which gradients:

    - a string: a pattern for the name, in which ``*`` stands for any text, as in :func:`fnmatch.fnmatchcase`;
    - an ``re.Pattern``, which must match the whole name;
    - a function of the name and the parameter, or the gradient if it has no parameter. It is not called if both are
      missing;
    - a list or tuple of selections: it selects what any of them selects.

    The name joins the keys, attributes and indices of a gradient in its container by dots:
    ``"encoder.weight"`` in ``dict(model.named_parameters())``, ``"dense.kernel"`` in ``{"dense": {"kernel": ...}}``, ``"0"`` in
    a list. In Paddle's ``(parameter, gradient)`` pairs it is the parameter's own name, and only that; in a dict or list of
    Paddle's parameters a pattern may match their own names too.

    In the result the norm and the coefficient of a group have the form of its rule's. For a rule with a norm for each gradient
    they are lists with an entry for every gradient of the container, and None for the gradients that the group does not
    scale.

    Args:
        rule: from a dialect.
        scaled: a selection of the gradients to clip; None for all that no other group of the call scales. A gradient
            that no group scales stays as it is.
        counted: for a rule with one norm over all gradients: a selection of the gradients that count in it; None for
            the scaled ones. Groups may count the same gradients.

    Raises:
        TypeError: for an object that is not a rule, or not a selection.
        ValueError: for ``counted`` with a rule without one norm over all gradients. In a clip: for a gradient that two groups
            would scale, and for a pattern without a match. For gradients that are sharded over processes such a pattern is a
            :class:`gradclip.errors.GradclipWarning`, because another process may have the match; with ``reduce=`` it is
            allowed.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> grads = {"embedding": np.array([3.0, 4.0]), "head": np.array([12.0])}
        >>> head = gradclip.Group(torch.clip_grad_norm(max_norm=1.3), "head", counted="*")
        >>> result = gradclip.clip(grads, head)
        >>> result.grads["embedding"], result.grads["head"].round(3), float(result.norm)
        (array([3., 4.]), array([1.2]), 13.0)
        >>> rest = gradclip.Group(torch.clip_grad_norm(max_norm=0.5))
        >>> gradclip.clip(grads, [head, rest]).norm
        [np.float64(13.0), np.float64(5.0)]
    """

    rule: Rule
    scaled: Selection = None
    counted: Selection = None

    def __post_init__(self) -> None:
        check_rule(self.rule)
        _check_selection("scaled", self.scaled)
        _check_selection("counted", self.counted)
        object.__setattr__(self, "scaled", _frozen(self.scaled))
        object.__setattr__(self, "counted", _frozen(self.counted))
        if self.counted is not None and self.rule.scope is not Scope.GLOBAL:
            what = "counted= is only for a rule with one norm over all gradients."
            raise ArgumentError(what, f"rule={self.rule}, counted={self.counted!r}", "leave counted= out.")


Rules = Rule | Group | Sequence[Group]  #: a clip: one rule for all gradients, a group, or several groups


def _check_selection(name: str, given: Any) -> None:
    if isinstance(given, (list, tuple)):
        for part in given:
            if part is None:
                raise ArgumentTypeError("None is no part of a selection.", f"{name}={shown(given)}", "leave it out.")
            _check_selection(name, part)
    elif not (given is None or _is_selection(given)):
        hint = "a pattern for names, an re.compile(...), a function of name and tensor, or a list of these."
        raise ArgumentTypeError(f"{name} must select gradients.", f"{name}={shown(given)}", hint)


def _is_selection(given: Any) -> bool:
    if isinstance(given, re.Pattern):
        return isinstance(given.pattern, str)
    return isinstance(given, str) or (callable(given) and not isinstance(given, type))


def _frozen(selection: Any) -> Any:
    """The selection with tuples for lists: a static argument of ``jax.jit`` must be hashable."""
    return tuple(map(_frozen, selection)) if isinstance(selection, (list, tuple)) else selection


def check_groups(given: object, *, keeps_shape: bool = False) -> tuple[Group, ...]:
    """A rule, a group or several, as groups; raises for anything else, as :func:`gradclip.mistakes.check_rule` does."""
    if isinstance(given, Rule):
        check_rule(given, keeps_shape=keeps_shape)
        return (Group(given),)
    # a named tuple is not a list: optax's transformations are named tuples
    groups = tuple(given) if isinstance(given, (list, tuple)) and not hasattr(given, "_fields") else (given,)
    for group in groups:
        if isinstance(group, Rule):
            hint = "gradclip.Group(rule, 'encoder.*') says which gradients it is for."
            raise ArgumentTypeError("Several rules in one call need groups.", f"rule={group}", hint)
        if not isinstance(group, Group):
            raise not_a_rule(group, "rule must be a gradclip.Rule, a gradclip.Group or a list of groups.")
        check_rule(group.rule, keeps_shape=keeps_shape)
    if not groups:
        raise ArgumentError("There must be a group.", f"rule={given!r}", "gradclip.Group(rule) is one of all gradients.")
    return groups


# ---- which gradients -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chosen:
    """The gradients of several groups, by their places in the container."""

    scaled: list[list[int]]  #: for each group; no place is in two of these lists
    counted: list[list[int]]
    unmatched: list[str]  #: patterns that match no name
    names: list[str]  #: names of all gradients; empty if no selection needs them


def choose(opened: Gradients, groups: Sequence[Group]) -> Chosen:
    """What each group scales and counts; one matching name selects a gradient that is listed twice.

    Raises:
        ValueError: for a gradient that two groups would scale.
    """
    found = _Found(opened)
    of_each = [None if group.scaled is None else found.places(group.scaled) for group in groups]
    taken = set().union(*(places for places in of_each if places is not None))
    rest = [i for i in range(len(opened.leaves)) if i not in taken]
    scaled = [rest if places is None else places for places in of_each]
    counted = [places if g.counted is None else found.places(g.counted) for g, places in zip(groups, scaled, strict=True)]
    if sum(map(len, scaled)) > len(set().union(*scaled)):
        raise _in_two_groups(scaled, found.names())
    return Chosen(scaled, counted, list(dict.fromkeys(found.unmatched)), found.names() if found.unmatched else [])


def names_of(opened: Gradients) -> list[str]:
    """The name of each leaf, for the patterns of groups."""
    return _Found(opened).names()


def missing(chosen: Chosen) -> ArgumentError:
    """The error for a pattern that matches no name."""
    pattern, names = chosen.unmatched[0], chosen.names
    close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4)
    among = ", ".join(map(repr, close or names[:3])) + (", ..." if len(names) > 3 else ".")
    hint = f"there {'is 1 name' if len(names) == 1 else f'are {len(names)} names'}: {among}"
    if not names:
        hint = "there are no gradients."
    elif pattern in names:
        hint = "[ begins a set of characters in a pattern; write [[] for the character itself."
    elif all(name.isdecimal() for name in names):
        hint = f"these have numbers, '0' to '{len(names) - 1}', for names; pass a dict: dict(model.named_parameters())."
    return ArgumentError("A pattern matches the name of no gradient.", f"pattern={pattern!r}", hint)


class _Found:
    """Looks up selections in one container; it makes the names when a selection first needs them."""

    def __init__(self, opened: Gradients) -> None:
        self.opened = opened
        self.unmatched: list[str] = []
        self._firsts: list[int] | None = None
        self._names: list[str] | None = None
        self._own: list[str] = []  # the parameters' own names, if they differ

    def names(self) -> list[str]:
        if self._names is None:
            names, owners = _joined(self.opened.places()), self.opened.owners
            own = list(map(_own_name, owners)) if any(owner is not None for owner in owners) else [""] * len(names)
            if self.opened.is_named:
                self._names = [mine or name for mine, name in zip(own, names, strict=True)]
            else:
                self._names, self._own = names, own if any(own) else []
        return self._names

    def places(self, selection: Any) -> list[int]:
        """The places that a selection selects, with every other place of the same gradients."""
        if self._firsts is None:
            self._firsts = self.opened.firsts()
        firsts = self._firsts
        chosen = {firsts[i] for i in self._selected(selection)}
        return [i for i, first in enumerate(firsts) if first in chosen]

    def _selected(self, selection: Any) -> Collection[int]:
        if isinstance(selection, (list, tuple)):
            return {i for part in selection for i in self._selected(part)}
        names = self.names()
        if not isinstance(selection, (str, re.Pattern)):
            given = enumerate(zip(self.opened.leaves, self.opened.owners, strict=True))
            tensors = {i: x if owner is None else owner for i, (x, owner) in given}
            return [i for i, x in tensors.items() if x is not None and selection(names[i], x)]
        text, flags = (selection, None) if isinstance(selection, str) else (selection.pattern, selection.flags)
        found = _matching(text, flags, names)
        if self._own:
            found += [i for i in _matching(text, flags, self._own) if self._own[i]]
        if not found:
            self.unmatched.append(text)
        return found


@constant
def _matching(pattern: str, flags: int | None, names: Sequence[str]) -> list[int]:
    """The places of the names that match a regular expression, or without ``flags`` a pattern with asterisks."""
    return list(_matches(pattern, flags, tuple(names)))


@functools.lru_cache(256)
def _matches(pattern: str, flags: int | None, names: tuple[str, ...]) -> tuple[int, ...]:
    matches = (re.compile(fnmatch.translate(pattern)) if flags is None else re.compile(pattern, flags)).fullmatch
    return tuple(i for i, name in enumerate(names) if matches(name))


@constant
def _joined(places: Sequence[str]) -> list[str]:
    """The keys, attributes and indices of each leaf, joined by dots."""
    return list(_dotted_names(tuple(places)))


@functools.lru_cache(16)  # they are the same in every step
def _dotted_names(places: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_KEY.sub(_dotted, place).removeprefix(".") for place in places)


def _dotted(key: re.Match[str]) -> str:
    text = key[1]
    return "." + (str(ast.literal_eval(text)) if text[:1] in ("'", '"') else text)


def _own_name(owner: Any) -> str:
    """A parameter's own name."""
    name = getattr(owner, "name", None)
    return name if isinstance(name, str) else ""


def _in_two_groups(scaled: list[list[int]], names: list[str]) -> ArgumentError:
    """The error for a gradient that two groups would scale."""
    whose: dict[int, list[int]] = {}
    for k, places in enumerate(scaled):
        for i in places:
            whose.setdefault(i, []).append(k)
    place, (one, other, *_) = next((i, groups) for i, groups in whose.items() if len(groups) > 1)
    hint = "leave it out of one of them; what groups count (counted=) may overlap."
    received = f"{names[place] or 'the gradient'!r} in groups {one} and {other}"
    return ArgumentError("A gradient is scaled by one group only.", received, hint)
