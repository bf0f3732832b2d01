"""The imports that rewritten calls need, and their places."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from gradclip.migrate.codemod.decision import Need
from gradclip.source.found import Context
from gradclip.source.resolve import Resolver, module_of
from gradclip.source.source import Edit, Import, Source, dotted, once

__all__ = ["added", "beside_torch", "spell"]


@dataclass(frozen=True, slots=True)
class Spelling:
    """The text of a qualified name at one place, and the imports that it needs."""

    text: str
    needs: tuple[Need, ...] = ()
    uses: str = ""  #: the existing import's name that the text begins with


def spell(qualified: str, at: cst.BaseExpression, source: Source, resolver: Resolver) -> Spelling:
    """A function of gradclip or of a framework, spelled for the place of another function's name."""
    anchors = [binding.node for binding in resolver.names(at).bound_at]
    if qualified.startswith("gradclip."):
        return _gradclip(qualified, anchors, at, source, resolver)
    return _native(qualified, _first_import(anchors, at, source), at, source, resolver)


def _first_import(nodes: Sequence[cst.CSTNode], at: cst.CSTNode, source: Source) -> cst.CSTNode | None:
    """The first of several imports; imports in the same function precede imports of the module."""
    function = source.function(at)
    return min(nodes, key=lambda node: (source.function(node) is not function, source.start(node)), default=None)


def _gradclip(
    qualified: str, anchors: Sequence[cst.CSTNode], at: cst.BaseExpression, source: Source, resolver: Resolver
) -> Spelling:
    """Spell ``gradclip.clip_``; import a slot's function under its own name, and a dialect under a short name."""
    parts = qualified.split(".")
    anchor = _first_import(anchors, at, source)
    if len(parts) == 2:
        name, need = _imported("gradclip", "", "gradclip", [anchor], at, source, resolver)
        return Spelling(f"{name}.{parts[1]}", need)
    if parts[1] == "dialects":
        name, need = _imported("gradclip.dialects", parts[2], f"{parts[2]}_rules", [anchor], at, source, resolver)
        return Spelling(f"{name}.{parts[3]}", need)
    lazy = anchors if not any(_is_top(one, source) for one in anchors) else [anchor]  # the module imports its framework
    name, need = _imported(".".join(parts[:-1]), parts[-1], parts[-1], lazy, at, source, resolver)
    return Spelling(name, need)


def _imported(
    module: str,
    member: str,
    local: str,
    anchors: Sequence[cst.CSTNode | None],
    at: cst.BaseExpression,
    source: Source,
    resolver: Resolver,
) -> tuple[str, tuple[Need, ...]]:
    """The local name of a module of gradclip, or of a member, at a place: from an existing import or from a new one."""
    qualified = f"{module}.{member}" if member else module
    for binding in resolver.bindings:
        before = _is_top(binding.node, source) and source.start(binding.node) < source.start(at)
        if binding.qualified == qualified and before and _means(binding.local, qualified, resolver):
            return binding.local, ()
    if not _means(local, qualified, resolver):
        local = _free(f"{local}_", resolver)
    original = member or module
    name = original if local == original else f"{original} as {local}"
    statement = f"from {module} import {name}" if member else f"import {name}"
    inner = member == local.rstrip("_") and not any(anchor is None or _is_top(anchor, source) for anchor in anchors)
    return local, tuple(Need(statement, anchor, at, local=inner) for anchor in anchors)


def _means(local: str, qualified: str, resolver: Resolver) -> bool:
    """Whether each import that binds a name imports the same object, and nothing else binds the name."""
    bindings = [binding for binding in resolver.bindings if binding.local == local]
    return all(binding.qualified == qualified for binding in bindings) and local not in resolver.assigned


def _free(name: str, resolver: Resolver) -> str:
    while name in resolver.taken:
        name += "_"
    return name


