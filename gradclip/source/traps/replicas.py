"""GM122: each replica clips its own gradients, and the sum over the replicas comes after that."""

from __future__ import annotations

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import keyword, literal
from gradclip.source.flow import APPLIES
from gradclip.source.found import ApiCall, Finding
from gradclip.source.objects import entered, first_of, updates
from gradclip.source.source import Source, last_name, once, receiver, words

__all__ = ["check", "not_synchronised"]

_RUNS = words("run experimental_run_v2 call_for_each_replica")
_REDUCES = words("pmean psum")
_ADVICE = "Reduce first, then clip; if you mean a bound for each replica's part, ignore this."


def check(found: ApiCall) -> Finding | None:
    """A clip before a collective, in a function that a strategy runs on each replica, or under ``no_sync``."""
    if found.api.kind is Kind.OBJECT:
        return _transformed(found)
    if found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED):
        return None
    return _before_mean(found) or _in_replica(found) or not_synchronised(found)


def _before_mean(found: ApiCall) -> Finding | None:
    flow = found.context.flow
    if not flow.has(found.call, "reduce"):
        return None
    reduce, step = (next(flow.after(found.call, kind), None) for kind in ("reduce", "step"))
    if reduce is None or (step is not None and step.start < reduce.start):  # the step takes the gradients
        return None
    return _finding(found.context.source.shown(reduce.call))


def _finding(reduced: str) -> Finding:
    return Finding(
        "GM122", f"Each replica clips its own gradients, and {reduced} reduces them over the replicas after that.", _ADVICE
    )


def _transformed(found: ApiCall) -> Finding | None:
    """``grads, _ = clip.update(grads, state)``, and then ``pmean(grads)``."""
    context = found.context
    if found.api.framework != "optax":
        return None
    clips = updates(found.call, context)
    for name in _REDUCES if clips else ():
        for call in context.source.calls.get(name, ()):
            if call.args and first_of(call.args[0].value, context) in clips:
                return _finding(context.source.shown(call))
    return None


def _in_replica(found: ApiCall) -> Finding | None:
    """A clip before ``apply_gradients`` in a function that ``strategy.run`` calls on each replica."""
    source, flow = found.context.source, found.context.flow
    function = source.function(found.call)
    step = next(flow.after(found.call, "step"), None)
    if not isinstance(function, cst.FunctionDef) or step is None or last_name(step.call.func) not in APPLIES:
        return None
    run = _replicated(source).get(function.name.value)
    if run is None or any(flow.before(found.call, "reduce")) or any(_keeps_apart(argument) for argument in step.call.args):
        return None
    reason = f"{source.shown(run)} runs `{function.name.value}` on each replica, and {source.shown(step.call)} sums over them."
    return Finding("GM122", f"{reason} Each replica clips its own part of the gradients before the sum.", _ADVICE)


@once
def _replicated(source: Source) -> dict[str, cst.Call]:
    """The functions that a strategy runs on each replica, by name."""
    calls = (call for name in _RUNS for call in source.calls.get(name, ()) if call.args)
    return {last_name(call.args[0].value): call for call in calls if "strategy" in last_name(receiver(call)).lower()}


def _keeps_apart(argument: cst.Arg) -> bool:
    """``experimental_aggregate_gradients=False`` or ``skip_gradients_aggregation=True``: the program has summed."""
    return (keyword(argument), literal(argument.value)) in (
        ("experimental_aggregate_gradients", False),
        ("skip_gradients_aggregation", True),
    )


def not_synchronised(found: ApiCall) -> Finding | None:
    """A clip inside ``with model.no_sync():``: the gradients are those of this process alone."""
    source = found.context.source
    inside = entered(found.call, "no_sync", source)
    if inside is None:
        return None
    reason = f"Inside {source.shown(inside)} the gradients are those of this process, not yet summed over all."
    return Finding("GM122", reason, "Clip after the backward pass that synchronises, outside of the `with`.")
