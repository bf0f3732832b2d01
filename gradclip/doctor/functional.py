"""The bookkeeping of a watch where gradients are values: a clip returns new ones, and an optimizer takes a list."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradclip.doctor.events import Backward, Clip, Params, Step, Unwatched
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.watch import Request, returned

__all__ = ["Functional"]


@dataclass(slots=True)
class _Pending:
    """A clip whose result no optimizer has taken yet."""

    place: int  #: among the events
    inputs: list[Any]
    outputs: list[Any]


class Functional:
    """Records clips of gradients that are values, and which of them an optimizer takes."""

    framework = ""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._grads: dict[int, Any] = {}  # that a pass has made, and that clips have made of them; kept alive
        self._pending: list[_Pending] = []
        self._taken: Params = frozenset()
        self._seen: set[Place] = set()

    # ---- supplied by the framework ----

    def norm(self, x: Any, order: float) -> float:
        """The norm of a tensor, computed in float64."""
        raise NotImplementedError

    def is_traced(self) -> bool:
        """Whether the framework traces the code now."""
        return False

    def native(self, limit: Any, order: float) -> Any:
        """As of a :class:`gradclip.doctor.seen.Seen`."""
        return None

    # ---- the events ----

    def backward(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Record that a pass has made these gradients of these variables."""
        self._grads.update({id(x): x for x in grads if x is not None})
        names = {id(x): str(getattr(x, "path", "") or getattr(x, "name", "")) for x in variables}
        self.recorder.names.update(names)
        self.recorder.add(Backward(where=place(self.framework), params=frozenset(names)))

    def clip(self, call: Callable[[], Any], request: Request, made: Callable[[Any], Sequence[Any]] | None = None) -> Any:
        """Record a clip of gradients; a clip of other tensors is no event."""
        recorder, is_inside = self.recorder, self.recorder.stepping is not None
        tensors = [x for x in request.tensors if x is not None]
        if not is_inside and not any(id(x) in self._grads for x in tensors):
            return call()
        start = time.perf_counter()
        recorder.is_quiet = True
        try:
            result = call()
        finally:
            recorder.is_quiet = False
        seconds = time.perf_counter() - start
        with recorder.quietly():
            outputs = list(made(result)) if made is not None else tensors
            self._grads.update({id(x): x for x in outputs})
            self._pending.append(_Pending(len(recorder.events), tensors, outputs))
            recorder.add(self._event(request, tensors, outputs, seconds, result))
        return result

    def _event(self, request: Request, tensors: list[Any], outputs: list[Any], seconds: float, result: Any) -> Clip:
        before, after = ([self.norm(x, request.order) for x in of_these] for of_these in (tensors, outputs))
        return replace(
            request.event(place(self.framework), self._taken, before, after),
            returned=returned(result.norm if hasattr(result, "norm") else result),
            culprits=tuple(f"gradient {i}" for i, n in enumerate(before) if not math.isfinite(n)),
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
            pairs: each gradient with the id of its variable.
            own: the clip inside of the step.
        """
        recorder = self.recorder
        present = [(grad, key) for grad, key in pairs if grad is not None]
        self._taken = frozenset(key for _, key in present)
        with recorder.quietly():
            self._close(present)
            if own is not None:
                self._clip_inside(own, present)
        recorder.stepping = self
        try:
            result = call()
        finally:
            recorder.stepping = None
        self._pending.clear()
        self._grads.clear()
        seconds = recorder.since_the_last_step()
        event = Step(where=place(self.framework), params=self._taken, name=name, optimizer=id(optimizer))
        self._taken = frozenset()
        recorder.add(replace(event, total=len(pairs), seconds=seconds))
        return result

    def _clip_inside(self, own: Request, present: Sequence[tuple[Any, int]]) -> None:
        """The optimizer's own clip by a setting, which nothing but its formula shows."""
        event = self._event(own, [grad for grad, _ in present], [], math.nan, None)
        limit = event.limit if event.limit is not None else math.nan
        self.recorder.add(replace(event, after=min(event.before, limit)))

    def _close(self, present: Sequence[tuple[Any, int]]) -> None:
        """Say of each clip which variables took its result, also through a later clip; clips of one line are one."""
        owner = {id(grad): key for grad, key in present}
        for pending in reversed(self._pending):
            for x, y in zip(pending.inputs, pending.outputs, strict=False):
                if id(y) in owner:
                    owner.setdefault(id(x), owner[id(y)])
        merged: dict[Place, tuple[int, Clip]] = {}
        gone = set()
        for pending in self._pending:
            clip = self.recorder.events[pending.place]
            assert isinstance(clip, Clip)
            taken = frozenset(owner[id(x)] for x in pending.outputs if id(x) in owner)
            clip = replace(clip, params=taken, is_dropped=not taken and not clip.only_measures)
            first = merged.get(clip.where)
            if first is not None and (clip.is_each or clip.is_value):
                gone.add(pending.place)
                clip = _both(first[1], clip)
            merged[clip.where] = (first[0] if first is not None and pending.place in gone else pending.place, clip)
            self.recorder.events[merged[clip.where][0]] = clip
        self.recorder.events[:] = [x for i, x in enumerate(self.recorder.events) if i not in gone]


def _both(first: Clip, second: Clip) -> Clip:
    """One event for two gradients that one line clips, each by its own norm."""
    return replace(
        first,
        params=first.params | second.params,
        is_dropped=first.is_dropped and second.is_dropped,
        before=max(first.before, second.before),
        after=max(first.after, second.after),
        culprits=first.culprits + second.culprits,
        seconds=first.seconds + second.seconds,
    )
