"""A clip with its state, as two pure functions: eager, traced and compiled."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from gradclip.core.backend import Backend, Tensor
from gradclip.core.clip import EachRules, clip_opened
from gradclip.core.engine import Options
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.gradients import Gradients, open_
from gradclip.core.groups import NO_RULE, Rules, Shards, check_groups, exchanged, following
from gradclip.core.registry import find
from gradclip.core.result import ClipResult
from gradclip.core.rule import Rule
from gradclip.core.sharding import check_reduce, check_shards
from gradclip.core.tracing import untraced
from gradclip.core.typed import GradsT, JaxT, NumpyT, PaddleT, TensorflowT, TorchT, UnclearT
from gradclip.limits import Adaptive, numbers, tensors
from gradclip.limits.saved import check_count, loaded
from gradclip.limits.stored import Stored
from gradclip.steps.monitor import Monitor
from gradclip.steps.monitor.pure import observed_before
from gradclip.steps.monitor.pure_state import init, loaded_state
from gradclip.steps.monitor.values import leaves

if TYPE_CHECKING:
    import typing_extensions

    from gradclip.core.returned import Unclear
    from gradclip.core.typed import JaxNorm, NumpyNorm, PaddleNorm, TensorflowNorm, TorchNorm

    R = typing_extensions.TypeVar("R", bound=Rules, covariant=True, default=Any)
else:
    R = TypeVar("R")
State: TypeAlias = Mapping[str, Any]

__all__ = ["Step", "counted", "plain_state"]

VERSION = 1
_COUNTS = ("skipped", "in_a_row")
MOST = (1 << 31) - 1  #: of a count, an int32


class Step(Generic[R]):
    """A clip with its state: ``init`` makes the state, ``update`` clips and returns the next one. Both are pure.

    The state is a pytree of tensors of fixed size, on the device of the gradients: of the limits that follow the run, of the
    monitor, and the number of skipped steps, in all and in a row. It goes through ``jax.jit``, ``scan``, ``tf.function`` and
    ``torch.compile`` as any other argument. :meth:`state_dict` makes plain numbers of it, with which any framework goes on.

    Args:
        rule: of any dialect, or groups with such rules. An :class:`gradclip.Adaptive` in it gives the limit and the state
            that the first step begins with; it does not change.
        monitor: a :class:`gradclip.Monitor`: the state counts what it would. ``monitor.merge(state["monitor"])`` reads it.
        reduce, shards: as for :func:`gradclip.clip`.

    Raises:
        TypeError: for an object that is not a rule, or not a monitor; for a ``reduce`` or ``shards`` that no clip takes.
        ValueError: for a limit that follows the norm of each gradient in a rule with one norm over all, and the reverse.

    Example:
        >>> import dataclasses, gradclip, numpy as np
        >>> from gradclip import limits
        >>> from gradclip.dialects import torch
        >>> spikes = gradclip.Adaptive(limits.spike(4.0, warmup=3))
        >>> step = gradclip.Step(dataclasses.replace(torch.clip_grad_norm(max_norm=1.5), skip_above=spikes))
        >>> state = step.init(np.zeros(1))
        >>> for n in (1.0, 2.0, 1.0, 50.0, 2.0): result, state = step.update(np.array([n]), state)
        >>> int(state["skips"]["skipped"]), result.grads.round(3)
        (1, array([1.5]))
    """

    def __init__(self, rule: R = NO_RULE, monitor: Monitor | None = None, *, reduce: Any = None, shards: Shards = None) -> None:
        self.groups = check_groups(rule)
        given: object = monitor
        if not (given is None or isinstance(given, Monitor)):
            hint = "monitor=gradclip.Monitor(); only optax's link takes monitor=True."
            raise ArgumentTypeError("monitor must be a gradclip.Monitor.", f"monitor={shown(given)}", hint)
        check_reduce(reduce)
        if shards is not None:
            check_shards(shards)
        self.rule, self.monitor, self.reduce, self.shards = rule, monitor, reduce, shards
        for each in (group.rule for group in self.groups):
            for limit in following([each]).values():
                limit.check_scope(each)
        self.adaptives: list[Adaptive] = list(following(group.rule for group in self.groups).values())
        self.skips = any(group.rule.skips for group in self.groups)  #: whether a norm can skip a step
        self.has_state = bool(self.adaptives or self.skips or monitor is not None)  #: whether a step depends on earlier ones
        #: whether a clip needs the names of the gradients
        self.needs_names = not isinstance(rule, Rule) or shards is not None or rule.error_if_nonfinite
        self.needs_names |= monitor is not None and monitor.each is not None

    def __deepcopy__(self, memo: dict[int, Any]) -> Step:
        memo.update({id(x): x for x in (self.reduce, self.shards)})  # a group of processes has no copy
        made = copy.copy(self)
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made

    @untraced
    def init(self, like: Any) -> dict[str, Any]:
        """The state before the first step.

        Args:
            like: the gradients, or the parameters, in the container of the gradients.

        Raises:
            TypeError, ValueError: for a container without a tensor.
        """
        opened, like = _like(like)
        plain = {
            "limits": [numbers(limit.state) for limit in self.adaptives],
            "skips": dict.fromkeys(_COUNTS, 0),
        }
        state = self._placed(plain, like, len(opened.leaves))
        if self.monitor is not None:
            state["monitor"] = init(like, self._groups, opened, self.monitor.each)
        return state

    @overload
    def update(
        self: Step[EachRules], grads: TorchT, state: State, params: object = ...
    ) -> tuple[ClipResult[TorchT, Any], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[EachRules], grads: GradsT, state: State, params: object = ...
    ) -> tuple[Unclear[GradsT], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[Rule], grads: UnclearT, state: State, params: object = ...
    ) -> tuple[Unclear[UnclearT], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[Rule], grads: PaddleT, state: State, params: object = ...
    ) -> tuple[ClipResult[PaddleT, PaddleNorm], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[Rule], grads: NumpyT, state: State, params: object = ...
    ) -> tuple[ClipResult[NumpyT, NumpyNorm], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[Rule], grads: TorchT, state: State, params: object = ...
    ) -> tuple[ClipResult[TorchT, TorchNorm], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[Rule], grads: JaxT, state: State, params: object = ...
    ) -> tuple[ClipResult[JaxT, JaxNorm], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[Rule], grads: TensorflowT, state: State, params: object = ...
    ) -> tuple[ClipResult[TensorflowT, TensorflowNorm], dict[str, Any]]: ...
    @overload
    def update(
        self: Step[Rules], grads: GradsT, state: State, params: object = ...
    ) -> tuple[Unclear[GradsT], dict[str, Any]]: ...
    @untraced
    def update(self, grads: Any, state: State, params: Any = None) -> tuple[ClipResult[Any, Any], dict[str, Any]]:
        """Clip the gradients into new ones.

        Args:
            grads: as for :func:`gradclip.clip`.
            state: from :meth:`init`, this function or :meth:`load_state_dict`. One of numbers, or of another framework's
                tensors, is moved to that of the gradients.
            params: as for :func:`gradclip.clip`.

        Returns:
            The result of :func:`gradclip.clip`, and the state for the next step: of the same structure, shapes and dtypes.
        """
        opened = open_(grads)
        self._check(state)
        state = self._moved(state, opened)
        rule, limits = self._at(state)
        result = clip_opened(opened, rule, Options(params=params, reduce=self.reduce, shards=self.shards))
        return result, self.after(state, limits, result, before=opened)

    def _moved(self, state: Mapping[str, Any], opened: Gradients) -> Mapping[str, Any]:
        """The state in the framework of the gradients: some checkpoints restore it as arrays of NumPy, or as numbers."""
        if opened.backend is None:
            return state
        tensors = leaves([state[name] for name in self._names])
        if any((own := find(x)) is opened.backend or not (own is None or own.can_read(x)) for x in tensors):
            return state
        return self.load_state_dict(self.state_dict(state), opened.container.tree)

    def at(self, state: Mapping[str, Any]) -> tuple[Rules, list[Adaptive]]:
        """For a slot with its own clip: the rule with its limits in this state, and these limits.

        Raises:
            ValueError: for a state of other rules, as in a checkpoint from before a change.
        """
        self._check(state)
        return self._at(state)

    def _at(self, state: Mapping[str, Any]) -> tuple[Rules, list[Adaptive]]:
        limits = [limit.at(seen) for limit, seen in zip(self.adaptives, state["limits"], strict=True)]
        return exchanged(self.rule, dict(zip(map(id, self.adaptives), limits, strict=True))) if limits else self.rule, limits

    def _check(self, state: object) -> None:
        """Refuse anything but a state of this step."""
        if not self._fits(state):
            received = f"entries {', '.join(map(str, state))}" if isinstance(state, Mapping) else shown(state)
            hint = "step.init(grads) makes a state, and step.load_state_dict(saved, grads) makes one of saved numbers."
            raise ArgumentError("This is not a state of this step, or it is one for other rules.", received, hint)

    def _fits(self, state: Any) -> bool:
        """Whether this has the entries of a state of this step."""
        if not isinstance(state, Mapping) or any(name not in state for name in self._names):
            return False
        limits, maps = state["limits"], [state[name] for name in self._names[1:]]
        if not isinstance(limits, (list, tuple)) or any(not isinstance(x, Mapping) for x in (*limits, *maps)):
            return False
        if any(name not in state["skips"] for name in _COUNTS) or len(limits) != len(self.adaptives):
            return False
        return all(set(seen) == set(limit.state) for limit, seen in zip(self.adaptives, limits, strict=True))

    def after(
        self,
        state: Mapping[str, Any],
        limits: list[Adaptive],
        result: Any,
        grads: Any = None,
        before: Gradients | None = None,
    ) -> dict[str, Any]:
        """For a slot with its own clip: the state for the next step; the ``limits`` of :meth:`at` have moved."""
        skips = counted(state["skips"], result.skip) if self.skips else state["skips"]
        after = {"limits": [limit.state for limit in limits], "skips": skips}
        if self.monitor is not None:
            after["monitor"] = observed_before(state["monitor"], result, grads, before)
        return after

    def state_dict(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state as numbers, lists and dicts, with a version: for a file, and for another framework. It reads the tensors.

        Raises:
            ValueError: for a state of other rules.
        """
        self._check(state)
        return {"version": VERSION, **{name: _plain(state[name]) for name in self._names}}

    def load_state_dict(self, saved: Mapping[str, Any], like: Any) -> dict[str, Any]:
        """The state that :meth:`state_dict` made numbers of, as tensors of the framework of ``like``.

        Args:
            saved: from :meth:`state_dict`, of this step or of one with the same rules on another framework.
            like: as for :meth:`init`.

        Raises:
            ValueError: for a state of another version or of other rules, and for an entry that is missing or wrong.
        """
        plain = plain_state(self, saved, self._names[2:])
        opened, like = _like(like)
        state = self._placed(plain, like, len(opened.leaves))
        if self.monitor is not None:
            blank = init(like, self._groups, opened, self.monitor.each)
            state["monitor"] = loaded_state(_stored(saved)["monitor"], blank, self._groups, like)
        return state

    @property
    def _names(self) -> tuple[str, ...]:
        return ("limits", "skips", "monitor") if self.monitor is not None else ("limits", "skips")

    @property
    def _groups(self) -> int | None:
        return len(self.rule) if isinstance(self.rule, (list, tuple)) else None

    def _placed(self, plain: Mapping[str, Any], like: Tensor, count: int) -> dict[str, Any]:
        """The limits and the skips as tensors, with an entry for each gradient in the limits that have one for each."""
        backend = _backend(like)
        limits = []
        for limit, values in zip(self.adaptives, plain["limits"], strict=True):
            limits.append(tensors(values, like, each=count if limit.is_each else None))
            if limit.is_each:
                check_count(backend, limits[-1], count)
        return {"limits": limits, "skips": {name: backend.asarray(x, "int32", like) for name, x in plain["skips"].items()}}


