"""Limits that nothing reads, or that are those of another thing, by single statements: of Keras, Lightning, hooks."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from gradclip.natives import NATIVES, Kind
from gradclip.rounds import NO_PARAMS, Clip, Event, Step, Write
from gradclip.source.reading import errors
from gradclip.source.reading.idle import place
from gradclip.source.reading.program import File, last

__all__ = ["found"]

_KEYWORDS = frozenset(x.keyword for x in NATIVES if x.framework == "keras" and x.kind is Kind.KEYWORD)
_EPOCHS = re.compile(r"on_(epoch|batch|train_batch)_(begin|end)$")
_EAGER = re.compile(r"run_eagerly *= *True|run_functions_eagerly|train_function|KERAS_BACKEND.{1,9}torch")
_CONSTRAINTS = frozenset({"MaxNorm", "max_norm", "UnitNorm", "MinMaxNorm"})
_HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})
_BAKED = "`fit()` has compiled its step with the limit that was there before: it does not read this one."
_TRACED = "TensorFlow has compiled the step with the limit that was there first: it does not read this one."
_LOST = "The next `compile()` makes another optimizer, which lacks this limit."
_BODIES = ("body", "orelse", "finalbody")


def found(file: File) -> Iterator[tuple[Event, ...]]:
    """Each limit as a clip."""
    text = file.text
    if "keras" in text:
        yield from ((_clip(file, node, unread=why),) for node, why in _of_keras(file))
        yield from ((_clip(file, x, other=why), Step()) for x, why in _of_weights(file))
    yield from ((_clip(file, x, other=why), Step()) for x, why in errors.found(file))
    if "train_step" in text and "fit" in file.called:
        why = "Nothing makes an object of this class, and the program trains another model."
        yield from ((_clip(file, x, unread=why),) for x in _never_made(file))
    if "gradient_clip_algorithm" in text and "lightning" in text:
        why = "Without `gradient_clip_val` the Trainer clips nothing, whatever the algorithm."
        yield from ((_clip(file, x, unread=why),) for x in _without_limit(file))
    if "CLIP_GRADIENTS" in text and "ENABLED" not in text:
        targets = (y for x in file.nodes if isinstance(x, ast.Assign) for y in x.targets if "CLIP_GRADIENTS." in ast.unparse(y))
        why = "`CLIP_GRADIENTS.ENABLED` is False by default, and nothing switches it on."
        yield from ((_clip(file, x, unread=why),) for x in targets)
    if re.search(r"\.grad\b", text):
        yield from ((Write(where=place(file, x), text=file.shown(x), factor="kept"), Step()) for x in _never_reset(file))
    if "_hook(" in text:
        yield from ((_clip(file, x, other=why), Step()) for x, why in _bound_late(file))


def _clip(file: File, node: ast.expr, *, unread: str = "", other: str = "") -> Clip:
    return Clip(where=place(file, node), text=file.shown(node), params=NO_PARAMS, unread=unread, other=other)


def _without_limit(file: File) -> Iterator[ast.expr]:
    """``Trainer(gradient_clip_algorithm="norm")``."""
    for x in file.nodes:
        names = {y.arg for y in x.keywords} if isinstance(x, ast.Call) and last(x.func) == "Trainer" else set[str | None]()
        if isinstance(x, ast.Call) and "gradient_clip_algorithm" in names and names.isdisjoint({None, "gradient_clip_val"}):
            yield x


# ---- Keras ---------------------------------------------------------------------------------------------------------------


def _of_keras(file: File) -> Iterator[tuple[ast.expr, str]]:
    """``model.optimizer.clipnorm = 1.0`` after the first ``fit``, in a callback, or before another ``compile``."""
    if _EAGER.search(file.text) or not any(x in file.text for x in _KEYWORDS):
        return
    for function, cls in file.functions:
        if cls is not None and _EPOCHS.match(function.name) and any(last(x).endswith("Callback") for x in cls.bases):
            yield from ((x, _BAKED) for x in _limits(function))
    traced = _traced(file)
    for x in file.nodes:
        for body in (getattr(x, name, None) for name in _BODIES):
            if isinstance(body, list):
                yield from _after_fit([*body, *body] if isinstance(x, (ast.For, ast.While)) else body)
        if traced and isinstance(x, (ast.For, ast.While)):
            yield from ((y, _TRACED) for y in _limits(x, traced) if isinstance(y, ast.Attribute) and last(y.value) in traced)


def _traced(file: File) -> frozenset[str]:
    """The names of the optimizers that step in functions which TensorFlow compiles."""
    bodies = (x for x, _ in file.functions if any("tf.function" in ast.unparse(y) for y in x.decorator_list))
    calls = (y for x in bodies for y in ast.walk(x) if isinstance(y, ast.Call) and last(y.func) in ("apply_gradients", "apply"))
    return frozenset(last(x.func.value) for x in calls if isinstance(x.func, ast.Attribute)) - {""}


def _limits(node: ast.AST, names: Collection[str] = ()) -> list[ast.expr]:
    """The limits of a model's optimizer that code sets, or of one with these names."""
    targets = (y for x in ast.walk(node) if isinstance(x, ast.Assign) for y in x.targets)
    found = (x for x in targets if isinstance(x, ast.Attribute) and x.attr in _KEYWORDS)
    return [x for x in found if (isinstance(x.value, ast.Attribute) and x.value.attr == "optimizer") or last(x.value) in names]


