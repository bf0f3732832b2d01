"""The bookkeeping of a watch, for frameworks whose parameters hold their gradients. A framework supplies the primitives."""

from __future__ import annotations

import linecache
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gradclip.doctor.by_hand import LOOKED, ByHand
from gradclip.doctor.events import (
    NO_IDS,
    Backward,
    Clip,
    Ids,
    Norms,
    Skip,
    SkipByRule,
    Step,
    Unscale,
    Write,
    Zero,
    scaled,
    these,
)
from gradclip.doctor.lines import Lines
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.replicas import Replicas
from gradclip.doctor.request import Made, Request, returned, skips
from gradclip.doctor.seen import total
from gradclip.doctor.trial import Trials

__all__ = ["Watch"]

_SMALL = 100_000  #: elements of the gradients whose norms are compared after each line


class _InThread(threading.local):
    """What a watch knows of one thread."""

    def __init__(self, watch: Watch) -> None:
        self.lines = Lines(watch.recorder.guard, watch.after_a_line)
        self.is_unscaling = False
        self.scale = self.scaled = 1.0  #: of the loss that a scaler has just scaled; of the last backward pass
        self.stepped = 0
        self.is_skipped = False  #: whether the clip of the step that is open leaves it out
        self.present = NO_IDS
        self.norms: Norms = ()
        self.steps: list[Any] = []


