"""Move Paddle's ``set_gradient_clip`` to ``grad_clip=`` of the optimizer, if the same function makes the optimizer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

import libcst as cst

from gradclip.code.bind import BindError, bind, literal, number
from gradclip.code.found import ApiCall, Finding
from gradclip.code.model import Outcome
from gradclip.code.source import Edit, Source, last_name
from gradclip.migrate.codemod.decision import Rewrite
from gradclip.migrate.codemod.imports import Spelling, spell
from gradclip.migrate.codemod.layout import fits, indent
from gradclip.migrate.codemod.rewrite import renamed_arguments
from gradclip.natives import BY_NAME, Kind
from gradclip.natives.targets import targets

__all__ = ["lifted"]

_OPTIMIZER = re.compile(r"paddle\.(fluid\.)?optimizer\.[A-Z]\w*")


def lifted(found: ApiCall) -> Rewrite | None:
    """Pass the clip to the optimizers of its function; None if another optimizer could lose or gain a clip."""
    source = found.context.source
    statement = source.parents[found.call]
    line = source.parents[statement]
    block = source.parents.get(line)
    clip = found.arguments.get("clip")
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 and len(getattr(block, "body", ())) > 1
    if clip is None or block is None or not isinstance(statement, cst.Expr) or not alone:
        return None
    optimizers = _optimizers(found, block)
    if not optimizers or not _are_all(optimizers, found):
        return None
    made = [_made(clip.value, optimizer, found) for optimizer in optimizers]
    edits: list[Edit] = [Edit(source.line_start(source.start(line)), source.next_line(source.end(line)), "")]
    for optimizer, spelling in zip(optimizers, made, strict=True):
        if spelling is None:
            return None
        edits.append(_added(optimizer, f"grad_clip={spelling.text}", source))
    released = [node.func for node in (found.call, clip.value) if isinstance(node, cst.Call)]
    return Rewrite(
        found.call,
        found.api.code,
        Outcome.REWRITTEN,
        "The optimizer that is made here takes the clip.",
        api=found.api,
        edits=tuple(edits),
        released=tuple(released),
        needs=tuple(need for spelling in made if spelling for need in spelling.needs),
        uses=next((spelling.uses for spelling in made if spelling), ""),
    )


def _optimizers(found: ApiCall, block: cst.CSTNode) -> list[cst.Call]:
    """The calls that make Paddle's optimizers in the clip's block; none if an optimizer could get two clips."""
    source, resolver = found.context.source, found.context.resolver
    function = source.function(found.call)
    made = [
        call
        for call in source.all(cst.Call)
        if source.function(call) is function and _OPTIMIZER.fullmatch(resolver.name(call.func))
    ]
    together = any(source.excluding(one, other) is None for one, other in combinations(made, 2))
    taken = any(a.star or (a.keyword is not None and a.keyword.value == "grad_clip") for call in made for a in call.args)
    elsewhere = any(block not in source.ancestors(call) for call in made)
    others = [
        call for call in source.any(cst.Call) if resolver.name(call.func) == found.name and source.function(call) is function
    ]
    return [] if together or taken or elsewhere or len(others) > 1 else made


def _are_all(optimizers: Sequence[cst.Call], found: ApiCall) -> bool:
    """Whether every optimizer that the function minimizes after the clip is set, or returns, is one of these."""
    source, resolver = found.context.source, found.context.resolver
    function = source.function(found.call)
    only = found.arguments.get("param_list")
    minimized = [c for c in source.any(cst.Call) if last_name(c.func) == "minimize" and source.function(c) is function]
    for call in minimized:
        receiver = call.func.value if isinstance(call.func, cst.Attribute) else call.func
        if source.start(call) < source.end(found.call) or not isinstance(receiver, cst.Name):
            return False
        places = resolver.assigned_at(receiver)
        if any(_assigned_value(place, source) not in optimizers for place in places):
            return False
        given = {a.keyword.value: source.one_line(a.value) for a in call.args if a.keyword is not None}
        if only is not None and literal(only.value) is not None and given.get("parameter_list") != source.one_line(only.value):
            return False
    if minimized:
        return True
    returned = all(isinstance(source.parents[optimizer], cst.Return) for optimizer in optimizers)
    return returned and (only is None or literal(only.value) is None)


def _assigned_value(place: cst.CSTNode, source: Source) -> cst.CSTNode | None:
    target = source.parents.get(place)
    statement = source.parents.get(target) if isinstance(target, cst.AssignTarget) else None
    return statement.value if isinstance(statement, cst.Assign) else None


def _made(clip: cst.BaseExpression, optimizer: cst.Call, found: ApiCall) -> Spelling | None:
    """The clip, spelled for the optimizer's call; None if a part of it is not yet known there."""
    context = found.context
    source, resolver = context.source, context.resolver
    if isinstance(clip, cst.Name):
        return Spelling(clip.value) if _is_known(clip, optimizer, found) else None
    api = BY_NAME.get(resolver.name(clip.func)) if isinstance(clip, cst.Call) else None
    target = None if api is None else targets(api).get(context.options.to)
    if not isinstance(clip, cst.Call) or api is None or api.kind is not Kind.OBJECT or target is None or target.by_hand:
        return None
    try:
        arguments = bind(clip, api.signature)
    except BindError:
        return None
    edits = renamed_arguments(ApiCall(context, clip, api, resolver.name(clip.func), arguments, target), target)
    if isinstance(edits, Finding):
        return None
    for argument in clip.args:
        for name in (node for node in source.any(cst.Name) if argument in source.ancestors(node) and _is_read(node, source)):
            if _is_known(name, optimizer, found):
                continue
            value = resolver.value_of(name)
            if value is None or number(value) is None:
                return None
            edits.append(Edit(*source.span(name), source.code(value)))
    spelled = spell(target.name, optimizer.func, source, resolver)
    start, end = source.start(clip.args[0]), source.end(clip.args[-1])
    text = " ".join(source.cut(start, end, edits).split())
    return Spelling(f"{spelled.text}({text})", spelled.needs, spelled.uses)


