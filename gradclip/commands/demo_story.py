"""Why to clip, for ``gradclip demo``: a training run that explodes without clipping, and the same with each clip, in NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gradclip.conformance import children

__all__ = ["MOST_STEPS", "Story", "Training", "run"]

MOST_STEPS = 300  #: more steps show nothing new
_PROCESS = "gradclip.backends.demo"


@dataclass(slots=True)
class Training:
    """One training: the norms and losses of its steps, before the clip."""

    rule: str  #: "" for none
    loss: list[float] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)  #: the largest of several
    accuracy: float | None = None  #: on the test images

    @property
    def lost_at(self) -> int | None:
        """The first step, from 1, after which loss or norm is no longer finite; None if both stay finite."""
        pairs = zip(self.loss, self.norm, strict=True)
        return next((step for step, pair in enumerate(pairs, 1) if not all(map(math.isfinite, pair))), None)


@dataclass(slots=True)
class Story:
    """The trainings, the first without a clip."""

    trainings: list[Training]
    error: str | None = None  #: why there is no story

    @property
    def good(self) -> bool:
        """Whether every training with a clip went well."""
        return self.error is None and all(training.lost_at is None and training.loss for training in self.trainings[1:])

    def receive(self, message: children.Message) -> None:
        """Read one message of the process."""
        training = self.trainings[message["training"]]
        if "accuracy" in message:
            training.accuracy = message["accuracy"]
        else:
            training.loss.append(message["loss"])
            training.norm.append(_largest(message["norm"]))

    def as_json(self) -> dict[str, Any]:
        """The complete story, with every step."""
        trainings = [{**asdict(training), "lost_at": training.lost_at} for training in self.trainings]
        return {"error": self.error, "trainings": trainings}


def _largest(norms: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, norms)) else max(norms)


def run(steps: int, calls: Sequence[Any], environment: dict[str, str], said: Callable[[str], None]) -> Story:
    """Train without a clip, and with each of these rules, given as :class:`gradclip.commands.demo_runs.Call`."""
    said("numpy: training a network that explodes, without a clip and with each")
    story = Story([Training(""), *(Training(str(call)) for call in calls)])
    rules = [[call.dialect, call.function, call.arguments] for call in calls]
    task = json.dumps({"steps": min(steps, MOST_STEPS), "rules": rules})
    story.error = children.run(_PROCESS, ["story", task], story.receive, environment)
    return story