def _native(qualified: str, anchor: cst.CSTNode | None, at: cst.BaseExpression, source: Source, resolver: Resolver) -> Spelling:
    module, _, name = qualified.rpartition(".")
    written = dotted(at) or ()
    if isinstance(at, cst.Attribute) and resolver.name(at.value) == module:
        return Spelling(f"{source.code(at.value)}.{name}", uses=written[0])
    for binding in resolver.names(at).bound_at:
        beside = isinstance(binding.node, cst.ImportFrom) and len(written) == 1 and module_of(binding.node) == module
        others = [other for other in resolver.bindings if other.local == name and other.qualified != qualified]
        if beside and not others and name not in resolver.assigned:
            return Spelling(name, (Need(name, binding.node, at, binding.alias),))
    tops = [b for b in resolver.bindings if _is_top(b.node, source) and source.start(b.node) < source.start(at)]
    for binding in sorted(tops, key=lambda binding: -len(binding.qualified)):
        alone = [other.qualified for other in resolver.bindings if other.local == binding.local] == [binding.qualified]
        if qualified.startswith(binding.qualified + ".") and alone and binding.local not in resolver.assigned:
            return Spelling(binding.local + qualified.removeprefix(binding.qualified), uses=binding.local)
    top, _, rest = qualified.partition(".")
    if top not in resolver.taken:
        return Spelling(qualified, (Need(f"import {top}", anchor, at),))
    alias = _free(f"{top}_", resolver)
    return Spelling(f"{alias}.{rest}", (Need(f"import {top} as {alias}", anchor, at),))


def beside_torch(needs: Sequence[Need], context: Context) -> tuple[Need, ...]:
    """The same imports, placed beside the import of torch."""
    torch = (one for one in context.resolver.bindings if one.qualified.partition(".")[0] == "torch")
    anchor = min((one.node for one in torch), key=context.source.start, default=None)
    return tuple(replace(need, anchor=anchor) for need in needs)


# ---- the places of new imports -------------------------------------------------------------------------------------------


def added(needs: Iterable[Need], source: Source) -> list[Edit]:
    """The edits that add the needed imports: each once, beside the import that it replaces, before all of its uses."""
    edits: dict[tuple[str, int], Edit] = {}
    tops: dict[str, list[Need]] = {}
    for need in needs:
        if need.beside is not None:
            continue  # it goes with the alias that it replaces, when that alias is removed
        if need.local and need.anchor is not None:
            edit = _in_block(need.statement, need.anchor, source)
            edits[need.statement, edit.start] = edit
        else:
            tops.setdefault(need.statement, []).append(need)
    for statement in sorted(tops, key=_sort_key):
        edit = _at_top(statement, tops[statement], source)
        edits[statement, edit.start] = edit
    return _together(edits.values(), source)


def _together(edits: Iterable[Edit], source: Source) -> list[Edit]:
    """Join imports below a docstring into one block; separately, each would get blank lines around it."""
    blocks: dict[int, Edit] = {}
    others = []
    for edit in edits:
        first = blocks.get(edit.start)
        if not edit.text.startswith(source.newline):
            others.append(edit)
        elif first is None:
            blocks[edit.start] = edit
        else:
            text = first.text.rstrip("\r\n") + source.newline + edit.text.removeprefix(source.newline)
            blocks[edit.start] = Import(edit.start, edit.end, text)
    return [*blocks.values(), *others]


def _at_top(statement: str, needs: Sequence[Need], source: Source) -> Edit:
    """Insert an import among the module's imports: in sorted order in the block of the first anchor, or after the last one.

    It precedes the first statement of the module that uses it, so every path of execution runs it first.
    """
    body = source.module.body
    use = min(_number(need.at, source) for need in needs)
    anchors = [need.anchor for need in needs if need.anchor is not None and _number(need.anchor, source) <= use]
    anchor = min(anchors, key=source.start, default=None)
    imports = [number for number, node in enumerate(body[:use]) if _is_import(node)]
    others = [number for number in imports if _is_of_others(body[number])]
    first = next(iter(others or imports), use)
    outer = first if anchor is None else _number(anchor, source)
    if anchor is not None and _is_top(anchor, source) and not _is_import(body[outer]):
        return _in_block(statement, anchor, source)  # the line contains another statement
    if outer < use and _is_import(body[outer]):
        block = [node for node in _block(body, outer) if _number(node, source) < use]
        open_ = [node for node in block if not any(line.comment for line in node.leading_lines)]
        later = next((node for node in open_ if _sort_key(source.code(node)) > _sort_key(statement)), None)
        if later is not None:
            start = source.line_start(source.start(later))
            return Import(start, start, statement + source.newline)
        return _after(block[-1], statement, source)
    before = [node for node in body[:outer] if _is_import(node) or _is_future(node)]
    if before:
        return _after(before[-1], statement, source)
    if body and _is_docstring(body[0]):
        following = source.next_line(source.end(body[0]))
        blank = not source.data[following : source.next_line(following)].strip()
        return _after(body[0], source.newline + statement + ("" if blank else source.newline), source)
    return _first(statement, source)


