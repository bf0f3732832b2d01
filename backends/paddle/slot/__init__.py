"""Objects for the ``grad_clip=`` of Paddle's optimizers: any rule, and gradclip's classes as subclasses of Paddle's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import paddle

from gradclip.backends.paddle import versions
from gradclip.backends.paddle.slot.kept import ProgramState
from gradclip.core.containers import wanted
from gradclip.core.engine import Options, run
from gradclip.core.errors import ArgumentError, shown
from gradclip.core.gradients import open_
from gradclip.core.groups import NO_RULE, Rules, Shards, check_groups
from gradclip.core.result import last
from gradclip.core.rule import GLOBAL
from gradclip.steps.refusals import cannot_skip
from gradclip.steps.slot import Slot
from gradclip.steps.step import Step

__all__ = ["RuleClip", "grad_clip", "slot"]

Pairs = list[tuple[Any, Any]]


def grad_clip(
    rule: Rules = NO_RULE, reduce: Any = None, *, shards: Shards = None, monitor: Any = None
) -> paddle.nn.clip.ClipGradBase:
    """An object for the ``grad_clip=`` of any ``paddle.optimizer``, in dynamic mode and in a static program.

    Args:
        rule: of any dialect, except one that sums over examples; or groups with such rules, by the parameters' own names.
            Paddle clips each parameter group of an optimizer separately. A static program keeps the state of a limit that
            follows the run (:class:`gradclip.Adaptive`) in variables that are saved with it; ``state_dict()`` reads them.
        reduce: as for :func:`gradclip.clip`: the group of the processes with the other gradients. Fleet's hybrid parallel
            optimizers replace a ``ClipGradByGlobalNorm``, also gradclip's, by their own, which knows the groups; any other
            object needs ``reduce``.
        shards: which processes hold other shards of a plain tensor, such as experts: as for :func:`gradclip.clip`. Names are
            the parameters' own.
        monitor: a :class:`gradclip.Monitor`, which records each step; a static program counts in its own variables, which
            the monitor reads for a report.

    Some processes may lack the gradient of a distributed parameter that others have. Paddle tells no object for ``grad_clip=``
    of such a parameter; :func:`gradclip.clipped` and :func:`gradclip.clip_` know it, and have one norm for all. Where the
    gradient is partial, Paddle's own step waits for the others for ever, also without a clip: give a process that lacks it
    zeros. This object refuses such a step on all processes that have some other gradient of the same mesh.

    Returns:
        A ``paddle.nn.clip.ClipGradBase``. Its ``last`` is a :class:`gradclip.ClipResult` with the norm and the coefficient of
        the last clip; in a static program these are variables, which can be fetched. Like Paddle's own it leaves the gradient
        of a parameter with ``need_clip=False`` as it is and drops pairs without a gradient.

    Raises:
        TypeError, ValueError: for an object that is not a rule, and for a rule whose result has another shape than the
            gradient; in a call, for one norm over gradients that fleet has sharded, without ``reduce``.

    >>> import paddle, gradclip.backends.paddle
    >>> from gradclip.dialects import torch
    >>> layer = paddle.nn.Linear(2, 2)
    >>> clip = gradclip.backends.paddle.grad_clip(torch.clip_grad_norm(1.0))
    >>> optimizer = paddle.optimizer.SGD(parameters=layer.parameters(), grad_clip=clip)
    """
    for group in check_groups(rule, keeps_shape=True):
        if group.rule.skips:
            raise cannot_skip(group.rule, "A clip inside of a step cannot skip it, but gradclip.clipped(optimizer, rule) can.")
    return RuleClip(Step(rule, monitor, reduce=reduce, shards=shards))


class RuleClip(Slot, paddle.nn.clip.ClipGradBase):
    """The result of :func:`grad_clip`: an object with its state.

    Attributes:
        ready: the gradients that :func:`gradclip.clipped` has clipped for this step, by the ids of their parameters.
    """

    should_comm_on_shard_dim = False  # Paddle's sharded optimizers set it on any object if they fuse gradients

    def __init__(self, step: Step, patience: float = 10) -> None:
        paddle.nn.clip.ClipGradBase.__init__(self)
        Slot.__init__(self, step, patience)
        self.reduce, self.shards = step.reduce, step.shards
        self.ready: dict[int, Any] | None = None
        self.is_asked = False  # whether the caller looks at last.skip

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("monitor", "rule") and vars(self).get("is_in_program"):
            what = "A static program has this clip already, and would go on as before."
            hint = "build the program again, with another optimizer and its clip."
            raise ArgumentError(what, f"{name}={shown(value)}", hint)
        super().__setattr__(name, value)

    @paddle.jit.not_to_static
    def __call__(self, params_grads: Iterable[tuple[Any, Any]]) -> Pairs:
        pairs = [(p, g) for p, g in params_grads if g is not None or (self.is_asked and versions.is_distributed(p))]
        if self.ready is not None and all(id(p) in self.ready for p, _ in pairs):
            return [(p, self.ready[id(p)]) for p, _ in pairs]
        if self.step.skips and not self.is_asked:
            skips = next(group.rule for group in self.step.groups if group.rule.skips)
            raise cannot_skip(skips, "Only optimizer.step() in dynamic mode can be skipped: a static program of Paddle cannot.")
        is_wanted = wanted(pairs)
        chosen = list(itertools.compress(pairs, is_wanted))
        self._check_complete([g for _, g in chosen])
        with paddle.no_grad():
            if not paddle.in_dynamic_mode():
                clipped = self._clipped_in_program(chosen)
            else:
                step = self.step
                if step.monitor is not None:
                    step.monitor.measure(chosen)
                clipped = self._clipped(chosen, step.rule)
                if step.monitor is not None:
                    step.monitor.update(self.last, grads=chosen)
        results = [(p, next(clipped) if this else g) for (p, g), this in zip(pairs, is_wanted, strict=True)]
        return [(p, g) for p, g in results if g is not None] if self.is_asked else results

    def _clipped(self, chosen: Pairs, rule: Any) -> Iterator[Any]:
        """The clipped gradients of pairs."""
        # the gradients alone take less time, where no parameter tells other processes how its gradient should be placed
        is_alone = not self.is_asked and paddle.distributed.get_world_size() == 1
        is_list = not self.step.needs_names and (is_alone or not any(versions.is_distributed(p) for p, _ in chosen))
        if is_list:
            opened = open_([g for _, g in chosen], holders="none")
            params = None if rule.relative_to is None else [p for p, _ in chosen]
            found = run(opened, rule, Options(params=params, reduce=self.reduce))
            clipped: Iterator[Any] = iter(found.grads)
        else:
            opened = open_(chosen)
            # pairs are missing for parameters without a gradient in this step, or of another group
            found = run(opened, rule, Options(reduce=self.reduce, shards=self.shards, is_excerpt=True))
            clipped = (g for _, g in found.grads)
        self.last = last(opened, found, is_list=isinstance(rule, (list, tuple)))
        if is_list:
            self.last.culprits = [chosen[int(place)][0].name for place in self.last.culprits]
        return clipped

    def _clipped_in_program(self, chosen: Pairs) -> Iterator[Any]:
        """The same in the program being built, which keeps the state; the limits then read it there."""
        self.is_in_program = True
        kept = ProgramState(self.step, [p.name for p, _ in chosen])
        state = kept.values()
        rule, limits = self.step.at(state)
        clipped = self._clipped(chosen, rule)
        kept.keep(self.step.after(state, limits, self.last, chosen))
        for limit, moved, seen in zip(self.limits, limits, kept.limits(), strict=True):
            limit.state, limit.last = seen, moved.last
        return clipped

    def _check_complete(self, gradients: list[Any]) -> None:
        """Refuse one norm over this process's gradients if fleet gives the others other gradients."""
        if (
            callable(self.reduce)
            or self.shards is not None
            or not paddle.in_dynamic_mode()
            or all(g.rule.scope is not GLOBAL for g in self.step.groups)
        ):
            return
        split, hint = _split(), "gradclip.ClipGradByGlobalNorm, which Paddle's optimizer knows"
        if not split and not self.should_comm_on_shard_dim:
            return
        if any(isinstance(g, paddle.Tensor) and g.is_dist() for g in gradients):  # these tensors know their shards
            return
        if "mp" in split:  # shards of some weights and replicas of others
            what, hint = "No group has one norm over shards and replicas.", f"{hint}."
        elif self.reduce is None and (split or self.should_comm_on_shard_dim):
            what = "Each process would have its own norm here, because others have other gradients."
            hint = f"{hint}, or grad_clip(rule, reduce=the group)."
        else:
            return
        under = ", ".join(f"{name}_degree={degree}" for name, degree in split.items()) or "fused gradients"
        raise ArgumentError(what, f"rule={self.rule} under {under}", hint)

    def __str__(self) -> str:
        return f"Gradient Clip By {self.rule}"


