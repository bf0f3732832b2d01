"""GM105: clipped gradients, or an object that clips, that no code takes."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.natives import BY_NAME, Kind
from gradclip.natives.model import Applied
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.objects import applied, updates
from gradclip.source.source import Source, last_name, once, words

__all__ = ["check"]

_OPTIMIZER = re.compile(r"(paddle\.(fluid\.)?optimizer|optax)\..+")
_COLLECTS = words("list tuple map tree_map map_structure")  # calls that return the clipped gradients
_READS_ANY = words("locals globals exec eval vars")
_AROUND = (cst.Arg, cst.Element, cst.GeneratorExp, cst.IfExp, cst.Lambda, cst.List, cst.ListComp, cst.Tuple)


def check(found: ApiCall) -> Finding | None:
    """A result whose name no code reads."""
    if found.api.kind is Kind.RETURNED:
        return _dropped(found)
    if found.api.applied not in (Applied.SLOT, Applied.CHAIN):
        return None
    return _object(found) or next((one for call in updates(found.call, found.context) if (one := _update(call, found))), None)


def _dropped(found: ApiCall) -> Finding | None:
    """``clipped = [tf.clip_by_norm(g, 1.0) for g in grads]``, and no code reads ``clipped``."""
    source = found.context.source
    value: cst.CSTNode = found.call
    while isinstance(outer := source.parents[value], (*_AROUND, cst.Call)):
        if isinstance(outer, cst.Call) and last_name(outer.func) not in _COLLECTS:
            return None
        value = outer
    name = source.target(value)
    taking = applied(found.call, found.context)
    if isinstance(name, cst.Tuple) and found.api.returns_pair and taking is not None:
        name = name.elements[0].value
    if not isinstance(name, cst.Name) or name.value.startswith("_") or _is_read(name, found):
        return None
    if taking is None and source.function(name) is source.module:
        return None
    taken = "" if taking is None else f"; {source.shown(taking)} takes others"
    return Finding("GM105", f"Nothing uses the clipped gradients, `{name.value}`{taken}.", "Pass them to the optimizer.")


def _update(call: cst.Call, found: ApiCall) -> Finding | None:
    """``clipped, state = clip.update(grads, state)``, and no code reads ``clipped``."""
    source = found.context.source
    pair = source.target(call)
    first = pair.elements[0].value if isinstance(pair, cst.Tuple) and pair.elements else None
    dropped = isinstance(source.parents[call], cst.Expr) or (isinstance(first, cst.Name) and not _is_read(first, found))
    reason = f"Nothing uses the gradients that {source.shown(call)} returns."
    return Finding("GM105", reason, "Pass them to the optimizer.") if dropped else None


def _is_read(name: cst.Name, found: ApiCall) -> bool:
    """Whether code of the function that binds a name may read it."""
    context = found.context
    source, function = context.source, context.source.function(name)
    key = (_is_read, function, name.value)
    if name.value in context.options.about.kept or source.once(key, lambda: _reads(name, function, context)):
        return True
    declared: list[cst.Global | cst.Nonlocal] = [*source.all(cst.Global), *source.all(cst.Nonlocal)]
    shared = (item.name.value for statement in declared for item in statement.names)
    return name.value in shared or _reads_any(source)


@once
def _reads_any(source: Source) -> bool:
    """Whether a source may read any name: ``eval(text)``, ``vars()``; but not ``model.eval()``, ``vars(args)``."""
    calls = (call for name in _READS_ANY for call in source.calls.get(name, ()))
    return any(isinstance(call.func, cst.Name) and not (call.func.value == "vars" and call.args) for call in calls)


def _reads(name: cst.Name, function: cst.CSTNode, context: Context) -> bool:
    bound = {*context.resolver.assigned_at(name)}
    reads = (use for use in context.resolver.uses.get(name.value, ()) if use not in bound)
    return any(function in context.source.ancestors(use) for use in reads)


def _object(found: ApiCall) -> Finding | None:
    """``clip = paddle.nn.ClipGradByNorm(1.0)``, and no optimizer gets ``clip``."""
    context = found.context
    name = context.source.target(found.call)
    if not isinstance(name, cst.Name) or name.value.startswith("_") or _is_read(name, found):
        return None
    if isinstance(context.source.within(name, cst.ClassDef, cst.FunctionDef), cst.ClassDef):
        return None  # an attribute of a class
    if context.source.function(name) is context.source.module and not _makes_optimizers(context):
        return None  # a module of settings
    return Finding("GM105", f"Nothing uses `{name.value}`, so nothing is clipped.", "Pass it to the optimizer.")


@once
def _makes_optimizers(context: Context) -> bool:
    """Whether the source makes an optimizer."""
    names = (context.resolver.name(call.func) for call in context.source.all(cst.Call))
    return any(_OPTIMIZER.fullmatch(name) is not None and name not in BY_NAME for name in names)