def _is_read(name: cst.Name, source: Source) -> bool:
    parent = source.parents[name]
    return not (isinstance(parent, cst.Arg) and parent.keyword is name) and not (
        isinstance(parent, cst.Attribute) and parent.attr is name
    )


def _is_known(name: cst.Name, optimizer: cst.Call, found: ApiCall) -> bool:
    """Whether a name has the same value where the optimizer is made as where the clip is set."""
    source, function = found.context.source, found.context.source.function(found.call)
    places = [p for p in found.context.resolver.assigned_at(name) if source.function(p) is function]
    if function is source.module:
        return all(source.start(place) < source.start(optimizer) for place in places)
    return all(isinstance(place, cst.Param) or source.start(place) < source.start(optimizer) for place in places)


def _added(call: cst.Call, text: str, source: Source) -> Edit:
    """Add a keyword after a call's last argument; on its own line if the arguments have one each, or the line is too long."""
    if not call.args:
        end = source.end(call) - 1
        return Edit(end, end, text)
    first, last = source.start(call.args[0]), call.args[-1]
    end, start = source.end(last), source.start(last)
    line = source.line_start(start)
    own_line = not source.data[line:start].strip()
    if own_line and isinstance(last.comma, cst.Comma):
        after = source.next_line(end)
        return Edit(after, after, f"{source.data[line:start].decode()}{text},{source.newline}")
    if not own_line and fits(call, len(text) + 2, source):
        return Edit(end, end, f", {text}")
    hanging = source.line_start(first) != source.line_start(source.end(call.func))
    space = source.data[line:start].decode() if own_line else " " * (first - source.line_start(first))
    return Edit(end, end, f",{source.newline}{indent(last, source) if hanging else space}{text}")
