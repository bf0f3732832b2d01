"""What a script does by hand, without the framework's own functions: its steps, and code that may be a clip."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from gradclip.doctor import hand
from gradclip.doctor.events import NO_IDS, Bound, Ids, Norms, Read, Step, these
from gradclip.doctor.places import NOWHERE, Place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.seen import Seen

__all__ = ["LOOKED", "ByHand"]

LOOKED = 3  #: first steps in which the script's own code is watched closely


class _InThread(threading.local):
    """The steps by hand of one thread."""

    def __init__(self) -> None:
        self.is_known = False  #: whether the script has changed its parameters itself
        self.line = NOWHERE  #: the line that has done so since the last pass
        self.weights: dict[int, float] = {}  #: the norms of the parameters after the last pass, without those stepped
        self.first: Step | None = None  #: the first step, as long as its line is not known
        self.step: Step | None = None  #: the step since the last pass


class ByHand(Seen):
    """Sees parameters that the script changes itself, where no optimizer is, and code that may clip."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._searched: set[Place] = set()  # the lines of steps
        self.has_optimizer = False  #: in any thread: one may make the gradients, and another step
        self._of_passes: Ids = NO_IDS  # the parameters that only a pass has told of
        self._taken: dict[int, tuple[int, int]] = {}  # the gradients that a step has taken, until a pass or a write
        self._by_hand = _InThread()
        self._largest: dict[int, float] = {}  # the largest magnitude of each parameter after the last of the first steps

    def close_made(self, stepped: Ids) -> None:
        """Supplied by the watch: a step takes the gradients that clips have made."""
        raise NotImplementedError

    def learn_from_a_pass(self, params: Callable[[], Iterable[Any]]) -> None:
        """Know the parameters of a pass as long as no optimizer and no clip has told of any: the script may step by hand."""
        if not self.has_optimizer and self.known.keys() <= self._of_passes:
            self._of_passes |= self.learn(params())

    def passed(self, written: Ids) -> None:
        """A backward pass of this thread has written these."""
        self._taken = {key: state for key, state in self._taken.items() if key not in written}
        here = self._by_hand
        here.step, here.weights = None, {} if self.has_optimizer else self._norms_of_weights()

    def left(self) -> Ids:
        """The parameters whose gradients are as a step took them: a pass would add to these."""
        same = [key for key in self.hands.mine(self._taken) if self._state.get(key) == self._taken[key]]
        kept = [(key, grad) for key in same if (grad := self.grad(self.known[key])) is not None]
        norms = self.norms([grad for _, grad in kept], 2.0)
        return frozenset(key for (key, _), norm in zip(kept, norms, strict=True) if norm != 0)

    def take_gradients(self, stepped: Ids) -> None:
        """A step has taken the gradients of these."""
        self._taken |= {key: state for key in stepped if (state := self.state(self.known[key])) is not None}

    def norms_of(self, params: Ids) -> Norms:
        """As they were seen last."""
        return tuple((key, self._norms[key]) for key in params if key in self._norms)

    # ---- steps ----

    def look_for_a_step(self, last: Place) -> None:
        """Keep the line that has changed parameters, once the script is known to do so."""
        here = self._by_hand
        if here.is_known and not here.line.file and self._changed_by_hand():
            here.line = replace(last, framework=self.framework)

    def _norms_of_weights(self) -> dict[int, float]:
        """Of this thread's parameters that have a gradient."""
        keys = [key for key in self.hands.mine(self.known) if key in self._state]
        return dict(zip(keys, self.norms([self.known[key] for key in keys], 2.0), strict=True))

    def _changed_by_hand(self) -> Ids:
        """The parameters that have changed since the pass, without an optimizer."""
        weights = self._by_hand.weights
        if self.has_optimizer or not weights:
            return NO_IDS
        now = dict(zip(weights, self.norms([self.known[key] for key in weights], 2.0), strict=True))
        return frozenset(key for key, norm in now.items() if norm != weights[key] and not math.isnan(weights[key]))

    def step_by_hand(self, where: Place) -> None:
        """Record that the script itself has changed its parameters since the last pass, where no optimizer is."""
        here, changed = self._by_hand, self._changed_by_hand()
        if not changed:
            return
        here.is_known = True
        self.take_gradients(frozenset(key for key in changed if key in self._state))
        here.weights = {key: norm for key, norm in here.weights.items() if key not in changed}
        norms, is_placed = self.norms_of(changed), bool(here.line.file)
        if here.step is not None:  # a loop over the parameters
            params = here.step.ids | changed
            whole = replace(here.step, params=these(params), owns=params, norms=here.step.norms + norms)
            self.recorder.put(here.step, whole)
            here.first, here.step = whole if here.first is here.step else here.first, whole
            return
        if is_placed and here.first is not None:  # the line of the first step was not known
            self.recorder.put(here.first, replace(here.first, where=here.line))
            here.first = None
        step = Step(
            where=here.line if is_placed else where, params=these(changed), owns=changed, text="the script", norms=norms
        )
        step = replace(step, total=len(self.known), seconds=self.recorder.since_the_last_step())
        here.first = here.first if is_placed else step
        here.line, here.step = NOWHERE, step
        self.close_made(changed)
        self.name(changed)
        self.hands.release(changed)
        self.recorder.add(step)

    # ---- bounds of parameters ----

    def keep_largest(self, params: Ids) -> None:
        """A step has changed these."""
        if self.recorder.done < LOOKED:
            keys = list(params)
            self._largest.update(zip(keys, self.norms([self.known[key] for key in keys], math.inf), strict=True))

    def look_for_bounds(self, where: Place) -> None:
        """Record that the script has bounded the elements of parameters since their step: several then have one largest."""
        before, self._largest = self._largest, {}
        now = dict(zip(before, self.norms([self.known[key] for key in before], math.inf), strict=True))
        bounded = frozenset(key for key in now if now[key] < before[key])
        largest = [now[key] for key in bounded]
        if bounded and largest.count(max(largest)) >= min(2, len(now)) and all(now[key] <= before[key] for key in now):
            self.recorder.add(Bound(where=where, params=these(bounded)))

    # ---- clips ----

    def look_for_a_clip(self, where: Place) -> None:
        """Record the code around a step that may clip by hand, once for each line of a step."""
        if where not in self._searched:
            self._searched.add(where)
            found = hand.reading(hand.HELD)
            if found is not None:
                self.recorder.add(Read(where=found))
            elif (off := hand.switched(self.clips)) is not None:
                self.recorder.add(Read(where=off, is_switch=True))
