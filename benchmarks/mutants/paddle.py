"""Mistakes with the clips of Paddle's optimizers."""

from __future__ import annotations

import ast

from benchmarks.mutants.edits import Edit, call_name, clone, put, root
from benchmarks.mutants.module import Change, Module, renamed, says_norm

__all__ = ["MISTAKES"]


def _paddle_clips(module: Module, name: str = "ClipGradByGlobalNorm") -> list[ast.Call]:
    return [call for call in module.calls if call_name(call) == name]


def paddle_each(module: Module) -> list[Edit] | None:
    for call in _paddle_clips(module):
        if "global" in " ".join(ast.unparse(x) for x in [*call.args, *(k.value for k in call.keywords)]):
            return [put(module.at, call, renamed(call, "", "ClipGradByNorm"))]
    return None


def paddle_by_value(module: Module) -> list[Edit] | None:
    for call in _paddle_clips(module):
        limit = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "clip_norm"), None)
        if limit is not None and says_norm(limit):
            new = renamed(call, "", "ClipGradByValue")
            new.args, new.keywords = [limit], []
            return [put(module.at, call, new)]
    return None


def paddle_not_taken(module: Module) -> list[Edit] | None:
    """The clip is made, and the optimizer does not get it."""
    made = {root(x.targets[0]) for call in _paddle_clips(module) if isinstance(x := module.holder(call), ast.Assign)}
    for call in module.calls:
        for i, keyword in enumerate(call.keywords):
            if keyword.arg == "grad_clip" and isinstance(keyword.value, ast.Name) and keyword.value.id in made:
                uses = [x for x in ast.walk(module.function(call)) if isinstance(x, ast.Name) and x.id == keyword.value.id]
                if len(uses) == 2:
                    new = clone(call)
                    del new.keywords[i]
                    return [put(module.at, call, new)]
    return None


MISTAKES: dict[str, Change] = {
    "Paddle: each parameter by its own norm": paddle_each,
    "Paddle: limit of a norm as a value's": paddle_by_value,
    "Paddle: the optimizer without the clip": paddle_not_taken,
}
