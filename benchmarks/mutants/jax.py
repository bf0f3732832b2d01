"""Mistakes with optax: the order of a chain, and results that nobody takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from benchmarks.mutants.edits import Edit, after_imports, call_name, expression, put, statement
from benchmarks.mutants.module import Change, Module, renamed, says_norm

__all__ = ["MISTAKES", "RIGHT"]

OPTAX = "{target} = optax.clip_by_global_norm(1.0).update({source}, optax.EmptyState())[0]"
HELPER = "with_limit"


def _chains(module: Module) -> Iterator[tuple[ast.Call, ast.expr, list[ast.expr]]]:
    """Yield each ``optax.chain`` with a clip in front: the call, the clip and what comes after it."""
    for call in module.named(r"(optax\.)?chain"):
        for i, one in enumerate(call.args):
            rest = [*call.args[:i], *call.args[i + 1 :]]
            behind = call.args[i + 1 :]
            if (
                isinstance(one, ast.Call)
                and re.fullmatch(r"optax\.(clip|clip_by_global_norm)", ast.unparse(one.func))
                and behind
            ):
                if not any(isinstance(x, ast.Starred) for x in call.args):
                    yield call, one, rest
                break


def chain_order(module: Module) -> list[Edit] | None:
    for call, clip, rest in _chains(module):
        return [put(module.at, call, ast.Call(call.func, [*rest, clip], []))]
    return None


def chain_in_helper(module: Module) -> list[Edit] | None:
    return _helper(module, "optax.chain(optimizer, optax.clip_by_global_norm(limit))")


def chain_in_helper_right(module: Module) -> list[Edit] | None:
    return _helper(module, "optax.chain(optax.clip_by_global_norm(limit), optimizer)")


def _helper(module: Module, returned: str) -> list[Edit] | None:
    for call, clip, rest in _chains(module):
        assert isinstance(clip, ast.Call)
        limit = clip.args[0] if clip.args else clip.keywords[0].value
        if call_name(clip) != "clip_by_global_norm" or module.function(call) is module.tree:
            continue
        inner = rest[0] if len(rest) == 1 else ast.Call(call.func, rest, [])
        helper = statement(f"def {HELPER}(optimizer, limit):\n    return {returned}")
        return [put(module.at, call, ast.Call(ast.Name(HELPER), [inner, limit], [])), after_imports(module.tree, helper)]
    return None


def outside_multi_steps(module: Module) -> list[Edit] | None:
    for call in module.named(r"(optax\.)?MultiSteps"):
        if call.args:
            chain = expression("optax.chain(optax.clip_by_global_norm(1.0))")
            assert isinstance(chain, ast.Call)
            chain.args.append(call)
            return [put(module.at, call, chain)]
    return None


def _updates(module: Module) -> Iterator[tuple[ast.Assign, str, str]]:
    """Yield each ``updates, state = optimizer.update(gradients, ...)`` with the names of updates and gradients."""
    if "optax" not in module.text:
        return
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or call_name(node.value) != "update":
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[0], ast.Name):
            first = node.value.args[0] if node.value.args else None
            if isinstance(first, ast.Name) and "grad" in first.id.lower() and "clip" not in ast.unparse(node.value.func):
                yield node, target.elts[0].id, first.id


def clip_of_updates(module: Module) -> list[Edit] | None:
    for node, updates, _ in _updates(module):
        return [put(module.at, node, node, statement(OPTAX.format(target=updates, source=updates)))]
    return None


def not_taken(module: Module) -> list[Edit] | None:
    for node, _, gradients in _updates(module):
        return [put(module.at, node, statement(OPTAX.format(target="limited", source=gradients)), node)]
    return None


def before_reduction(module: Module) -> list[Edit] | None:
    for call in module.named(r"(jax\.)?(lax\.)?(pmean|psum)"):
        holder, first = module.holder(call), call.args[0] if call.args else None
        if (
            isinstance(first, ast.Name)
            and "grad" in first.id.lower()
            and isinstance(holder, ast.Assign)
            and holder.value is call
        ):
            return [put(module.at, holder, statement(OPTAX.format(target=first.id, source=first.id)), holder)]
    return None


def optax_by_value(module: Module) -> list[Edit] | None:
    for call in module.named(r"optax\.clip_by_global_norm"):
        if call.args and says_norm(call.args[0]):
            return [put(module.at, call, renamed(call, "clip_by_global_norm", "clip"))]
    return None


MISTAKES: dict[str, Change] = {
    "JAX: clip last in the chain": chain_order,
    "JAX: clip last in the chain, in a function": chain_in_helper,
    "JAX: clip outside of MultiSteps": outside_multi_steps,
    "JAX: clip of the updates": clip_of_updates,
    "JAX: clipped gradients not taken": not_taken,
    "JAX: clip before pmean or psum": before_reduction,
    "JAX: limit of a norm as a value's": optax_by_value,
}
RIGHT: dict[str, Change] = {"right order, in JAX's function": chain_in_helper_right}
