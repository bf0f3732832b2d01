"""Mistakes with TensorFlow's tapes and Keras's optimizers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from benchmarks.mutants.edits import Edit, after_imports, clone, expression, put, root, statement
from benchmarks.mutants.module import Change, Module, says_norm

__all__ = ["MISTAKES", "RIGHT"]


def _clipped(module: Module) -> Iterator[tuple[ast.Assign, ast.Call, str]]:
    """Yield each ``clipped, norm = tf.clip_by_global_norm(gradients, limit)`` with the name of the clipped list."""
    for call in module.named(r"tf\.clip_by_global_norm"):
        holder = module.holder(call)
        if isinstance(holder, ast.Assign) and holder.value is call and len(call.args) >= 2:
            target = holder.targets[0]
            if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name) and isinstance(call.args[0], ast.Name):
                yield holder, call, target.elts[0].id


def result_dropped(module: Module) -> list[Edit] | None:
    for holder, _, clipped in _clipped(module):
        new = clone(holder)
        assert isinstance(new.targets[0], ast.Tuple)
        assert isinstance(new.value, ast.Call)
        assert isinstance(new.value.args[0], ast.Name)
        new.targets[0].elts[0] = ast.Name("limited")
        raw = new.value.args[0].id
        uses = [
            x
            for x in ast.walk(module.function(holder))
            if isinstance(x, ast.Name) and x.id == clipped and x.lineno > holder.lineno
        ]
        if not uses:
            continue
        return [put(module.at, holder, new), *(Edit(x, "id", raw) for x in uses)]
    return None


def each_gradient(module: Module) -> list[Edit] | None:
    for holder, call, clipped in _clipped(module):
        gradients, limit = map(ast.unparse, call.args[:2])
        text = f"{clipped} = [g if g is None else tf.clip_by_norm(g, {limit}) for g in {gradients}]"
        assert isinstance(holder.targets[0], ast.Tuple)
        norm = holder.targets[0].elts[1]
        measured = [] if root(norm) == "_" else [statement(f"{ast.unparse(norm)} = tf.linalg.global_norm({clipped})")]
        return [put(module.at, holder, statement(text), *measured)]
    return None


def tensorflow_by_value(module: Module) -> list[Edit] | None:
    for holder, call, clipped in _clipped(module):
        if says_norm(limit := call.args[1]):
            gradients, text = ast.unparse(call.args[0]), ast.unparse(limit)
            made = f"{clipped} = [g if g is None else tf.clip_by_value(g, -{text}, {text}) for g in {gradients}]"
            return [put(module.at, holder, statement(made))]
    return None


def clip_in_helper(module: Module, returned: str = "gradients") -> list[Edit] | None:
    """A function clips and returns the gradients that it got."""
    body = f"    limited, norm = tf.clip_by_global_norm(gradients, limit)\n    return {returned}, norm"
    for holder, call, _ in _clipped(module):
        helper = statement(f"def limit_all(gradients, limit):\n{body}")
        new = clone(holder)
        new.value = ast.Call(ast.Name("limit_all"), call.args[:2], [])
        block = module.function(holder)
        return None if block is module.tree else [put(module.at, holder, new), after_imports(module.tree, helper)]
    return None


def clip_in_helper_right(module: Module) -> list[Edit] | None:
    return clip_in_helper(module, "limited")


def before_unscaled(module: Module) -> list[Edit] | None:
    """The clip stands before ``get_unscaled_gradients``."""
    for call in module.named(r".*\.get_unscaled_gradients"):
        holder = module.holder(call)
        if isinstance(holder, ast.Assign) and call.args and isinstance(call.args[0], ast.Name):
            name = call.args[0].id
            return [put(module.at, holder, statement(f"{name}, _ = tf.clip_by_global_norm({name}, 1.0)"), holder)]
    return None


def _keras_optimizers(module: Module) -> list[ast.Call]:
    made = module.named(
        r"(tf\.)?(keras\.)?(optimizers|optimizer)(\.legacy)?\.(Adam|AdamW|SGD|RMSprop|Adagrad|Nadam|Adamax|Lion)"
    )
    return [call for call in made if all(k.arg for k in call.keywords)]


def _with_keyword(module: Module, keyword: str) -> list[Edit] | None:
    if not any(True for _ in _clipped(module)) and not module.named(r"tf\.clip_by_(norm|value)"):
        return None
    for call in _keras_optimizers(module):
        new = clone(call)
        name, _, value = keyword.partition("=")
        new.keywords = [k for k in new.keywords if k.arg != name] + [ast.keyword(name, expression(value))]
        return [put(module.at, call, new)]
    return None


def clipnorm_too(module: Module) -> list[Edit] | None:
    return _with_keyword(module, "clipnorm=1.0")


def under_accumulation(module: Module) -> list[Edit] | None:
    return _with_keyword(module, "gradient_accumulation_steps=4")


def keras_by_value(module: Module) -> list[Edit] | None:
    for call in module.calls:
        for i, keyword in enumerate(call.keywords):
            if keyword.arg in ("clipnorm", "global_clipnorm") and says_norm(keyword.value):
                new = clone(call)
                new.keywords[i].arg = "clipvalue"
                return [put(module.at, call, new)]
    return None


MISTAKES: dict[str, Change] = {
    "TensorFlow: clipped gradients not applied": result_dropped,
    "TensorFlow: clipped gradients not returned by a function": clip_in_helper,
    "TensorFlow: each gradient by its own norm": each_gradient,
    "TensorFlow: limit of a norm as a value's": tensorflow_by_value,
    "TensorFlow: clip before get_unscaled_gradients": before_unscaled,
    "Keras: clipnorm beside a clip by hand": clipnorm_too,
    "Keras: clip by hand under gradient_accumulation_steps": under_accumulation,
    "Keras: limit of a norm as a value's": keras_by_value,
}
RIGHT: dict[str, Change] = {"right order, in TensorFlow's function": clip_in_helper_right}