def _number(node: cst.CSTNode, source: Source) -> int:
    """The index of the module's statement that contains a node."""
    while not isinstance(source.parents[node], cst.Module):
        node = source.parents[node]
    return _numbers(source)[node]


@once
def _numbers(source: Source) -> Mapping[cst.CSTNode, int]:
    return {one: number for number, one in enumerate(source.module.body)}


def _block(body: Sequence[cst.CSTNode], number: int) -> list[cst.SimpleStatementLine]:
    """The imports around one import, up to a blank line or a comment."""
    first = number
    while first and _is_import(body[first - 1]) and not _leads(body[first]):
        first -= 1
    last = number
    while last + 1 < len(body) and _is_import(body[last + 1]) and not _leads(body[last + 1]):
        last += 1
    return [node for node in body[first : last + 1] if isinstance(node, cst.SimpleStatementLine)]


def _leads(node: cst.CSTNode) -> bool:
    return bool(getattr(node, "leading_lines", ()))


def _is_import(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine) or _is_future(node):
        return False
    return all(isinstance(part, (cst.Import, cst.ImportFrom)) for part in node.body)


def _is_of_others(node: cst.CSTNode) -> bool:
    """Whether an import is of a package that is neither Python's own nor given by a relative path."""
    part = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    if isinstance(part, cst.ImportFrom):
        return not part.relative and module_of(part).partition(".")[0] not in sys.stdlib_module_names
    names = [dotted(one.name) or ("",) for one in part.names] if isinstance(part, cst.Import) else []
    return not {name[0] for name in names} <= sys.stdlib_module_names


def _is_future(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    return any(isinstance(part, cst.ImportFrom) and module_of(part) == "__future__" for part in node.body)


def _is_docstring(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Expr):
        return False
    return isinstance(node.body[0].value, (cst.SimpleString, cst.ConcatenatedString))


def _is_top(node: cst.CSTNode, source: Source) -> bool:
    """Whether a small statement is at the top level of the module, in no block."""
    line = source.parents.get(node)
    return isinstance(line, cst.SimpleStatementLine) and isinstance(source.parents.get(line), cst.Module)


def _sort_key(statement: str) -> tuple[bool, str]:
    words = statement.split()
    return words[0] == "from", words[1].lower()


def _after(node: cst.CSTNode, statement: str, source: Source) -> Edit:
    end = source.next_line(source.end(node))
    on_own_line = end == 0 or source.data[end - 1 : end] in (b"\n", b"\r")
    return Import(end, end, statement + source.newline if on_own_line else source.newline + statement)


def _first(statement: str, source: Source) -> Edit:
    """Insert before everything except the lines that must come first: the shebang and the encoding."""
    start = 3 if source.data.startswith("\ufeff".encode()) else 0
    for _ in range(2):
        line = source.data[start : source.next_line(start)]
        if line.startswith(b"#!") or (line.startswith(b"#") and b"coding" in line):
            start = source.next_line(start)
    return Import(start, start, statement + source.newline)


def _in_block(statement: str, anchor: cst.CSTNode, source: Source) -> Edit:
    line = source.parents[anchor]
    start = source.start(anchor)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
        return Import(start, start, f"{statement}; ")
    indent = source.data[source.line_start(start) : start].decode()
    return _after(line, indent + statement, source)
