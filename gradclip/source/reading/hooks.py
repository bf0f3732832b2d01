"""Hooks of gradients that clip."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gradclip.rounds import Backward, Hook
from gradclip.source.reading.program import last
from gradclip.source.reading.values import Call, Function, Value, parameters

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["hook"]


def hook(machine: Machine, owner: Value, function: Function, given: Call) -> None:
    """``p.register_hook(clip)``: what a hook does not return is lost, if it does not change its gradient in place."""
    nodes = list(ast.walk(function.node))
    calls = [last(x.func) for x in nodes if isinstance(x, ast.Call)]
    own = {x.arg for x in function.node.args.args} - {"self"}
    targets = (y for x in nodes if isinstance(x, ast.Assign) for y in x.targets if isinstance(x.value, ast.BinOp))
    scales = any(isinstance(x, ast.Name) and x.id in own for x in targets)  # g = g * (limit / norm)
    if not scales and not any("clamp" in x or "clip" in x for x in calls):
        return
    if _is_late(machine, given):
        machine.emit(Hook(**machine.about(given.node), params=parameters(owner), is_late=True))
    stores = (x for x in nodes if isinstance(x, (ast.Attribute, ast.Subscript)) and isinstance(x.ctx, ast.Store))
    stores = (x for x in stores if not scales or _root(x) in own)  # its name alone has the scaled gradient
    keeps = any(isinstance(x, ast.AugAssign) or (isinstance(x, ast.Return) and x.value is not None) for x in nodes)
    keeps = keeps or any(True for _ in stores) or any(x.endswith("_") or x == "append" for x in calls)
    keeps = keeps or isinstance(function.node, ast.Lambda)  # which returns it
    if not keeps and not any(isinstance(x, ast.keyword) and x.arg == "out" for x in nodes):
        machine.emit(Hook(**machine.about(given.node)))


def _root(node: ast.expr) -> str:
    """The first name of an expression: ``g`` of ``g.data[:]``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return last(node)


def _is_late(machine: Machine, given: Call) -> bool:
    """Whether it comes after a backward pass: in its loop, or in a loop over parameters there."""
    made = next((x for x in reversed(machine.events) if isinstance(x, Backward)), None)
    return made is not None and made.loops == tuple(machine.loops[: len(made.loops)]) and bool(given.args)
