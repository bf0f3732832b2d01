"""The order of a training step: the calls that make, unscale, clip and use gradients."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from gradclip.source.gradients import Gradients
from gradclip.source.source import Source, last_name, receiver, words

__all__ = ["APPLIES", "Event", "Flow"]

APPLIES = words("apply_gradients apply")  #: the methods by which Keras's optimizers take gradients: `apply` since Keras 3

_FAR = 20  #: so many events whose ``if`` excludes them are read
_OPTIMIZER = re.compile(r"opt(im\w*|s|_\w+|\d*|(?-i:[A-Z])\w*)?\b|solver|scaler|adam|sgd|rmsprop", re.IGNORECASE)
_SCHEDULER = re.compile(r"sched|warmup|swa|ema\b", re.IGNORECASE)
_KINDS = {
    "backward": "backward",
    "manual_backward": "backward",
    "apply_gradients": "step",
    "unscale_": "unscale",
    "unscale_gradients": "unscale",
    "get_unscaled_gradients": "unscale",
    "get_scaled_loss": "scale",
    **dict.fromkeys(("zero_grad", "clear_grad", "clear_gradients"), "zero"),
    **dict.fromkeys(("pmean", "psum", "all_reduce", "allreduce", "all_reduce_", "all_reduce_sum"), "reduce"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One relevant call."""

    kind: str  #: "backward", "step", "zero", "unscale", "scale", "reduce" (of gradients)
    start: int
    call: cst.Call

    @property
    def of(self) -> cst.BaseExpression | None:
        """The object that the call steps, zeroes or unscales: the optimizer of ``scaler.step(optimizer)`` too."""
        owner = receiver(self.call)
        return self.call.args[0].value if "scaler" in last_name(owner).lower() and self.call.args else owner


class Flow:
    """The events of one source, grouped by function."""

    def __init__(self, source: Source, gradients: Gradients) -> None:
        self._source, self._gradients = source, gradients

    @functools.cached_property
    def _events(self) -> Mapping[cst.CSTNode, list[Event]]:
        found: dict[cst.CSTNode, list[Event]] = {}
        for call in self._source.any(cst.Call):
            kind = self._kind(call)
            if kind:
                found.setdefault(self._source.function(call), []).append(Event(kind, self._source.start(call), call))
        return found

    def _kind(self, call: cst.Call) -> str:
        if (owner := receiver(call, "step", "apply")) is not None:
            code = self._source.code(owner)
            return "step" if _OPTIMIZER.search(code) and not _SCHEDULER.search(code) else ""
        if (owner := receiver(call, "scale_loss")) is not None:  # Keras 3's; apex's is a function of a module
            return "scale" if _OPTIMIZER.search(self._source.code(owner)) else ""
        kind = _KINDS.get(last_name(call.func), "")
        if kind == "reduce" and not any(self._gradients.is_gradient(argument.value) for argument in call.args):
            return ""
        return kind

    def meets(self, call: cst.Call, node: cst.CSTNode) -> bool:
        """Whether a call can run in the same step as a node: in its function, and not in a branch that excludes it."""
        source = self._source
        if source.function(call) is not source.function(node):
            return False
        if not (source.sides(node) and source.sides(call)):
            return True
        conditions = self._conditions(node)
        excluded = any((test, not holds) in conditions for test, holds in self._conditions(call))
        return not excluded and source.excluding(call, node) is None

    def has(self, node: cst.CSTNode, kind: str) -> bool:
        """Whether the function of a node has an event of this kind: cheaper than a search around the node."""
        return bool(self._events_near(node, (kind,)))

    def optimizers(self, node: cst.CSTNode) -> frozenset[str]:
        """The text of everything that the function of a node steps."""
        function = self._source.function(node)
        steps = self._events_near(node, ("step",))
        stepped = (self._source.code(step.of) for step in steps if step.of is not None)
        return self._source.once((Flow.optimizers, function), lambda: frozenset(stepped))

    def _events_near(self, node: cst.CSTNode, kinds: tuple[str, ...]) -> list[Event]:
        """The events of the function of a node, in order."""
        function = self._source.function(node)
        return self._source.once((Flow, function, kinds), lambda: self._of_kinds(function, kinds))

    def _of_kinds(self, function: cst.CSTNode, kinds: tuple[str, ...]) -> list[Event]:
        found = (event for event in self._events.get(function, ()) if event.kind in kinds)
        return sorted(found, key=lambda event: event.start)

    def _conditions(self, node: cst.CSTNode) -> frozenset[tuple[str, bool]]:
        """The tests of the ``if``s that enclose a node, each with its value at the node."""
        return self._source.once((Flow._conditions, node), lambda: self._tests(node))

    def _tests(self, node: cst.CSTNode) -> frozenset[tuple[str, bool]]:
        found = set()
        for test, holds in self._source.tests(node):
            while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
                test, holds = test.expression, not holds
            found.add((self._source.one_line(test), holds))
        return frozenset(found)

    def before(self, node: cst.CSTNode, *kinds: str) -> Iterator[Event]:
        """The events before a node, the last one first; a search that stops at the first few stays cheap."""
        around = set(self._source.ancestors(node))  # apply_gradients([clip(g) for g in grads]) comes after the clip
        found = self._events_near(node, kinds)
        last = bisect.bisect_left(found, self._source.start(node), key=lambda event: event.start)
        return (event for event in self._meeting(node, found, last - 1, -1) if event.call not in around)

    def after(self, node: cst.CSTNode, *kinds: str) -> Iterator[Event]:
        """The events after a node, in order."""
        found = self._events_near(node, kinds)
        first = bisect.bisect_left(found, self._source.end(node), key=lambda event: event.start)
        return self._meeting(node, found, first, 1)

    def _meeting(self, node: cst.CSTNode, found: list[Event], number: int, step: int) -> Iterator[Event]:
        """The events from a number on that meet a node.

        The sides of one ``match`` are passed at once: a thousand sides with a clip in each are not a million steps.
        """
        source, left = self._source, _FAR
        while 0 <= number < len(found) and left:
            call = found[number].call
            if self.meets(call, node):
                yield found[number]
            elif (branch := source.excluding(call, node)) is not None and not isinstance(branch, cst.IfExp):
                start, end = source.sides_of(branch)
                position = start if step < 0 else end
                number = bisect.bisect_left(found, position, key=lambda event: event.start) - (step > 0)
            else:
                left -= 1
            number += step
