"""Watches gradclip's own clips, of every framework: they all go through ``gradclip.core.engine.run``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradclip.core import engine
from gradclip.core.engine import Options
from gradclip.core.gradients import Gradients, open_
from gradclip.core.groups import Rules
from gradclip.core.rule import Rule, Scope
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.request import Request
from gradclip.doctor.watch import Watch

__all__ = ["start"]


def start(recorder: Recorder) -> None:
    """Watch the engine: its clips are those of the watch of their framework, or of an optimizer that steps now."""
    original = engine.run

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(grads: Gradients, rules: Rules, options: Options) -> Any:
            watch = recorder.stepping or _watch_of(recorder.watches, grads)
            if watch is None or recorder.is_quiet or options.until == "norm" or watch.is_traced():
                return original(grads, rules, options)
            request = _request(grads, rules, options, watch, original)
            made = None if options.into == "place" or options.until != "scale" else _new
            return watch.clip(lambda: original(grads, rules, options), request, made)

        return run

    run = recorder.guard.around(original, make)  # with its marks for tracers
    _put(original, run)
    recorder.undo(lambda: _put(run, original))


def _put(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Put a function in the place of another, wherever gradclip's modules have imported it."""
    for module in [x for name, x in sys.modules.items() if name.partition(".")[0] == "gradclip"]:
        if getattr(module, "run", None) is old:
            module.run = new  # type: ignore[attr-defined]


def _watch_of(watches: Mapping[str, Watch], grads: Gradients) -> Watch | None:
    if grads.backend is not None:
        return watches.get(grads.backend.name)
    return next(iter(watches.values())) if len(watches) == 1 else None  # nothing to clip: no tensor says whose it is


def _new(result: Any) -> Sequence[Any]:
    """The new gradients in a result."""
    return open_(result.grads, holders="none").present


def _request(grads: Gradients, rules: Rules, options: Options, watch: Watch, original: Callable[..., Any]) -> Request:
    rule = rules if isinstance(rules, Rule) else None
    tensors = [x if param is None else param for x, param in zip(grads.leaves, grads.params, strict=True)]
    tensors = [x for x in tensors if x is not None]
    is_iterator = grads.container.was_iterator
    if rule is None:
        return Request("gradclip, in groups", tensors, float("nan"), is_iterator=is_iterator)
    is_value, is_each = rule.scope is Scope.VALUE, rule.scope in (Scope.TENSOR, Scope.AXES, Scope.EXAMPLE)
    limit = rule.limit if not is_value else rule.upper
    order = float("inf") if is_value else rule.order
    name, is_partial = f"gradclip {rule.name}", options.reduce is not None
    request = Request(name, tensors, limit, order, is_value, is_each, is_iterator, is_partial=is_partial)
    request.are_params = any(param is not None for param in grads.params)

    def own(copies: list[Any]) -> Any:
        return original(open_(copies, holders="none"), rule, Options("place"))

    plain = rule.name == "torch.clip_grad_norm" and options == Options("place", reduce=None)
    return dataclasses.replace(request, own=own, other=watch.native(rule.limit, rule.order)) if plain else request
