"""Groups: which gradients count in a rule's norm, and which gradients it scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradclip.core.errors import ArgumentError, ArgumentTypeError
from gradclip.core.gradients import Gradients
from gradclip.core.mistakes import not_a_rule
from gradclip.core.rule import EXAMPLE, GLOBAL, Rule, follows_run
from gradclip.core.selections import Lookup, Selection, check_selection, frozen, missing_match

__all__ = [
    "NO_RULE",
    "Clip",
    "Group",
    "Rules",
    "Selected",
    "Shards",
    "check_groups",
    "exchanged",
    "following",
    "select",
]


#: which processes hold other shards of the selected gradients; or a function of name and tensor that returns them, or None
Shards = Mapping[Selection, Any] | Callable[[str, Any], Any] | None

#: the default of every argument for a rule: a call without one gets an error with the line to write, and not Python's own
NO_RULE: Any = None


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
    - a parameter, which selects the gradient that it holds, or a gradient itself;
    - a parameter group of an optimizer of PyTorch or Paddle: ``muon.param_groups[0]``;
    - a list or tuple of selections: it selects what any of them selects, so ``list(model.encoder.parameters())`` is one.

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
            would scale, for an ``Adaptive`` of two groups, and for a pattern without a match. For gradients that are sharded
            over processes such a pattern is a :class:`gradclip.core.errors.GradclipWarning`, because another process may have
            the match; with ``reduce=`` it is allowed.

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

    rule: Rule = NO_RULE
    scaled: Selection = None
    counted: Selection = None

    def __post_init__(self) -> None:
        check_rule(self.rule)
        check_selection("scaled", self.scaled)
        check_selection("counted", self.counted)
        object.__setattr__(self, "scaled", frozen(self.scaled))
        object.__setattr__(self, "counted", frozen(self.counted))
        if self.counted is not None and self.rule.scope is not GLOBAL:
            what = "counted= is only for a rule with one norm over all gradients."
            raise ArgumentError(what, f"rule={self.rule}, counted={self.counted!r}", "leave counted= out.")


Rules = Rule | Group | Sequence[Group]  #: a clip: one rule for all gradients, a group, or several groups


def check_rule(rule: object, *, keeps_shape: bool = False) -> None:
    """Refuse an object that is not a rule, and for gradients that must keep their shape a rule that changes it."""
    if not isinstance(rule, Rule):
        raise not_a_rule(rule)
    if keeps_shape and rule.scope is EXAMPLE:
        what = "A rule that sums over examples changes the shape of a gradient."
        hint = "gradclip.clip(per_example_gradients, rule) returns new ones, for the optimizer to step with."
        raise ArgumentError(what, f"rule={rule}", hint)


def check_groups(given: object, *, keeps_shape: bool = False) -> tuple[Group, ...]:
    """A rule, a group or several, as groups; raises for anything else, as :func:`check_rule` does."""
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
    _check_limits(groups)
    return groups


def _check_limits(groups: Sequence[Group]) -> None:
    """Refuse a limit that would follow the norms of two groups."""
    seen: list[tuple[int, Any]] = []
    for k, group in enumerate(groups):
        own = [x for x in (group.rule.limit, group.rule.skip_above) if follows_run(x)]
        for i, x in seen:
            if any(x is y for y in own):
                what, hint = "A limit that follows the run is for one group.", "make one for each group: adaptive.copy()."
                raise ArgumentError(what, f"{x} in groups {i} and {k}", hint)
        seen += [(k, x) for x in own]


def following(rules: Iterable[Rule]) -> dict[int, Any]:
    """The limits of these rules that follow the run, by their ids: each once."""
    limits = (x for rule in rules for x in (rule.limit, rule.skip_above))
    return {id(x): x for x in limits if follows_run(x)}


def exchanged(rules: Any, limits: Mapping[int, Any], **others: Any) -> Any:
    """A rule or groups with some limits replaced, by the ids of the old ones, and with other fields."""
    if isinstance(rules, (list, tuple)):
        return [exchanged(group, limits, **others) for group in rules]
    if isinstance(rules, Group):
        return replace(rules, rule=exchanged(rules.rule, limits, **others))
    limit, above = (limits.get(id(x), x) for x in (rules.limit, rules.skip_above))
    return replace(rules, **{"limit": limit, "skip_above": above, **others})


# ---- which gradients -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Selected:
    """A rule of a call, with its gradients by their places in the container."""

    rule: Rule
    scaled: Sequence[int]  #: no place is in two such lists of a call
    counted: Sequence[int]


@dataclass(slots=True)
class Clip(Selected):
    """A rule with the gradients that it scales."""

    grads: Gradients  #: with gaps in the place of the others


def select(grads: Gradients, rules: Rules, *, keeps_shape: bool = False) -> tuple[list[Selected], ArgumentError | None]:
    """What each rule scales and counts; one matching name selects a gradient that is listed twice.

    Returns:
        The rules, and the error for a pattern that matches no name: another process may have the match.

    Raises:
        ValueError: for a gradient that two groups would scale.
    """
    if isinstance(rules, Rule):
        check_rule(rules, keeps_shape=keeps_shape)
        every = range(len(grads.leaves))
        return [Selected(rules, every, every)], None
    groups, found = check_groups(rules, keeps_shape=keeps_shape), Lookup(grads)
    of_each = [None if group.scaled is None else found.places(group.scaled) for group in groups]
    taken = set().union(*(places for places in of_each if places is not None))
    rest = [i for i in range(len(grads.leaves)) if i not in taken]
    scaled = [rest if places is None else places for places in of_each]
    counted = [places if g.counted is None else found.places(g.counted) for g, places in zip(groups, scaled, strict=True)]
    if sum(map(len, scaled)) > len(set().union(*scaled)):
        raise _in_two_groups(scaled, found.names())
    selected = [Selected(group.rule, *places) for group, *places in zip(groups, scaled, counted, strict=True)]
    return selected, missing_match(found.unmatched[0], found.names()) if found.unmatched and grads.leaves else None


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