def plain_state(step: Step, saved: Any, names: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The limits and the skips in a saved state of a step, checked; ``names`` and ``optional`` are what else is in it."""
    stored = _stored(saved)
    stored.check_version(VERSION)
    stored.check_keys(("version", "limits", "skips", *names), optional)
    stored["skips"].check_keys(_COUNTS)
    plain: dict[str, Any] = {"skips": {name: stored["skips"][name].whole(most=MOST) for name in _COUNTS}, "limits": []}
    entries = stored["limits"].entries()
    if len(entries) != len(step.adaptives):
        received = f"a state of {_follow(len(entries))}, and rules with {len(step.adaptives)}"
        raise ArgumentError("The state is of other rules.", received, "load it with the rules that it was saved with.")
    for limit, entry in zip(step.adaptives, entries, strict=True):
        plain["limits"].append(loaded({"state": entry.given}, {}, limit.rule_of, limit.is_each))
    return plain


def _follow(count: int) -> str:
    return f"{count} limit{'' if count == 1 else 's'} that follow{'s' if count == 1 else ''} the run"


def _stored(saved: Any) -> Stored:
    return Stored(saved, "step", maker="step.state_dict(state)")


def _like(given: Any) -> tuple[Gradients, Tensor]:
    """The opened container, and one of its tensors."""
    opened = open_(given)
    first = next((x for x in (*opened.present, *opened.params) if x is not None), None)
    if opened.backend is None or first is None:
        raise ArgumentError("A state needs the framework and the number of the gradients.", f"like={shown(given)}")
    return opened, opened.backend.detach(first)


def _backend(like: Tensor) -> Backend:
    backend = find(like)
    assert backend is not None
    return backend


def counted(seen: Mapping[str, Any], skip: Any) -> dict[str, Any]:
    """The counts of skipped steps after this one; of numbers and a tensor it makes tensors."""
    like = skip if find(seen["skipped"]) is None else seen["skipped"]
    backend = _backend(like)
    one = backend.asarray(int(skip) if isinstance(skip, bool) else backend.cast(skip, "int32"), "int32", like)
    return {"skipped": seen["skipped"] + one, "in_a_row": (seen["in_a_row"] + one) * one}


def _plain(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {name: _plain(x) for name, x in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_plain(x) for x in tree]
    backend = find(tree)
    return tree if backend is None else backend.tolist(tree)
