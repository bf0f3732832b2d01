"""Limits of other projects as functions for the conformance suite: each observes norms and returns a limit.

    pip install smartclip
    gradclip conformance examples/limits/third_parties.py:SmartAuto --limit

``ZClip`` and ``AutoClip`` follow their public code (github.com/bluorion-com/ZClip, github.com/pseeth/autoclip), which no
package index offers; smartclip's classes are imported.
"""

from __future__ import annotations

import copy
import math
from typing import Any


class _Object:
    """Wraps a mutable object as functions of a state, which is a copy of the object's attributes."""

    def make(self) -> Any:
        raise NotImplementedError

    def ask(self, clipper: Any) -> float:
        raise NotImplementedError

    def tell(self, clipper: Any, norm: float) -> None:
        raise NotImplementedError

    def init(self) -> Any:
        return self.state_of(self.make())

    def state_of(self, clipper: Any) -> Any:
        return copy.deepcopy(vars(clipper))

    def clipper_of(self, state: Any) -> Any:
        clipper = self.make()
        vars(clipper).update(copy.deepcopy(state))
        return clipper

    def limit(self, state: Any) -> float:
        return self.ask(self.clipper_of(state))

    def observe(self, state: Any, norm: float) -> Any:
        clipper = self.clipper_of(state)
        self.tell(clipper, norm)
        return self.state_of(clipper)


class SmartAuto(_Object):
    """smartclip 0.1.1, AutoClip: saved and loaded through its own ``state_dict``."""

    kind = "AutoClip"

    def make(self) -> Any:
        import smartclip

        return getattr(smartclip, self.kind)()

    def state_of(self, clipper: Any) -> Any:
        return dict(clipper.state_dict())

    def clipper_of(self, state: Any) -> Any:
        clipper = self.make()
        clipper.load_state_dict(state)
        return clipper

    def ask(self, clipper: Any) -> float:
        return float(clipper.threshold()) if clipper.can_clip() else math.inf

    def tell(self, clipper: Any, norm: float) -> None:
        clipper.observe(norm)


class SmartZScore(SmartAuto):
    """smartclip 0.1.1, ZScoreClip."""

    kind = "ZScoreClip"


class AutoClip(_Object):
    """AutoClip's original code: a percentile of all norms, including the current step's."""

    class _Kept:
        def __init__(self) -> None:
            self.history: list[float] = []

    def make(self) -> Any:
        return self._Kept()

    def ask(self, clipper: Any) -> float:
        norms = sorted(clipper.history)
        return norms[int(0.1 * (len(norms) - 1))] if norms else math.inf

    def tell(self, clipper: Any, norm: float) -> None:
        clipper.history.append(norm)


class ZClip(_Object):
    """ZClip's code with its defaults: it averages norms without checking them, and it never restarts."""

    class _Averages:
        def __init__(self) -> None:
            self.buffer: list[float] = []
            self.mean: float | None = None
            self.var = 0.0

    def make(self) -> Any:
        return self._Averages()

    def ask(self, clipper: Any) -> float:
        return 1.0 if clipper.mean is None else clipper.mean + 2.5 * (math.sqrt(clipper.var) + 1e-6)

    def tell(self, clipper: Any, norm: float) -> None:
        if clipper.mean is None:
            clipper.buffer.append(norm)
            if len(clipper.buffer) == 25:
                clipper.mean = sum(clipper.buffer) / 25
                clipper.var = sum((n - clipper.mean) ** 2 for n in clipper.buffer) / 25
                clipper.buffer = []
            return
        deviation = math.sqrt(clipper.var)
        z = (norm - clipper.mean) / (deviation + 1e-6)
        seen = clipper.mean + 2.5 * deviation / (z / 2.5) if z > 2.5 else norm
        clipper.mean = 0.97 * clipper.mean + 0.03 * seen
        clipper.var = 0.97 * clipper.var + 0.03 * (seen - clipper.mean) ** 2
