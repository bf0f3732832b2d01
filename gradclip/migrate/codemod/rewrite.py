"""The replacement of a call: the new name, and as few edits to the arguments as possible."""

from __future__ import annotations

import importlib
import inspect

import libcst as cst

from gradclip.migrate.codemod.decision import Rewrite
from gradclip.migrate.codemod.imports import spell
from gradclip.migrate.codemod.layout import aligned, fits, indent
from gradclip.migrate.codemod.separated import without
from gradclip.natives import BY_NAME, Kind
from gradclip.natives.targets import Target
from gradclip.source.bind import literal
from gradclip.source.found import ApiCall, Finding
from gradclip.source.model import Verdict
from gradclip.source.source import Edit, Source

__all__ = ["rewritten"]


def rewritten(found: ApiCall, target: Target) -> Rewrite | Finding:
    """The edits that turn the call into the target's, or the reason against it."""
    if found.api.kind is Kind.KEYWORD:
        return _keyword(found, target)
    arguments = _renamed(found, target)
    if isinstance(arguments, Finding):
        return arguments
    source, call = found.context.source, found.call
    spelled = spell(target.name, call.func, source, found.context.resolver)
    text, needs = spelled.text, spelled.needs
    closing: list[Edit] = []
    before = len(source.code(call.func))
    if target.wrapper:
        wrapper = spell(target.wrapper, call.func, source, found.context.resolver)
        needs = (*wrapper.needs, *needs)
        growth = len(wrapper.text) + 2 + len(text) - before
        opening, end = _opening(call, wrapper.text, growth, source)
        text = f"{opening}{text}"
        closing = [Edit(source.end(call), source.end(call), end)]
    edits = (*_callee(call.func, text, source), *arguments, *closing)
    edits += (*aligned(call, len(text.rpartition("\n")[2]) - before, edits, source),)
    return Rewrite(
        call,
        found.api.code,
        Verdict.REWRITTEN,
        target.note,
        api=found.api,
        edits=edits,
        released=(call.func,),
        needs=needs,
        uses=spelled.uses,
    )


def _keyword(found: ApiCall, target: Target) -> Rewrite | Finding:
    """Rewrite ``SGD(clipnorm=1.0)`` as ``clipped(SGD(), clipnorm(1.0))``."""
    source, call = found.context.source, found.call
    argument = found.arguments[found.api.keyword]
    wrapper = spell(target.wrapper, call.func, source, found.context.resolver)
    spelled = spell(target.name, call.func, source, found.context.resolver)
    start, end = source.span(call)
    without_it = without(call.args, [argument], source)
    gone = sum(edit.end - edit.start for edit in without_it)
    rule = f"{spelled.text}({source.code(argument.value)})"
    opening, closing = _opening(call, wrapper.text, len(wrapper.text) + len(rule) + 4 - gone, source)
    broken = opening.endswith(" ")
    rule = f",{source.newline}{opening.rpartition(source.newline)[2]}{rule}" if broken else f", {rule}"
    edits: tuple[Edit, ...] = (Edit(start, start, opening), *without_it, Edit(end, end, f"{rule}{closing}"))
    moved = len(opening) if not broken else len(opening.rpartition("\n")[2]) - (start - source.line_start(start))
    edits += (*aligned(call, moved, edits, source),)
    needs = (*wrapper.needs, *spelled.needs)
    return Rewrite(call, found.api.code, Verdict.REWRITTEN, target.note, api=found.api, edits=edits, needs=needs)


def _opening(call: cst.Call, wrapper: str, growth: int, source: Source) -> tuple[str, str]:
    """The text before and after a call that becomes an argument; on separate lines if one line would be too long."""
    one_line = source.line_start(source.start(call)) == source.line_start(source.end(call))
    if not one_line or fits(call, growth, source):
        return f"{wrapper}(", ")"
    space = indent(call, source)
    return f"{wrapper}({source.newline}{space}    ", f"{source.newline}{space})"


def _callee(func: cst.BaseExpression, text: str, source: Source) -> list[Edit]:
    """Replace a dotted name with a new one; comments and line breaks within the old name stay in place."""
    start, end = source.span(func)
    if source.data[start:end].decode().isidentifier() or not any(c in source.data[start:end] for c in b" \t\r\n\\#"):
        return [Edit(start, end, text)]
    edits = []
    while isinstance(func, cst.Attribute):
        dot = source.outer_span(func.value)[1] if func.dot.whitespace_before.empty else source.end(func.dot.whitespace_before)
        edits += [Edit(dot, dot + 1, ""), Edit(*source.span(func.attr), "")]
        func = func.value
    return [Edit(*source.span(func), text), *edits]


def _renamed(found: ApiCall, target: Target) -> list[Edit] | Finding:
    """The edits to the arguments, validated against the signature of the target."""
    source, call = found.context.source, found.call
    given: dict[str, cst.Arg] = {}
    unwanted: list[cst.Arg] = []
    for native, argument in found.arguments.items():
        name = target.arguments.get(native, "" if target.arguments else native)
        if native in target.dropped or not name:
            if not _is_default(native, argument, found):
                what = f"`{native}={source.code(argument.value)}` has no counterpart in {target.name}."
                return Finding("GM114", what, target.note or "Write by hand what it does, and leave it out.")
            unwanted.append(argument)
        else:
            given[name] = argument
    edits = without(call.args, unwanted, source)
    order = list(_signature(target.name).parameters)
    positional = [name for name, argument in given.items() if argument.keyword is None]
    in_order = positional == order[: len(positional)]
    for name, argument in given.items():
        if argument.keyword is not None and argument.keyword.value != name:
            edits.append(Edit(*source.span(argument.keyword), name))
        elif argument.keyword is None and not in_order:
            start = source.start(argument)
            edits.append(Edit(start, start, f"{name}="))
    try:
        _signature(target.name).bind(**given)
    except TypeError as error:
        return Finding("GM204", f"Its arguments do not make a call of {target.name}: {error}.")
    return edits


def _is_default(name: str, argument: cst.Arg, found: ApiCall) -> bool:
    value = literal(argument.value)
    return value is not ... and value == found.api.signature.parameters[name].default


def _signature(qualified: str) -> inspect.Signature:
    """The signature of gradclip's function, from the function itself, or of a framework's, from the table."""
    if not qualified.startswith("gradclip."):
        return BY_NAME[qualified].signature
    module, _, name = qualified.rpartition(".")
    return inspect.signature(getattr(importlib.import_module(module), name))
