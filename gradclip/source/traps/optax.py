"""GM108 for transformations: a clip after the optimizer in ``optax.chain``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from gradclip.natives import Kind
from gradclip.natives.optax import may_clip_updates
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.objects import first_of, maker, updates, uses
from gradclip.source.source import receiver

__all__ = ["check"]

_CHAINS = frozenset(f"optax.{module}{name}" for module in ("", "transforms.") for name in ("chain", "named_chain"))
_OPTIMIZER = re.compile(
    r"optax\.(\w+\.)?(scale_by_\w+|scale|adam\w*|sgd|noisy_sgd|rmsprop|adagrad|adadelta|adafactor|lion|lamb|lars|novograd|nadam\w*|"
    r"radam|yogi|sm3|fromage|adabelief|amsgrad|rprop|lbfgs|sign_sgd|optimistic_\w+|adan|muon|prodigy|sophia)"
)


def check(found: ApiCall) -> Finding | None:
    """A clip that follows a transformation from gradients to updates: it clips updates."""
    if found.framework != "optax" or found.api.kind is not Kind.OBJECT or may_clip_updates(found.api.dialect):
        return None
    for node in (found.call, *uses(found.call, found.context)):
        before = _in_chain(node, found)
        if before:
            reason = f"{before} comes before the clip in the chain: it clips updates, not gradients."
            return Finding("GM108", reason, "Put the clip first.")
    context = found.context
    for call in updates(found.call, context):
        made = first_of(call.args[0].value, context) if call.args else None
        optimizer = maker(receiver(made, "update"), context)
        if optimizer is not None and made is not None and _makes_updates(optimizer, context):
            shown = context.source.shown
            reason = f"{shown(made)} has turned the gradients into updates, and {shown(call)} clips these."
            return Finding("GM108", reason, "Clip the gradients before that.")
    return None


def _makes_updates(call: cst.Call, context: Context) -> bool:
    """Whether a call makes an optimizer, or a chain with one."""
    name = context.resolver.name(call.func)
    if name not in _CHAINS:
        return _is_optimizer(call, context)
    links = (maker(argument.value, context) for argument in call.args)
    return any(link is not None and _is_optimizer(link, context) for link in links)


def _is_optimizer(call: cst.Call, context: Context) -> bool:
    """Whether a link makes updates: ``optax.scale(-rate)``, but not ``optax.scale(1 / loss_scale)``, which unscales."""
    name = context.resolver.name(call.func)
    if name.endswith(".scale"):
        return bool(call.args) and context.source.code(call.args[0].value).startswith("-")
    return _OPTIMIZER.fullmatch(name) is not None


def _in_chain(node: cst.BaseExpression, found: ApiCall) -> str:
    """The optimizer that comes before a clip in ``optax.chain``; "" if there is none."""
    source, resolver = found.context.source, found.context.resolver
    argument = source.parents[node]
    pair = source.parents[argument] if isinstance(argument, cst.Element) else None
    if isinstance(pair, cst.Tuple):  # ("clip", optax.clip(1.0)) in a named_chain
        argument = source.parents[pair]
        pair = source.parents[argument] if isinstance(argument, cst.Element) else None
    links: Sequence[cst.Arg | cst.BaseElement] = ()
    if isinstance(pair, cst.List) and _is_starred(pair, found):
        links = pair.elements
    elif isinstance(chain := source.parents.get(argument), cst.Call) and resolver.name(chain.func) in _CHAINS:
        links = chain.args
    for link in links:
        if link is argument:
            return ""
        value = link.value
        if isinstance(value, cst.Tuple) and len(value.elements) == 2:
            value = value.elements[1].value
        made = maker(value, found.context)
        if made is not None and _is_optimizer(made, found.context):
            return source.code(made.func)
    return ""


def _is_starred(links: cst.List, found: ApiCall) -> bool:
    """Whether it is the list of ``optax.chain(*[...])``, or of ``optax.chain(*links)``."""
    source, resolver = found.context.source, found.context.resolver
    name = source.target(links)
    named = resolver.uses.get(name.value, ()) if isinstance(name, cst.Name) else ()
    taken = [links, *(use for use in named if found.context.values.value_of(use) is links)]
    starred = (argument for one in taken if isinstance(argument := source.parents[one], cst.Arg) and argument.star == "*")
    calls = (source.parents[argument] for argument in starred)
    return any(isinstance(call, cst.Call) and resolver.name(call.func) in _CHAINS for call in calls)
