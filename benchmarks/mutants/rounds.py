"""Training steps of PyTorch and Paddle whose statements stand side by side, and the mistakes that a change of them makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.mutants.edits import (
    Edit,
    Mutant,
    blocks,
    call_name,
    called,
    clone,
    expression,
    parents,
    put,
    statement,
    text_with,
)

__all__ = ["Step", "mistakes", "steps"]

CLIPS = {"clip_grad_norm_", "clip_grad_value_"}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
BOUNDARY = "(step_number + 1) % accumulation == 0"


@dataclass(frozen=True)
class Step:
    """A block with one backward, clip and step, in this order; ``at`` has the statement of each role."""

    tree: ast.Module
    owner: ast.AST
    field: str
    block: list[ast.stmt]
    at: dict[str, ast.stmt]

    @property
    def clip(self) -> ast.Call:
        return next(call for call in _calls(self.at["clip"]) if _role(call) == "clip")

    def without(self, *roles: str) -> list[ast.stmt]:
        return [x for x in self.block if all(x is not self.at[role] for role in roles)]

    def changed(self, block: list[ast.stmt]) -> list[Edit]:
        return [Edit(self.owner, self.field, block)]

    def with_clip(self, new: ast.stmt) -> list[Edit]:
        return self.changed([new if x is self.at["clip"] else x for x in self.block])


def steps(tree: ast.Module) -> Iterator[Step]:
    """Yield the training steps of a module."""
    for owner, name, block in blocks(tree):
        roles: dict[str, list[ast.stmt]] = {}
        for one in block:
            for role in (found := _roles(one)):
                roles.setdefault(role if len(found) == 1 else "mixed", []).append(one)
        wanted = all(len(roles.get(role, ())) == 1 for role in ("backward", "clip", "step"))
        if not wanted or "mixed" in roles or any(len(same) > 1 for same in roles.values()):
            continue
        at = {role: same[0] for role, same in roles.items()}
        if block.index(at["backward"]) < block.index(at["clip"]) < block.index(at["step"]):
            yield Step(tree, owner, name, block, at)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a statement, but none of functions that are defined in it."""
    if isinstance(node, FUNCTIONS):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def _role(call: ast.Call) -> str:
    name = call_name(call)
    if name in CLIPS:
        return "clip"
    if not isinstance(call.func, ast.Attribute):
        return ""
    if name in ("backward", "unscale_", "zero_grad", "clear_grad"):
        return {"unscale_": "unscale", "clear_grad": "zero", "zero_grad": "zero"}.get(name, name)
    owner = ast.unparse(call.func.value).lower()
    return "step" if name == "step" and re.search("opt|scaler", owner) and "sched" not in owner else ""


def _roles(one: ast.stmt) -> set[str]:
    found = {role for call in _calls(one) if (role := _role(call))}
    return {"clip"} if found == {"clip", "unscale"} else found


def _moved(step: Step, role: str, behind: str) -> list[Edit]:
    rest = step.without(role)
    i = rest.index(step.at[behind]) + 1
    return step.changed([*rest[:i], step.at[role], *rest[i:]])


# ---- one function for each mistake; None where the step does not allow it -------------------------------------------------


def after_step(step: Step) -> list[Edit]:
    return _moved(step, "clip", behind="step")


def before_backward(step: Step) -> list[Edit]:
    rest = step.without("clip")
    i = rest.index(step.at["backward"])
    return step.changed([*rest[:i], step.at["clip"], *rest[i:]])


def scaled(step: Step) -> list[Edit] | None:
    if "unscale" in step.at:
        before = step.block.index(step.at["unscale"]) < step.block.index(step.at["clip"])
        return step.changed(step.without("unscale")) if before else None
    at = parents(step.tree)
    inside = [call for call in _calls(step.at["clip"]) if _role(call) == "unscale"]
    alone = inside and isinstance(holder := at[inside[0]][0], ast.Expr) and len(getattr(*at[holder])) > 1
    return [put(at, at[inside[0]][0])] if alone else None


def zeroed(step: Step) -> list[Edit] | None:
    return _moved(step, "zero", behind="clip") if _zeroes_its_own(step) else None


def _zeroes_its_own(step: Step) -> bool:
    """Whether zero_grad is the stepped optimizer's, or a module's; another optimizer may keep these gradients."""
    owners = [ast.unparse(call.func.value) for role in ("step", "zero") for call in _of(step, role)]
    return len(owners) == 2 and ("opt" not in owners[1] or owners[0] == owners[1] or "scaler" in owners[0])


def _of(step: Step, role: str) -> Iterator[Any]:
    return (call for call in _calls(step.at[role]) if _role(call) == role) if role in step.at else iter(())


def _accumulates(step: Step) -> bool:
    """Whether the step has micro-batches of its own, by a test or by an object that skips steps."""
    calls = " ".join(ast.unparse(step.at[role]) for role in ("backward", "clip", "step"))
    return re.search(r"sync|accum|accelerat|fabric|engine|%", calls, re.IGNORECASE) is not None


def each_micro_batch(step: Step) -> list[Edit] | None:
    if not _zeroes_its_own(step) or _accumulates(step):
        return None
    tail = ast.If(expression(BOUNDARY), [step.at["step"], step.at["zero"]], [])
    rest = step.without("step", "zero")
    place = len(rest) - isinstance(rest[-1], ast.Return)  # nothing runs after it
    return step.changed([*rest[:place], tail, *rest[place:]])


def at_the_boundary(step: Step) -> list[Edit] | None:
    return None if _accumulates(step) else step.with_clip(ast.If(expression(BOUNDARY), [step.at["clip"]], []))