def _split() -> dict[str, int]:
    """The ways in which fleet's hybrid parallel mode shards a model, and the number of processes of each."""
    topology = versions.topology()
    if topology is None:
        return {}
    degrees = {
        "sharding": topology.get_sharding_parallel_world_size(),
        "mp": topology.get_model_parallel_world_size(),
        "pp": topology.get_pipe_parallel_world_size(),
    }
    return {name: degree for name, degree in degrees.items() if degree > 1}


def _without_history(pair: Any) -> Any:
    """A pair of a static program, detached from its gradient's history: without derivatives fewer operations suffice."""
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
    if not is_pair or not isinstance(pair[1], versions.Value) or pair[1].stop_gradient or not all(wanted([pair])):
        return pair
    return pair[0], pair[1].detach()


@cache
def slot(cls: type) -> type:
    """``cls`` as a subclass of Paddle's class of the same name, so Paddle's distributed optimizers recognise it."""
    if issubclass(cls, paddle.nn.clip.ClipGradBase):
        return cls
    # not by their names in paddle.nn.clip, which a program may have replaced by gradclip's
    natives = {c.__name__: c for c in paddle.nn.clip.ClipGradBase.__subclasses__() if c.__module__ == "paddle.nn.clip"}
    native: Any = next((natives[c.__name__] for c in cls.__mro__ if c.__name__ in natives), paddle.nn.clip.ClipGradBase)

    class Native(native):
        def __init__(self) -> None:
            paddle.nn.clip.ClipGradBase.__init__(self)
            self.should_comm_on_shard_dim = False  # Paddle's sharded optimizers set this, and the groups to reduce over
            self._async_add_n = None

    class Slot(cls, Native):
        @paddle.jit.not_to_static
        def __call__(self, params_grads: Iterable[tuple[Any, Any]]) -> Pairs:
            if self.should_comm_on_shard_dim:  # the norm must be reduced over those groups, which only Paddle's own class does
                pairs: Pairs = native.__call__(self, list(params_grads))
                return pairs
            with paddle.no_grad():  # it does nothing in a static program
                is_program = not paddle.in_dynamic_mode() and isinstance(params_grads, Iterable)
                clipped: Pairs = cls.__call__(self, map(_without_history, params_grads) if is_program else params_grads)
            return clipped

        def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
            # a pickle then also opens without Paddle
            return cls.__new__, (cls,), {name: value for name, value in self.__dict__.items() if name != "last"}

    Slot.__name__, Slot.__qualname__, Slot.__module__ = cls.__name__, cls.__qualname__, cls.__module__
    Slot.__doc__ = cls.__doc__
    return Slot
