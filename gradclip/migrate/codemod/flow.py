"""The order of a training step: the calls that make, unscale, clip and use gradients."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from gradclip.migrate.codemod.resolve import Resolver
from gradclip.migrate.codemod.source import Source, last_name

__all__ = ["Event", "Flow"]

_OPTIMIZER = re.compile(r"opt(im\w*|s|_\w+|\d*)?\b|solver|scaler|adam|sgd|rmsprop", re.IGNORECASE)
_SCHEDULER = re.compile(r"sched|warmup|swa|ema\b", re.IGNORECASE)
_KINDS = {
    "backward": "backward",
    "manual_backward": "backward",
    "apply_gradients": "step",
    "unscale_": "unscale",
    "unscale_gradients": "unscale",
    "get_unscaled_gradients": "unscale",
    "get_scaled_loss": "scale",
    **dict.fromkeys(("pmean", "psum", "all_reduce", "allreduce", "all_reduce_", "all_reduce_sum"), "reduce"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One relevant call."""

    kind: str  #: "backward", "step", "unscale", "scale", "reduce"
    start: int
    call: cst.Call


class Flow:
    """The events of one source, grouped by function."""

    def __init__(self, source: Source, resolver: Resolver) -> None:
        self._source, self._resolver = source, resolver

    @functools.cached_property
    def _events(self) -> Mapping[cst.CSTNode, list[Event]]:
        found: dict[cst.CSTNode, list[Event]] = {}
        for call in self._source.any(cst.Call):
            kind = self._kind(call)
            if kind:
                found.setdefault(self._source.function(call), []).append(Event(kind, self._source.start(call), call))
        return found

    def _kind(self, call: cst.Call) -> str:
        name = last_name(call.func)
        if name == "step" and isinstance(call.func, cst.Attribute):
            receiver = self._source.code(call.func.value)
            return "step" if _OPTIMIZER.search(receiver) and not _SCHEDULER.search(receiver) else ""
        return _KINDS.get(name, "")

    def events(self, node: cst.CSTNode, *kinds: str) -> list[Event]:
        """The events in the function of a node, in order, without events that never run together with the node."""
        found = self._events.get(self._source.function(node), ())
        conditions = self._conditions(node)
        mine = [
            event
            for event in found
            if event.kind in kinds
            and not self._source.exclusive(event.call, node)
            and not any((test, not holds) in conditions for test, holds in self._conditions(event.call))
        ]
        return sorted(mine, key=lambda event: event.start)

    def _conditions(self, node: cst.CSTNode) -> frozenset[tuple[str, bool]]:
        """The tests of the ``if``s that enclose a node, each with its value at the node."""
        found = set()
        inner = node
        for outer in self._source.ancestors(node):
            if isinstance(outer, cst.If) and inner is not outer.test:
                test: cst.BaseExpression = outer.test
                holds = inner is outer.body
                while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
                    test, holds = test.expression, not holds
                found.add((self._source.one_line(test), holds))
            elif isinstance(outer, cst.FunctionDef):
                break
            inner = outer
        return frozenset(found)

    def before(self, node: cst.CSTNode, *kinds: str) -> list[Event]:
        start = self._source.start(node)
        around = set(self._source.ancestors(node))  # apply_gradients([clip(g) for g in grads]) comes after the clip
        return [event for event in self.events(node, *kinds) if event.start < start and event.call not in around]

    def after(self, node: cst.CSTNode, *kinds: str) -> list[Event]:
        end = self._source.end(node)
        return [event for event in self.events(node, *kinds) if event.start >= end]
