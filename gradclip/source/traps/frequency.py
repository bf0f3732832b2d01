"""GM119: a clip in each micro-batch, where the optimizer steps after several of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import keywords, number
from gradclip.source.flow import Event
from gradclip.source.found import IN_PLACE, ApiCall, Context, Finding
from gradclip.source.objects import entered
from gradclip.source.source import Source, target_names

__all__ = ["check", "under_accumulate"]

_FAR = 5  #: so many branches between a clip and a step are read
_EVERY = re.compile(r"%|accum|sync_grad|is_update|last_micro", re.IGNORECASE)  #: tests that are true every k passes


def check(found: ApiCall) -> Finding | None:
    """A clip in each pass of a loop or each call of a function, and a step every k passes: it clips incomplete sums."""
    flow, source, call = found.context.flow, found.context.source, found.call
    loop = source.within(call, cst.For, cst.While) or source.within(call, cst.FunctionDef)
    if found.api.kind is not Kind.IN_PLACE or loop is None or not flow.has(call, "backward"):
        return None
    step = next(flow.after(call, "step"), None)
    backward = next(flow.before(call, "backward", "step"), None)
    if step is None or backward is None or backward.kind != "backward":
        return None
    if next(flow.after(call, "step", "backward")) != step:
        return None  # the step takes other gradients
    if _is_outside(step, loop, source) and _is_outside(next(flow.before(call, "step"), None), loop, source):
        return _after_loop(found, loop, step.call, backward.call)
    around = [*source.ancestors(call)]
    branch = next((o for o in source.ancestors(step.call) if isinstance(o, cst.If) and o not in around), None)
    branch = branch or _guard(found, step.call)
    if branch is None or not all(loop in source.ancestors(node) for node in (branch, step.call, backward.call)):
        return None
    if not _EVERY.search(source.code(branch.test)) or any(_is_every(outer, found) for outer in around):
        return None
    end = source.end(branch) if branch in source.ancestors(step.call) else source.end(source.statement(loop))
    zeros = [*flow.before(call, "zero"), *flow.after(call, "zero")]
    if any(not source.start(branch) < zero.start < end and loop in source.ancestors(zero.call) for zero in zeros):
        return None  # each pass has gradients of its own
    shown, runs = source.shown(branch.test), "runs only if" if branch in source.ancestors(step.call) else "does not run if"
    where = "call of the function" if isinstance(loop, cst.FunctionDef) else "pass of the loop"
    reason = f"It clips in each {where}, and {source.shown(step.call)} {runs} {shown}: partial sums are clipped."
    return Finding("GM119", reason, "Clip in the same `if`, before the step." if "only" in runs else "Clip after this `if`.")


def _is_outside(event: Event | None, loop: cst.CSTNode, source: Source) -> bool:
    return event is None or not source.start(loop) < event.start < source.end(loop)


def _guard(found: ApiCall, step: cst.Call) -> cst.If | None:
    """``if (i + 1) % k: continue`` between a clip and a step."""
    source = found.context.source
    for one in source.between(cst.If, source.end(found.call), source.start(step))[:_FAR]:
        last = one.body.body[-1]
        leaves = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], (cst.Continue, cst.Return))
        if leaves and one.orelse is None and one not in source.ancestors(step):
            return one
    return None


def _after_loop(found: ApiCall, loop: cst.CSTNode, step: cst.Call, backward: cst.Call) -> Finding | None:
    """``for batch in batches: loss(batch).backward(); clip(params)``, and the step after the loop."""
    flow, source = found.context.flow, found.context.source
    zeros = (next(flow.before(found.call, "zero"), None), next(flow.after(found.call, "zero"), None))
    inside = any(not _is_outside(zero, loop, source) for zero in zeros)
    tensors = "" if found.tensors is None else source.code(found.tensors)
    if not isinstance(loop, cst.For) or inside or loop not in source.ancestors(backward):
        return None
    if not target_names(loop.target).isdisjoint(re.findall(r"\w+", tensors)):
        return None  # each pass clips parameters of its own
    if ".grad" in source.code(loop):
        return None  # it may take the gradients of each pass
    reason = f"It clips in each pass of the loop, and {source.shown(step)} runs after the loop: partial sums are clipped."
    return Finding("GM119", reason, "Clip after the loop, before the step.")


def _is_every(outer: cst.CSTNode, found: ApiCall) -> bool:
    return isinstance(outer, cst.If) and _EVERY.search(found.context.source.code(outer.test)) is not None


def under_accumulate(context: Context) -> Iterator[tuple[cst.CSTNode, Finding]]:
    """A clip inside ``with accelerator.accumulate(model):`` without ``if accelerator.sync_gradients:``."""
    source = context.source
    calls = [call for name in IN_PLACE for call in source.calls.get(name, ())]
    if not calls or not any(_accumulates(call) for call in source.calls.get("Accelerator", ())):
        return
    for call in sorted(calls, key=source.start):
        accumulate = entered(call, "accumulate", source)
        if accumulate is not None and not any(_EVERY.search(source.code(test)) for test, _ in source.tests(call)):
            reason = f"Inside {source.shown(accumulate)} it clips in each micro-batch, and the step comes after several."
            yield call, Finding("GM119", reason, "Clip only if accelerator.sync_gradients.")


def _accumulates(made: cst.Call) -> bool:
    """``Accelerator(gradient_accumulation_steps=8)``."""
    given = keywords(made)
    steps = given.get("gradient_accumulation_steps")
    return steps is not None and number(steps) != 1