def _after_fit(body: Iterable[ast.stmt]) -> Iterator[tuple[ast.expr, str]]:
    """The same in the order of a block, whose statements compile a model, train it, or set a limit."""
    has_fitted, late, alive, lost, names = False, list[ast.expr](), list[ast.expr](), list[ast.expr](), set[str]()
    for statement in body:
        made = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        name = last(made.func) if isinstance(made, ast.Call) else ""
        if name == "compile" and isinstance(made, ast.Call):
            lost = alive if _makes_another(made) else []
            has_fitted, late, alive = False, [], []
            names |= {last(x) for x in (*made.args[:1], *(y.value for y in made.keywords)) if isinstance(x, ast.Name)}
        elif name == "fit":
            yield from (*((x, _BAKED) for x in late), *((x, _LOST) for x in lost))
            has_fitted, lost = True, []
        elif isinstance(statement, ast.Assign) and (limits := _limits(statement, names)):
            alive, lost = limits, []
            late += limits if has_fitted else []


def _makes_another(call: ast.Call) -> bool:
    """Whether ``compile`` gets a new optimizer without a limit."""
    given = next((x.value for x in call.keywords if x.arg == "optimizer"), call.args[0] if call.args else None)
    if isinstance(given, ast.Call):
        names = {x.arg for x in given.keywords}
        return last(given.func)[:1].isupper() and names.isdisjoint({None, *_KEYWORDS})
    return isinstance(given, ast.Constant) and isinstance(given.value, str)


def _of_weights(file: File) -> Iterator[tuple[ast.expr, str]]:
    """``MaxNorm(max_grad_norm)``."""
    for x in file.nodes:
        if isinstance(x, ast.Call) and last(x.func) in _CONSTRAINTS:
            names = (last(y) for y in (*x.args, *(z.value for z in x.keywords)))
            for name in (y for y in names if re.search(r"grad", y, re.IGNORECASE)):
                yield x, f"It bounds the norms of the weights, but its limit `{name}` is called one of gradients."


# ---- hooks ---------------------------------------------------------------------------------------------------------------


def _bound_late(file: File) -> Iterator[tuple[ast.expr, str]]:
    """``p.register_hook(lambda g: g.clamp(-bound, bound))`` in a loop over the bounds: all hooks have the last one."""
    for loop in (x for x in file.nodes if isinstance(x, (ast.For, ast.While))):
        nodes = [*ast.walk(loop)]
        stored = {x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        defined = {x.name: x for x in nodes if isinstance(x, ast.FunctionDef)}
        for call in (x for x in nodes if isinstance(x, ast.Call) and last(x.func) in _HOOKS and x.args):
            hook = defined.get(last(call.args[0]), call.args[0])
            if isinstance(hook, (ast.Lambda, ast.FunctionDef)) and (names := _free(hook) & stored):
                why = f"When a hook runs, `{min(names)}` is that of the loop's last pass: all hooks clip by this one."
                yield call, why


def _free(function: ast.Lambda | ast.FunctionDef) -> set[str]:
    """The names from outside that the clips of a function read."""
    taken = function.args
    own = {x.arg for x in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
    body = function.body if isinstance(function.body, list) else [function.body]
    nodes = [y for x in body for y in ast.walk(x)]
    own |= {x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    clips = (x for x in nodes if isinstance(x, ast.Call) and re.search("clip|clamp", last(x.func)))
    return {y.id for x in clips for y in ast.walk(x) if isinstance(y, ast.Name)} - own


def _never_made(file: File) -> Iterator[ast.expr]:
    """The clip of a model's ``train_step``, where nothing names the model's class."""
    loaded = {x.id for x in file.nodes if isinstance(x, ast.Name)}
    for function, cls in file.functions:
        is_model = cls is not None and any(last(x) in ("Model", "Sequential") for x in cls.bases)
        if cls is not None and is_model and function.name == "train_step" and cls.name not in loaded:
            yield from (x for x in ast.walk(function) if isinstance(x, ast.Call) and "clip_by" in last(x.func))


# ---- sums of squares -----------------------------------------------------------------------------------------------------


def _never_reset(file: File) -> Iterator[ast.expr]:
    """``total += p.grad.norm() ** 2`` in a loop that trains, and nothing in it sets ``total`` to 0."""
    for loop in (x for x in file.nodes if isinstance(x, (ast.For, ast.While))):
        nodes = [y for x in loop.body for y in ast.walk(x)]
        called = {last(x.func) for x in nodes if isinstance(x, ast.Call)}
        if not {"backward", "step"} <= called:
            continue
        targets = (y for x in nodes if isinstance(x, ast.Assign) for y in x.targets)
        reset = {z.id for x in targets for z in ast.walk(x) if isinstance(z, ast.Name)}
        for x in (x for x in nodes if isinstance(x, ast.AugAssign) and isinstance(x.target, ast.Name)):
            words = {y.attr for y in ast.walk(x.value) if isinstance(y, ast.Attribute)}
            is_norm = "grad" in words and not words.isdisjoint(("norm", "pow", "square", "sum"))
            if is_norm and isinstance(x.target, ast.Name) and x.target.id not in reset and _is_rooted(nodes, x.target.id):
                yield x.target


def _is_rooted(nodes: Iterable[ast.AST], name: str) -> bool:
    """Whether the root of a sum is taken."""
    roots = [x.left for x in nodes if isinstance(x, ast.BinOp) and isinstance(x.op, ast.Pow)]
    roots += [y for x in nodes if isinstance(x, ast.Call) and last(x.func) == "sqrt" for y in (*x.args, x.func)]
    return any(isinstance(y, ast.Name) and y.id == name for x in roots for y in ast.walk(x))