class Watch(ByHand):
    """Records what happens to the gradients of parameters."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.replicas: Replicas | None = None  #: of several processes
        self.is_compiling_seen = False
        self.has_writes = False  #: whether the script itself has written gradients
        self.is_close = False  #: whether some write was seen in the norms only: then each line compares them
        self._made: dict[int, Made] = {}  # by the id of the new gradient
        self.trials = Trials(self.copies)
        #: of this thread: whether it is inside a scaler's step, which divides the gradients before the optimizer's; the scale
        #: of the loss that a scaler has just scaled; how many steps there were; the parameters with a gradient before the step,
        #: and the norms of these; the steps that are open: a class's step may call its base's
        self.here = _InThread(self)

    @property
    def lines(self) -> Lines:
        return self.here.lines

    @property
    def in_backward(self) -> bool:
        return self.hands.is_in_pass

    def flush(self, where: Place, named: Ids = NO_IDS, *, closely: bool = False, is_late: bool = True) -> None:
        """Record what has happened since they were seen to the gradients of this thread, and of the named parameters."""
        keys = self.hands.mine(self.known, named)
        written, gone = self.changed(keys, closely=closely)
        self.is_close = self.is_close or bool(closely and written - self.changed(keys)[0])
        self.hands.take(written)
        if self.in_backward and written:
            self.settle(written)
            self.recorder.add(Backward(where=self.hands.pass_place, params=these(written)))
            return
        if written or gone:
            self.step_by_hand(where)
        written = self._take_made(written)
        if gone:
            self.settle(gone)
            self.recorder.add(Zero(where=where, params=these(gone)))
        if written and self.here.is_unscaling:
            self.settle(written)
            self.recorder.add(Unscale(where=where, params=these(written)))
        elif written:
            before = {key: self._norms.get(key, 0.0) for key in written}
            self.has_writes = True
            self.settle(written)
            text = "" if is_late else linecache.getline(where.file, where.line).strip()
            factors = tuple((key, self._norms[key] / norm) for key, norm in before.items() if 0 < norm < math.inf)
            event = Write(where=where, params=these(written), text=text, is_late=is_late, factors=factors)
            norms = [total(list(map(x.__getitem__, written)), 2.0) for x in (before, self._norms)]
            self.recorder.add(replace(event, before=norms[0], after=norms[1]))

    def _take_made(self, written: Ids) -> Ids:
        """The written ones, without those that took a clipped gradient from a clip that returned new ones."""
        taken = frozenset(key for key in written if self.mark(self.grad(self.known[key])) in self._made)
        for key in taken:
            self._made[self.mark(self.grad(self.known[key]))].params.add(key)
        self.settle(taken)
        return written - taken

    def close_made(self, stepped: Ids) -> None:
        """Say of this thread's clips that returned new gradients which parameters took these."""
        here = self.hands.thread()
        mine = {key: made for key, made in self._made.items() if made.thread == here}
        for clip in {id(made.clip): made.clip for made in mine.values()}.values():
            if clip.ids & stepped:
                taken = frozenset().union(*(x.params for x in mine.values() if x.clip is clip))
                self.recorder.put(clip, replace(clip, params=these(taken), is_dropped=not taken and not clip.only_measures))
        self._made = {key: made for key, made in self._made.items() if made.thread != here}

    def after_a_line(self, last: Place) -> bool:
        with self.recorder.quietly():
            closely = self.is_close or self.size() <= _SMALL
            if closely:
                self.look_for_a_step(last)
            is_changed = any(self.changed(self.hands.mine(self.known), closely=closely))
            if is_changed:
                self.flush(last, closely=closely, is_late=False)
        return is_changed

    def watch_lines(self) -> None:
        """Look after each line of the user's code, until the next event. Not where something is compiled: it could differ.

        Later steps write what the first ones wrote: where these wrote nothing, a look at the next event is enough.
        """
        is_needed = self.has_writes or not self.has_optimizer or self.recorder.done < LOOKED
        if is_needed and not self.is_compiling_seen:
            self.lines.start()

    # ---- the events ----

    def backward(self, call: Callable[[], Any], roots: Any = (), *, is_local: bool = False, scale: float = 1.0) -> Any:
        """Record a backward pass, from these tensors."""
        where = place(self.framework)
        self.here.scaled = scale
        added: Ids = NO_IDS
        with self.recorder.quietly():
            self.lines.stop()
            if not self.in_backward:
                self.flush(where)
                self.step_by_hand(where)
                self.look_for_bounds(where)
                added = self.left()
            self.hands.open(where, self.reached(roots) if self.hands.are_several else None)
        try:
            result = call()
        except BaseException:
            self.hands.close()
            raise
        with self.recorder.quietly():
            mine = frozenset(self.hands.mine(self.known, self.hands.passed() & self.known.keys()))
            self.hands.close()
            written, _ = self.changed(mine, closely=not self.counts_passes)
            self.settle(mine)
            self.hands.take(written)
            broken = these(key for key in written if not math.isfinite(self._norms.get(key, 0.0)))
            event = Backward(where=where, params=these(written), is_local=is_local, added=these(added & written), broken=broken)
            event = replace(event, scaler=scaled(scale), is_again=self.recorder.stepping is not None)
            self.passed(written)
            self.recorder.add(event)
        self.watch_lines()
        return result

    def clip(self, call: Callable[[], Any], request: Request, made: Callable[[Any], Sequence[Any]] | None = None) -> Any:
        """Record a clip.

        Args:
            call: the clip.
            request: what it clips.
            made: for a clip that returns new gradients: these, from its result.
        """
        recorder, where = self.recorder, place(self.framework)
        with recorder.quietly():
            self.lines.stop()
            learned = self.learn(request.tensors)
            self.flush(where, learned, closely=True)
            self.hands.take(learned)
            params, without, grads = self._params_of(request)
            before = self.norms(grads, float(request.order), full=True)
            trial = self.trials.of(where, request, grads)
        result, error = None, None
        start = time.perf_counter()
        try:
            with recorder.hushed():
                result = call()
        except Exception as raised:
            error = raised
        seconds = time.perf_counter() - start
        with recorder.quietly():
            new = list(made(result)) if made is not None and error is None else None
            self.here.is_skipped = recorder.stepping is not None and skips(result)
            after = self.norms(grads if new is None else new, float(request.order), full=True)
            own_seconds, other_seconds = trial() if trial is not None and error is None else (seconds, math.nan)
            event = replace(
                request.event(where, params, before, after, self.here.scaled),
                without=without,
                culprits=self._culprits(request, params, before),
                returned=returned(result if request.norm is None else request.norm),
                is_failed=error is not None,
                seconds=min(seconds, own_seconds),
                other_seconds=other_seconds,
            )
            self._add(event, new)
        self.watch_lines()
        if error is not None:
            raise error
        return result

    def _add(self, event: Clip, new: Sequence[Any] | None) -> None:
        """Record a clip, and the new gradients that it made; inside of a step the optimizer takes these."""
        self.recorder.add(event)
        taken = set() if self.recorder.stepping is None else set(event.ids)
        if new is None or taken:
            self.settle(event.ids)
        here = self.hands.thread()
        self._made.update({self.mark(x): Made(x, event, here, taken) for x in new or ()})

    def _culprits(self, request: Request, params: Ids, before: Sequence[float]) -> tuple[str, ...]:
        """The names of the parameters whose gradients were not finite."""
        if all(map(math.isfinite, before)):
            return ()
        keys = [id(x) for x in request.tensors if id(x) in params]
        found = [key for key, n in zip(keys, before, strict=False) if not math.isfinite(n)]
        self.name(frozenset(found))
        return tuple(self.recorder.names.get(key, "a gradient") for key in found)

    def _params_of(self, request: Request) -> tuple[Ids, Ids, list[Any]]:
        """The parameters with a gradient, those without, and the gradients; a tensor that is none stands for itself."""
        mine = self.hands.mine(self.known, self.known.keys() & {id(x) for x in request.tensors})
        by_grad = {self.mark(grad): key for key in mine if (grad := self.grad(self.known[key])) is not None}
        filled, without, grads = set(), set(), []
        for x in request.tensors:
            is_param = request.are_params or id(x) in self.known
            grad = self.grad(x) if is_param else x
            if grad is None:
                without.add(id(x))
                continue
            grads.append(grad)
            filled.add(id(x) if is_param else by_grad.get(self.mark(x), id(x)))
        return frozenset(filled), frozenset(without), grads

    def unscale(self, call: Callable[[], Any], params: Iterable[Any]) -> Any:
        """Record that a scaler divides gradients by the scale."""
        return self._write(Unscale, call, params)

    def zero(self, call: Callable[[], Any], params: Iterable[Any]) -> Any:
        """Record that gradients are removed."""
        return self._write(Zero, call, params)

    def _write(self, kind: type[Unscale | Zero], call: Callable[[], Any], params: Iterable[Any]) -> Any:
        where, was_on = place(self.framework), self.lines.is_on
        with self.recorder.quietly():
            self.lines.stop()
            learned = self.learn(params)
            self.flush(where, learned)
            self.step_by_hand(where)
            self.hands.take(learned)
        with self.recorder.hushed():
            result = call()
        with self.recorder.quietly():
            self.settle(learned)
            self.recorder.add(kind(where=where, params=these(learned)))
            if kind is Zero:
                self.hands.release(learned)
        if was_on or kind is Unscale:
            self.watch_lines()
        return result

    def before_step(self, params: Iterable[Any]) -> Ids:
        """What an optimizer is about to step; all its parameters."""
        where, self.has_optimizer = place(self.framework), True
        with self.recorder.quietly():
            self.lines.stop()
            learned = self.learn(params)
            self.flush(where, learned, closely=True)
            self.hands.take(learned)
            self.here.present = self._with_gradients(learned)
            self.here.norms = self.norms_of(self.here.present)
            self.look_for_a_clip(where)
            if self.replicas is not None:
                self.replicas.before({key: self.known[key] for key in learned}, self.grad)
        self.recorder.stepping = self
        return learned

    def is_exempt(self, param: Any) -> bool:
        """Whether the script has marked a parameter as not to be clipped."""
        return False

    def is_sparse(self, grad: Any) -> bool:
        """Whether a gradient is sparse, and the framework's own clips refuse such."""
        return False

    def _with_gradients(self, params: Ids) -> Ids:
        return frozenset(key for key in params if self.grad(self.known[key]) is not None)

    def after_step(self, name: str, optimizer: int, learned: Ids, *, skipped: bool = False) -> None:
        """Record a step."""
        self.recorder.stepping = None
        by_rule, self.here.is_skipped = self.here.is_skipped, False
        with self.recorder.quietly():
            # a closure makes them, and a step may remove them
            stepped = (self.here.present & learned) | self._with_gradients(learned)
            self.close_made(learned)
            self.name(learned)  # the model may be gone when the script ends
            norms = self.here.norms if stepped <= self.here.present else self.norms_of(stepped)
            if self.replicas is not None:
                self.replicas.after({key: self.known[key] for key in learned})
            is_sparse = bool(stepped) and all(self.is_sparse(self.grad(self.known[key])) for key in stepped)
            exempt = these(key for key in learned if self.is_exempt(self.known[key]))
            if not (skipped or by_rule):
                self.take_gradients(stepped)
                self.keep_largest(stepped)
            self.hands.release(learned)
        seconds = self.recorder.since_the_last_step()
        kind = Skip if skipped else SkipByRule if by_rule else Step
        event = kind(where=place(self.framework), params=these(stepped), text=name, optimizer=optimizer, owns=learned)
        event = replace(event, total=len(learned), seconds=seconds, norms=norms, exempt=exempt, is_within=self.in_backward)
        event = replace(event, is_sparse=is_sparse)
        self.recorder.add(event)
