"""GM119: a clip in each micro-batch, where the optimizer steps after several of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.code.bind import keywords, number
from gradclip.code.found import IN_PLACE, ApiCall, Context, Finding
from gradclip.code.objects import entered
from gradclip.code.source import target_names
from gradclip.natives import Kind

__all__ = ["check", "under_accumulate"]

_EVERY = re.compile(r"%|accum|sync_grad|is_update|last_micro", re.IGNORECASE)  #: tests that are true every k passes


def check(found: ApiCall) -> Finding | None:
    """A clip in a loop beside an ``if`` that steps every k passes: it clips sums of gradients that are not complete."""
    flow, source, call = found.context.flow, found.context.source, found.call
    loop = source.within(call, cst.For, cst.While)
    if found.api.kind is not Kind.IN_PLACE or loop is None or not flow.has(call, "backward"):
        return None
    step = next(flow.after(call, "step"), None)
    backward = next(flow.before(call, "backward", "step"), None)
    if step is None or backward is None or backward.kind != "backward":
        return None
    if all(loop not in source.ancestors(one.call) for one in (*flow.after(call, "step"), *flow.before(call, "step"))):
        return _after_loop(found, loop, step.call, backward.call)
    around = [*source.ancestors(call)]
    branch = next((o for o in source.ancestors(step.call) if isinstance(o, cst.If) and o not in around), None)
    if branch is None or not all(loop in source.ancestors(node) for node in (step.call, backward.call)):
        return None
    if not _EVERY.search(source.code(branch.test)) or any(_is_every(outer, found) for outer in around):
        return None
    zeros = [*flow.before(call, "zero"), *flow.after(call, "zero")]
    if any(branch not in source.ancestors(zero.call) and loop in source.ancestors(zero.call) for zero in zeros):
        return None  # each pass has gradients of its own
    shown = source.shown(branch.test)
    reason = f"It clips in each pass of the loop, and {source.shown(step.call)} runs only if {shown}: partial sums are clipped."
    return Finding("GM119", reason, "Clip in the same `if`, before the step.")


def _after_loop(found: ApiCall, loop: cst.CSTNode, step: cst.Call, backward: cst.Call) -> Finding | None:
    """``for batch in batches: loss(batch).backward(); clip(params)``, and the step after the loop."""
    flow, source = found.context.flow, found.context.source
    inside = [
        one for one in (*flow.before(found.call, "zero"), *flow.after(found.call, "zero")) if loop in source.ancestors(one.call)
    ]
    tensors = "" if found.tensors is None else source.code(found.tensors)
    if not isinstance(loop, cst.For) or inside or loop not in source.ancestors(backward):
        return None
    if not target_names(loop.target).isdisjoint(re.findall(r"\w+", tensors)):
        return None  # each pass clips parameters of its own
    if ".grad" in source.code(loop):
        return None  # it may take the gradients of each pass
    if next(flow.after(found.call, "step", "backward")).call is not step:
        return None
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
