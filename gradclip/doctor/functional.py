"""The bookkeeping of a watch where gradients are values: a clip returns new ones, and an optimizer takes a list."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradclip.doctor import hand
from gradclip.doctor.events import (
    NO_IDS,
    Backward,
    Clip,
    Event,
    Ids,
    Norms,
    Read,
    Skip,
    SkipByRule,
    Step,
    Unscale,
    Unwatched,
    Write,
    scaled,
    these,
)
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.request import Request, returned, skips
from gradclip.doctor.seen import total

__all__ = ["Functional"]

Pairs = Sequence[tuple[Any, int]]
_SAME = 1e-6  #: the relative difference of the norms of one gradient, which a cast or a copy may make
_MOST = 1000  #: clips that wait for a step, and gradients: a script may compute some that no optimizer takes


@dataclass(slots=True)
class _Pending:
    """A clip whose result no optimizer has taken yet."""

    make: Callable[[], Clip]
    inputs: list[Any]
    outputs: list[Any]
    params: Ids  #: whose gradients it is known to clip
    event: Clip | None = None  #: in the record; None while nothing shows that these tensors are gradients


class _InThread(threading.local):
    """What a watch knows of one thread."""

    def __init__(self) -> None:
        self.scale = self.scaled = 1.0  #: of the loss that an optimizer has just scaled; of the last backward pass
        self.taken: Ids = NO_IDS
        self.own: Request | None = None  #: the clip of the optimizer that steps now
        self.steps = 0
        self.is_skipped = False  #: whether the clip of the optimizer that steps now leaves the step out
        self.weights: dict[int, tuple[Any, float]] = {}  #: the variables and their norms after the last pass


class Functional:
    """Records clips of gradients that are values, and which of them an optimizer takes."""

    framework = ""
    clips: frozenset[str] = frozenset()  #: the names of the framework's clips

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.here = _InThread()
        self._grads: dict[int, tuple[Any, int]] = {}  # by id: a gradient from a pass or a clip, kept alive, and its variable
        self._latest: dict[int, Any] = {}  # by the variable: the last of these
        self._pending: list[_Pending] = []
        self._seen: set[Place] = set()
        self.has_optimizer = False  #: in any thread: one may make the gradients, and another step
        self._searched: set[Place] = set()  # the lines of steps

    # ---- supplied by the framework ----

    def norm(self, x: Any, order: float) -> float:
        """The norm of a tensor, computed in float64."""
        raise NotImplementedError

    def is_traced(self) -> bool:
        """Whether the framework traces the code now."""
        return False

    def has_equal_rows(self, x: Any) -> bool:
        """Whether a sparse gradient has several rows of one index."""
        return False

    def native(self, limit: Any, order: float) -> Any:
        """As of a :class:`gradclip.doctor.seen.Seen`."""
        return None

    # ---- the events ----

    def backward(self, pairs: Sequence[tuple[Any, int]]) -> None:
        """Record that a pass has made these gradients of these variables."""
        scale, self.here.scale = self.here.scale, 1.0
        self.here.scaled = scale
        with self.recorder.quietly():
            self._step_by_hand()
            self._know(pairs)
        self.recorder.add(Backward(where=place(self.framework), params=these(key for _, key in pairs), scaler=scaled(scale)))

    def weights(self, variables: Sequence[tuple[Any, int]]) -> None:
        """Keep the norms of the variables that a pass has made gradients of, as long as no optimizer has stepped."""
        with self.recorder.quietly():
            self.here.weights = {} if self.has_optimizer else {key: (x, self.norm(x, 2.0)) for x, key in variables}

    def _step_by_hand(self) -> None:
        """Record that the script itself has changed its variables since the last pass, where no optimizer is."""
        weights, self.here.weights = {} if self.has_optimizer else self.here.weights, {}
        changed = [key for key, (x, norm) in weights.items() if self.norm(x, 2.0) != norm]
        present = [(self._latest[key], key) for key in changed if key in self._latest]
        if present:
            norms = tuple((key, self.norm(grad, 2.0)) for grad, key in present)
            self._close(present)
            self.here.taken = frozenset(key for _, key in present)
            self._add_step(Step, "the script", None, present, norms)

    def _know(self, pairs: Sequence[tuple[Any, int]]) -> None:
        if len(self._grads) > _MOST:
            self._grads.clear()
        self._grads.update({id(grad): (grad, key) for grad, key in pairs})
        self._latest.update({key: grad for grad, key in pairs})

    def clip(self, call: Callable[[], Any], request: Request, made: Callable[[Any], Sequence[Any]] | None = None) -> Any:
        """Record a clip; of tensors that are not known as gradients only once an optimizer takes its result."""
        recorder, is_inside = self.recorder, self.recorder.stepping is not None
        if is_inside and self.here.own is not None and not request.name.startswith("gradclip"):
            return call()  # the optimizer's own clip calls it
        start = time.perf_counter()
        with recorder.hushed():
            result = call()
        seconds, where = time.perf_counter() - start, place(self.framework)
        with recorder.quietly():
            self.here.is_skipped = is_inside and not self.is_traced() and skips(result)
            tensors = [x for x in request.tensors if x is not None]
            outputs = list(made(result)) if made is not None else tensors
            keys = [self._grads[id(x)][1] if id(x) in self._grads else None for x in tensors]
            self._know([(y, key) for y, key in zip(outputs, keys, strict=False) if key is not None])
            params = self.here.taken if is_inside else frozenset(key for key in keys if key is not None)

            def make() -> Clip:
                return self._event(request, where, (tensors, outputs), seconds, result)

            pending = _Pending(make, tensors, outputs, params)
            if params:
                pending.event = replace(make(), params=these(params))
                recorder.add(pending.event)
            if not is_inside:
                self._pending = [*self._pending[-_MOST:], pending]
        return result

    def _event(self, request: Request, where: Place, tensors: tuple[list[Any], list[Any]], seconds: float, result: Any) -> Clip:
        before, after = ([self.norm(x, request.order) for x in of_these] for of_these in tensors)
        event, norm = request.event(where, NO_IDS, before, after, self.here.scaled), returned(getattr(result, "norm", result))
        return replace(
            event,
            returned=math.nan if request.norm is not None and norm > event.before else norm,  # it may be of more gradients
            culprits=tuple(f"gradient {i}" for i, n in enumerate(before) if not math.isfinite(n)),
            has_equal_rows=any(map(self.has_equal_rows, tensors[0])),
            seconds=seconds,
        )

    def unwatched(self, what: str) -> None:
        """Record, once for each line, what cannot be seen."""
        where = place(self.framework)
        if where not in self._seen and not self.recorder.is_quiet:
            self._seen.add(where)
            self.recorder.add(Unwatched(where=where, what=what, hides_clips=True))

    def step(
        self, call: Callable[[], Any], name: str, optimizer: Any, pairs: Sequence[tuple[Any, int]], own: Request | None
    ) -> Any:
        """Record a step.

        Args:
            call: the step.
            name: the optimizer's.
            optimizer: itself.
            pairs: each gradient with the key of its variable.
            own: the clip inside of the step.
        """
        recorder = self.recorder
        present = [(grad, key) for grad, key in pairs if grad is not None]
        with recorder.quietly():
            self._close(present)
            norms = tuple((key, self.norm(grad, 2.0)) for grad, key in present)
            self.here.taken, self.here.own = frozenset(key for _, key in present), own
            self.has_optimizer = True
            if own is not None:
                self._clip_inside(own, present)
        recorder.stepping = self
        try:
            result = call()
        finally:
            recorder.stepping, self.here.own = None, None
        self.here.steps += 1
        self._add_step(SkipByRule if self.here.is_skipped else Step, name, optimizer, pairs, norms)
        self.here.is_skipped = False
        return result

    def _add_step(self, kind: type[Step], name: str, optimizer: Any, pairs: Pairs, norms: Norms = ()) -> None:
        seconds, owns = self.recorder.since_the_last_step(), frozenset(key for _, key in pairs)
        event = kind(where=place(self.framework), params=these(self.here.taken), text=name, optimizer=id(optimizer))
        self.here.taken = NO_IDS
        self.recorder.add(replace(event, total=len(pairs), owns=owns, norms=norms, seconds=seconds))

    def unscale(self, call: Callable[[], Any], name: str, optimizer: Any, pairs: Sequence[tuple[Any, int]]) -> Any:
        """Record that an optimizer divides gradients by the scale of the loss, and steps if they are finite.

        Args:
            call: both.
            name: of the optimizer that steps.
            optimizer: itself.
            pairs: as of :meth:`step`.
        """
        present, steps = [(grad, key) for grad, key in pairs if grad is not None], self.here.steps
        taken = frozenset(key for _, key in present)
        with self.recorder.quietly():
            self._close(present)
            self.recorder.add(Unscale(where=place(self.framework), params=these(taken)))
        result = call()
        if self.here.steps == steps and not self.is_traced():
            self.here.taken = taken
            self._add_step(Skip, name, optimizer, pairs)
        return result

    def _clip_inside(self, own: Request, present: Sequence[tuple[Any, int]]) -> None:
        """The optimizer's own clip by a setting, which nothing but its formula shows."""
        event = self._event(own, place(self.framework), ([grad for grad, _ in present], []), math.nan, None)
        limit = event.limit if event.limit is not None else math.nan
        self.recorder.add(replace(event, params=these(self.here.taken), after=min(event.before, limit)))

    # ---- what an optimizer takes ----

    def _close(self, present: Sequence[tuple[Any, int]]) -> None:
        """Say of each clip which variables took its result, also through a later clip; and what else made gradients."""
        owner = {id(grad): key for grad, key in present}
        for pending in reversed(self._pending):
            for x, y in zip(pending.inputs, pending.outputs, strict=False):
                if id(y) in owner:
                    owner.setdefault(id(x), owner[id(y)])
        written = self._written(present)
        params = frozenset(owner.values())
        left, clips = [], []
        for pending in self._pending:
            taken = frozenset(owner[id(x)] for x in pending.outputs if id(x) in owner)
            if not taken and not pending.params & params:
                left.append(pending)  # another optimizer's, or no gradients
                continue
            if pending.event is None:
                pending.event = pending.make()
                self.recorder.add(pending.event)
            taken |= pending.params & frozenset(written)
            clips.append(self._put(pending.event, replace(pending.event, params=these(taken), is_dropped=not taken)))
        self._merge(clips)
        self._pending = left
        self._grads = {key: x for key, x in self._grads.items() if x[1] not in params}
        changed = {key: norms for key, norms in written.items() if abs(norms[1] - norms[0]) > _SAME * max(norms)}
        if changed:
            before, after = (total([norms[i] for norms in changed.values()], 2.0) for i in (0, 1))
            event = Write(where=place(self.framework), params=these(changed), is_late=True, before=before, after=after)
            self.recorder.add(event)
        self._look_for_a_hand(is_passed_on=len(written) > len(changed))
        for key in params:
            self._latest.pop(key, None)

    def _look_for_a_hand(self, *, is_passed_on: bool) -> None:
        """Record, once for each line of a step, the code around it that may clip by hand.

        Args:
            is_passed_on: whether the script has made gradients anew that are the same.
        """
        where = place(self.framework)
        if where not in self._searched:
            found = where if is_passed_on else hand.reading(hand.HELD | hand.VALUES)
            if found is not None:
                self.recorder.add(Read(where=found))
            elif (off := hand.switched(self.clips)) is not None:
                self.recorder.add(Read(where=off, is_switch=True))
            self._searched.add(where)

    def _written(self, present: Sequence[tuple[Any, int]]) -> dict[int, tuple[float, float]]:
        """The variables whose gradients neither a pass nor a clip has made, with the norms before and after."""
        made = {id(y) for pending in self._pending for y in pending.outputs}
        found = [(x, key) for x, key in present if key in self._latest and id(x) not in self._grads and id(x) not in made]
        return {key: (self.norm(self._latest[key], 2.0), self.norm(x, 2.0)) for x, key in found}

    def _put(self, old: Event, new: Clip) -> Clip:
        """Put a clip in the place of its earlier form in the record."""
        new = replace(new, is_dropped=new.is_dropped and not new.only_measures)
        self.recorder.put(old, new)
        return new

    def _merge(self, clips: Sequence[Clip]) -> None:
        """Clips of one line, each of one gradient, are one."""
        firsts: dict[Place, Clip] = {}
        gone = set()
        for clip in clips:
            first = firsts.get(clip.where)
            if first is not None and clip.kind != "norm":
                gone.add(id(clip))
                clip = self._put(first, _both(first, clip))
            firsts[clip.where] = clip
        self.recorder.drop(gone)


def _both(first: Clip, second: Clip) -> Clip:
    """One event for two gradients that one line clips, each by its own norm."""
    return replace(
        first,
        params=these(first.ids | second.ids),
        is_dropped=first.is_dropped and second.is_dropped,
        before=max(first.before, second.before),
        after=max(first.after, second.after),
        culprits=first.culprits + second.culprits,
        seconds=first.seconds + second.seconds,
    )