def each_parameter(step: Step) -> list[Edit] | None:
    call = step.clip
    whole = call.args[0] if call.args else None
    named = isinstance(whole, ast.Call) and call_name(whole) == "parameters"
    if call_name(call) != "clip_grad_norm_" or not named or not isinstance(step.at["clip"], ast.Expr | ast.Assign | ast.If):
        return None
    each = clone(call)
    each.args[0] = ast.Name("one_parameter")
    assert whole is not None
    return step.with_clip(ast.For(ast.Name("one_parameter"), whole, [ast.Expr(each)], []))


def one_rank(step: Step) -> list[Edit] | None:
    if not re.search(r"\b(get_rank|local_rank|DistributedDataParallel|DDP)\b", ast.unparse(step.tree)):
        return None
    return step.with_clip(ast.If(expression("torch.distributed.get_rank() == 0"), [step.at["clip"]], []))


def by_value(step: Step) -> list[Edit] | None:
    call = step.clip
    limit = call.args[1] if len(call.args) == 2 else next((k.value for k in call.keywords if k.arg == "max_norm"), None)
    if (
        call_name(call) != "clip_grad_norm_"
        or limit is None
        or "norm" not in ast.unparse(limit)
        or not isinstance(call.func, ast.Attribute)
    ):
        return None
    new = ast.Call(ast.Attribute(call.func.value, "clip_grad_value_"), [call.args[0], limit], [])
    return [put(parents(step.tree), call, new)] if call.args else None


def nan_skipped(step: Step) -> list[Edit] | None:
    if "zero" not in step.at or not isinstance(step.owner, ast.For | ast.While) or called(step.at["clip"]) is not step.clip:
        return None
    if step.block.index(step.at["zero"]) < step.block.index(step.at["step"]) or call_name(step.clip) != "clip_grad_norm_":
        return None
    measured = ast.Assign([ast.Name("norm_of_all")], step.clip)
    test = statement("if not torch.isfinite(norm_of_all):\n    continue")
    i = step.block.index(step.at["clip"])
    return step.changed([*step.block[:i], measured, test, *step.block[i + 1 :]])


def never_zeroed(step: Step) -> list[Edit] | None:
    if not _zeroes_its_own(step) or called(step.at["zero"]) is None or ast.unparse(step.tree).count("zero_grad(") != 1:
        return None
    return step.changed(step.without("zero"))


def not_listed(step: Step) -> list[Edit] | None:
    """The optimizer gets a second module's parameters too."""
    made = _optimizer(step)
    if made is None or not made.args or not isinstance(made.args[0], ast.Call) or call_name(made.args[0]) != "parameters":
        return None
    at = parents(step.tree)
    holder: ast.AST = made
    while not isinstance(holder, ast.stmt):
        holder = at[holder][0]
    listed = expression(f"list({ast.unparse(made.args[0])}) + list(extra_head.parameters())")
    new = clone(holder)
    same = next(x for x in ast.walk(new) if isinstance(x, ast.Call) and ast.dump(x) == ast.dump(made))
    same.args[0] = listed
    return [put(at, holder, statement("extra_head = torch.nn.Linear(8, 8)"), new)]


def used_up(step: Step) -> list[Edit] | None:
    """The optimizer and the clip share one iterator."""
    made = _optimizer(step)
    shared = made.args[0] if made is not None and made.args else None
    if not isinstance(shared, ast.Call) or call_name(shared) != "parameters" or ast.dump(step.clip.args[0]) != ast.dump(shared):
        return None
    at = parents(step.tree)
    assert made is not None
    holder, clip = at[made][0], step.at["clip"]
    if not isinstance(holder, ast.Assign) or _function(at, holder) is not _function(at, clip) or called(clip) is not step.clip:
        return None
    first, second = clone(holder), clone(clip)
    for new in (first, second):
        call = called(new)
        assert call is not None
        call.args[0] = ast.Name("all_parameters")
    start = ast.Assign([ast.Name("all_parameters")], shared)
    return [put(at, holder, start, first), *step.with_clip(second)] if holder not in step.block else None


def _optimizer(step: Step) -> ast.Call | None:
    """Return the only call that makes an optimizer in this file."""
    made = [x for x in ast.walk(step.tree) if isinstance(x, ast.Call) and re.search(r"\boptim\.[A-Z]\w+$", ast.unparse(x.func))]
    return made[0] if len(made) == 1 else None


def _function(at: dict[ast.AST, tuple[ast.AST, str]], node: ast.AST) -> ast.AST | None:
    while node in at:
        node = at[node][0]
        if isinstance(node, FUNCTIONS):
            return node
    return None


MISTAKES: dict[str, Callable[[Step], list[Edit] | None]] = {
    "clip after the step": after_step,
    "clip before backward": before_backward,
    "clip before unscale_": scaled,
    "zero_grad between clip and step": zeroed,
    "clip in each micro-batch": each_micro_batch,
    "clip at the boundary, step in each micro-batch": at_the_boundary,
    "each parameter by its own norm": each_parameter,
    "clip on one rank": one_rank,
    "limit of a norm as a value's": by_value,
    "NaN skipped without zero_grad": nan_skipped,
    "no zero_grad": never_zeroed,
    "second module in the optimizer, not in the clip": not_listed,
    "one iterator for optimizer and clip": used_up,
}


def mistakes(step: Step) -> Iterator[Mutant]:
    """Yield a mutant for each mistake that this step allows."""
    for kind, change in MISTAKES.items():
        if (edits := change(step)) is not None:
            yield Mutant(kind, text_with(step.tree, edits))
