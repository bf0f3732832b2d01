"""The monitor: ``update`` after each step, ``report`` at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.gradients import open_
from gradclip.core.registry import find
from gradclip.core.result import ClipResult
from gradclip.core.tracing import untraced
from gradclip.core.typed import X
from gradclip.limits.stored import Stored
from gradclip.steps.monitor.each import Each, spoilt
from gradclip.steps.monitor.picture import draw
from gradclip.steps.monitor.pure_state import VERSION, init, of_state
from gradclip.steps.monitor.section import Section
from gradclip.steps.monitor.shares import Shares
from gradclip.steps.monitor.text import blamed, described
from gradclip.steps.monitor.values import detached, detached_limit, leaves, no_norm, read, taken

__all__ = ["VERSION", "Monitor"]


class Monitor:
    """Records what clipping does, in constant memory: how often, how much, and the quantiles of the norm.

    Call ``monitor.update(gradclip.clip_(grads, rule))`` in each step. It does not synchronise: the norms stay on their device,
    and one transfer moves them to the host every ``every`` steps and for a report.

    The norm *before* the clip and the norm *after* it have separate names. The monitor counts norms that are not finite, and
    keeps the first and the last such step; no other number includes them. Steps count from 0. For a rule with a norm for each
    gradient every norm counts, and a step is clipped if one gradient was. A rule by value has no norm: there a step is clipped
    if an element is at a bound after it. A skipped step (``result.skip``) counts as skipped, and not as clipped.

    Each of several groups (:class:`gradclip.Group`) has a section with its number in the list: ``"0/norm_before_p50"``. If a
    norm is reduced over processes, all processes get the same norm and report the same.

    Args:
        every: the number of steps whose norms come in one transfer.
        each: measure the norm of each gradient every so many steps, in one more pass: see :meth:`gradients`. None for
            never. After a norm that is not finite and has no known culprit, every step is measured for a while.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> monitor = gradclip.Monitor()
        >>> for size in (0.5, 1.0, 2.0, np.inf):
        ...     result = monitor.update(gradclip.clip_(np.array([size]), torch.clip_grad_norm(max_norm=1.0)))
        >>> found = monitor.report()
        >>> found["steps"], found["clipped_steps"], found["norm_before_largest"], found["not_finite_first_step"]
        (4, 2, 2.0, 3)
    """

    def __init__(self, *, every: int = 100, each: int | None = None) -> None:
        for name, given in (("every", every), ("each", 1 if each is None else each)):
            value: object = given
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ArgumentError(f"{name} must be a positive whole number.", f"{name}={shown(value)}")
        self.every, self.each = every, each
        self._each = Each()
        self._sections: list[Section] = []
        self._is_list = False  # whether there are groups
        self._waiting: list[tuple[Any, Any, Any, Any, Any]] = []  # norm, coefficient, limit, skip, changed elements
        self._sources: list[Callable[[], Mapping[str, Any]]] = []

    @untraced
    def update(self, result: X, *, limit: Any = None, grads: Any = None) -> X:
        """Record one step.

        Args:
            result: what :func:`gradclip.clip` or :func:`gradclip.clip_` returned; or a norm, as
                :func:`gradclip.clip_grad_norm_` returns it: a float or a tensor of floats, or a list of them. An int is the
                number of a step or of a thing, and refused.
            limit: for a norm: its limit, a number or a 0-d tensor. Without it the norm was only measured.
            grads: for ``each=`` the gradients before the clip, or the parameters that hold them, by name:
                ``dict(model.named_parameters())``; without it those in the result, whose shares are the same.

        Returns:
            ``result``, so that a call can be wrapped.

        Raises:
            TypeError: for an object that is not a norm, and for a limit that is not a number or a tensor.
            ValueError: for a traced norm; use :func:`gradclip.observed`; and for a limit that is negative or NaN. The step is
                then not counted.
        """
        given: Any = result
        if type(given) is ClipResult:
            norm, coefficient = given.found()
            groups = given.is_list
        else:
            norm, coefficient, groups = given, None, False
            if norm is None:
                raise no_norm(norm)
        if groups:
            norm, coefficient = list(map(detached, norm)), list(map(detached, coefficient))
        elif type(norm) is not float:
            norm, coefficient = detached(norm), detached(coefficient)
        limit = detached_limit(limit)
        if groups != self._is_list and (self._sections or self._waiting):
            what = "One monitor is for one rule, or for one list of groups."
            raise ArgumentError(what, "a result of groups" if groups else "a result of one rule", "make another Monitor.")
        others = taken(given, grads, len(norm) if groups else 1)
        self._look(given, norm, grads)
        self._is_list = groups
        self._waiting.append((norm, coefficient, limit, *others))
        if len(self._waiting) >= self.every:
            self._read()
        return result

    def _look(self, given: Any, norm: Any, grads: Any) -> None:
        """Measure each gradient of a step if that is due, and keep the names of the culprits."""
        of_clip = given.grads if type(given) is ClipResult else None
        culprits: Sequence[str] = ()
        if type(given) is ClipResult and self._each.culprits is None:
            culprits = spoilt(given.culprits, norm, of_clip if grads is None else grads)
        if self.each is not None and self._each.measured != self._told and self._each.is_due(self._told, self.each):
            if grads is not None:
                self._each.before(grads, self._told)
            elif of_clip is not None:
                self._each.measure(of_clip)  # their shares are the same after the clip
        if culprits:
            self._each.blame(culprits, self._told)

    @untraced
    def measure(self, grads: Any) -> None:
        """For ``each=``: measure the gradients of the next step, if it is due, before they are clipped in place.

        Args:
            grads: any container that :func:`gradclip.clip` takes, or parameters that hold gradients, by name.
        """
        if self._each.is_due(self._told, self.each):
            self._each.before(grads, self._told)

    @property
    def _told(self) -> int:
        """The number of recorded steps."""
        return (self._sections[0].steps if self._sections else 0) + len(self._waiting)

    def gradients(self) -> Shares:
        """The statistics of each gradient, from ``each=``: the largest share of the total norm comes first.

        Each entry has a ``name``, a ``share``, a ``ratio`` to the parameter's norm, ``always_zero`` and ``measured``; the text
        of the list is a table. A clipped optimizer names the gradients by their parameters: torch's by those in the module that
        holds them, Keras's by the variables' paths, optax's by their places in the tree. A gradient without a name has its
        number and shape for one: ``"param 9 (256, 128)"``. A compiled step (Keras, optax, a program of Paddle) computes the
        norms in each step, counts those that are due, and knows no ``ratio``.

        Example:
            >>> import gradclip, numpy as np
            >>> from gradclip.dialects import torch
            >>> monitor = gradclip.Monitor(each=1)
            >>> grads = {"body": np.array([3.0]), "head": np.array([4.0]), "unused": np.array([0.0])}
            >>> result = monitor.update(gradclip.clip(grads, torch.clip_grad_norm(max_norm=1.0)))
            >>> [(seen.name, round(seen.share, 2), seen.always_zero) for seen in monitor.gradients()]
            [('head', 0.64, False), ('body', 0.36, False), ('unused', 0.0, True)]
            >>> print(monitor.gradients())
            gradient  share  of its weight  measured
            head       64 %              -         1
            body       36 %              -         1
            unused      0 %              -         1  always zero
        """
        if self._each.waiting or self._sources:
            self._read()
            _ = self.sections  # takes in what a compiled program has counted
        return self._each.shares()

    def _read(self) -> None:
        """Move the pending norms to the host, and count them."""
        self._each.count()
        waiting, self._waiting = self._waiting, []
        seen = []
        for norm, coefficient, limit, skip, clipped in waiting:
            parts = zip(norm, coefficient, clipped, strict=True) if self._is_list else [(norm, coefficient, clipped[0])]
            seen += [(k, list(leaves(n)), list(leaves(c)), limit, skip, many) for k, (n, c, many) in enumerate(parts)]
        numbers = iter(read([x for _, ns, cs, *others in seen for x in (*ns, *cs, *leaves(others))]))
        for place, ns, cs, limit, _, many in seen:
            norms = [n for _ in ns for n in next(numbers)]
            factors: list[float | None] = [c for _ in cs for c in next(numbers)]
            if len(factors) != len(norms):  # one for all, or none is known
                factors = [factors[0] if factors else None] * len(norms)
            if limit:
                most = next(numbers)[0]
                factors = [most / n if n > most else 1.0 for n in norms]
            while len(self._sections) <= place:
                self._sections.append(Section())
            is_skipped = bool(next(numbers)[0])
            self._sections[place].add(norms, factors, is_skipped=is_skipped, changed=None if many is None else next(numbers)[0])
        self._each.hunts = self._each.culprits is None and any(map(self._is_fresh, self._sections))

    def _is_fresh(self, section: Section) -> bool:
        """Whether a norm was not finite recently: after many steps the culprits cannot be found."""
        return any(section.steps - step <= max(self.every, self.each or 0) for step in section.not_finite_steps[-1:])

    # ---- what was seen ---------------------------------------------------------------------------------------------------

    @property
    def sections(self) -> list[Section]:
        """The sections: one for each group, or one for the rule."""
        if self._waiting:
            self._read()
        for take in self._sources:
            self.merge(take())
        return self._sections or [Section()]

    def attach(self, take: Callable[[], Mapping[str, Any]]) -> None:
        """Add counts from elsewhere, such as the variables of a compiled program.

        Args:
            take: the monitor calls it before each report. It returns a state of :func:`gradclip.observed` and resets its
                own.
        """
        self._sources.append(take)

    @property
    def culprits(self) -> tuple[list[str], int] | None:
        """The names of the gradients that were not finite, and the number of the first step for which they are known; or None.

        On the host a result knows them. On an accelerator they come from gradients that were measured before the clip: with
        ``each=`` in a slot, in ``update(gradclip.clip(grads, rule), grads=grads)``, or by :meth:`measure`.
        """
        if self._each.waiting:
            self._read()
        return self._each.culprits

    def report(self) -> dict[str, float]:
        """A flat dict of numbers, for any logger. With several groups each name begins with the group's number: ``"0/steps"``.

        ``steps``, ``clipped_steps``, ``skipped_steps``, ``coefficient_mean``; ``clipped_fraction``, of those with a norm;
        ``norm_before_mean``, ``_p1``, ``_p10``, ``_p50``, ``_p90``, ``_p99``, ``_largest``, and the same for ``norm_after``;
        ``not_finite``; ``not_finite_first_step``, ``not_finite_last_step`` and ``changed_elements`` only if there are any.
        A quantile is off by less than 4.5 %; the others are exact but for rounding. An unknown number is NaN.
        """
        sections = self.sections
        if not self._is_list:
            return sections[0].report()
        return {f"{k}/{name}": x for k, section in enumerate(sections) for name, x in section.report().items()}

    def __str__(self) -> str:
        sections = self.sections
        if not self._is_list:
            return described(sections[0], "", self._each.culprits)
        lines = [described(section, f"group {k}: ") for k, section in enumerate(sections)]
        return "\n".join(lines if self._each.culprits is None else [*lines, f"not finite{blamed(*self._each.culprits)}"])

    def plot(self, path: str | Path) -> None:
        """Write a picture of the run, 1200 x 600 pixels.

        It shows the norm before the clip over the steps, with a band from its 10th to its 90th percentile, the limit, marks for
        steps that were clipped or not finite, and the histogram at the side.

        Args:
            path: the file; its suffix is the format: ``"run.png"``, ``"run.svg"``.

        Raises:
            ImportError: without matplotlib: ``pip install 'gradclip[monitor]'``.
        """
        draw(self.sections, path)

    def init(self, *, like: Any = None, groups: int | None = None) -> dict[str, Any]:
        """A state for :func:`gradclip.observed`, which replaces :meth:`update` in a traced step.

        Args:
            like: a tensor: the state has tensors of its framework on its device; None for JAX. With ``each=`` the gradients,
                or the parameters: the state then counts each of them by its name.
            groups: their number, if the rule is a list of groups.

        Returns:
            Nested dicts and lists of tensors, some 17 kB for each group. ``monitor.merge(state)`` reads it.
        """
        if self.each is None and (like is None or find(like) is not None):
            return init(like, groups)
        opened = open_([] if like is None else like)
        return init(next((x for x in (*opened.present, *opened.params) if x is not None), None), groups, opened, self.each)

    def merge(self, other: Monitor | Mapping[str, Any]) -> None:
        """Add the counts of another monitor, of another process or of another part of the run, as later steps.

        Args:
            other: a monitor, or a state from :func:`gradclip.observed`. A state has all counts since ``init``:
                merge it once, or into a new monitor each time.

        Raises:
            TypeError: for an object that is not a monitor.
            ValueError: if one is for groups and the other for a rule, or the numbers of groups differ.
        """
        given: object = other
        each: Mapping[str, Sequence[float]] = {}
        if isinstance(given, Mapping) and "groups" in given:
            (sections, is_list, each), culprits = of_state(given), None
        elif isinstance(given, Monitor):
            sections, is_list, culprits, each = given.sections, given._is_list, given._each.culprits, given._each.sums
        else:
            what = "A monitor can be merged with a monitor, or with a state of gradclip.observed."
            raise ArgumentTypeError(what, f"{type(given).__name__}")
        if self._waiting:
            self._read()
        mine, counts = self._sections, any(section.steps for section in sections)
        if counts and mine and (self._is_list != is_list or len(mine) != len(sections)):
            named = [f"{len(m)} groups" if x else "one rule" for m, x in ((mine, self._is_list), (sections, is_list))]
            raise ArgumentError("Monitors of different groups cannot be merged.", " and ".join(named))
        self._each.merge(each)
        if not counts:
            return
        if culprits is not None:
            self._each.blame(culprits[0], self._told + culprits[1])
        self._is_list, self._sections = is_list, mine or [Section() for _ in sections]
        for section, more in zip(self._sections, sections, strict=True):
            section.merge(more)

    def state_dict(self) -> dict[str, Any]:
        """The complete state, as numbers and lists, for JSON, ``torch.save``, Orbax, Paddle; with a version."""
        sections = self.sections if self.sections[0].steps else []
        return {
            "version": VERSION,
            "every": self.every,
            "is_list": self._is_list,
            "sections": [section.state_dict() for section in sections],
            "each": {seen.name: self._each.sums[seen.name] for seen in self.gradients()},
            "culprits": dict.fromkeys(*self._each.culprits) if self._each.culprits else {},
        }

    def state_in_slot(self, groups: int | None) -> dict[str, Any]:
        """The state, with empty sections before the first step: a distributed checkpoint loads into this structure."""
        state = self.state_dict()
        if not state["sections"] and self.each is None:  # no structure has the gradients' names: they would be lost unseen
            state |= {"is_list": groups is not None, "sections": [Section().state_dict() for _ in range(groups or 1)]}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; the monitor's own counts are lost.

        Raises:
            ValueError: for a state of another version, with other bins, or with an entry that is missing or wrong; then
                nothing changes.
        """
        stored = Stored(state, "monitor")
        stored.check_version(VERSION)
        stored.check_keys(("version", "every", "is_list", "sections"), ("each", "culprits"))
        every, is_list = stored["every"].whole(1), stored["is_list"].truth()
        sections = [Section.loaded(section) for section in stored["sections"].entries()]
        if len(sections) > 1 and not is_list:
            raise stored["sections"].wrong("one rule has one section")
        if not any(section.steps for section in sections):
            is_list, sections = False, []
        each = Each.loaded(*(stored[name] if name in state else Stored({}, "monitor") for name in ("each", "culprits")))
        self.every, self._is_list, self._sections, self._each, self._waiting = every, is_list, sections, each, []
