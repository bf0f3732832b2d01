"""The imports that rewritten calls need, and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from gradclip.migrate.codemod.resolve import Binding, Resolver, module_of
from gradclip.migrate.codemod.source import Edit, Source, dotted

__all__ = ["Need", "Spelling", "added", "spell"]


@dataclass(frozen=True, slots=True)
class Need:
    """An import that a rewritten call needs."""

    statement: str  #: "import gradclip"
    anchor: cst.CSTNode | None  #: the import that the call depended on; the new one goes where that is
    beside: cst.ImportAlias | None = None  #: of a from-import: the alias next to which ``statement``, a name, is to go
    local: bool = False  #: in the block of the anchor, even where that is no part of the module's own


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a qualified name is written at one place, and what must be imported for it."""

    text: str
    needs: tuple[Need, ...] = ()
    uses: str = ""  #: the name that an import binds already and that this begins with


def spell(qualified: str, at: cst.BaseExpression, source: Source, resolver: Resolver) -> Spelling:
    """A function of gradclip, or of a framework, at the place of another function's name."""
    anchor = next((binding.node for binding in resolver.names(at).bound_at), None)
    if qualified.startswith("gradclip."):
        return _gradclip(qualified, anchor, at, source, resolver)
    return _native(qualified, anchor, at, source, resolver)


def _gradclip(
    qualified: str, anchor: cst.CSTNode | None, at: cst.BaseExpression, source: Source, resolver: Resolver
) -> Spelling:
    if not qualified.startswith("gradclip.backends."):
        name, needs = _bound("gradclip", anchor, at, source, resolver)
        return Spelling(name + qualified.removeprefix("gradclip"), needs)
    module, _, function = qualified.rpartition(".")
    name, needs = _bound(module, anchor, at, source, resolver)
    return Spelling(f"{name}.{function}", needs)


def _bound(
    module: str, anchor: cst.CSTNode | None, at: cst.BaseExpression, source: Source, resolver: Resolver
) -> tuple[str, tuple[Need, ...]]:
    """The name of a module of gradclip at a place: what is imported already, or a new import."""
    for binding in resolver.bindings:
        if _is_module(binding, module) and _is_top(binding.node, source) and source.start(binding.node) < source.start(at):
            name = binding.local if binding.alias.asname is not None else module
            if _means_gradclip(binding.local, resolver):
                return name, ()
    local = module != "gradclip" and anchor is not None and not _is_top(anchor, source)
    if not local and _means_gradclip("gradclip", resolver):
        return module, (Need(f"import {module}", anchor),)
    alias = _free(module.replace(".backends.", "_") if module != "gradclip" else "gradclip_", resolver)
    return alias, (Need(f"import {module} as {alias}", anchor, local=local),)


def _is_module(binding: Binding, module: str) -> bool:
    if isinstance(binding.node, cst.ImportFrom):
        return False
    imported = ".".join(dotted(binding.alias.name) or ())
    return imported == module or (module == "gradclip" and binding.alias.asname is None and binding.local == "gradclip")


def _means_gradclip(local: str, resolver: Resolver) -> bool:
    """Whether every import of a name is of gradclip, and nothing else binds it."""
    bindings = [binding for binding in resolver.bindings if binding.local == local]
    foreign = any(binding.qualified.partition(".")[0] != "gradclip" for binding in bindings)
    return not foreign and local not in resolver.assigned


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
            return Spelling(name, (Need(name, binding.node, binding.alias),))
    tops = [binding for binding in resolver.bindings if _is_top(binding.node, source)]
    for binding in sorted(tops, key=lambda binding: -len(binding.qualified)):
        alone = [other.qualified for other in resolver.bindings if other.local == binding.local] == [binding.qualified]
        if qualified.startswith(binding.qualified + ".") and alone and binding.local not in resolver.assigned:
            return Spelling(binding.local + qualified.removeprefix(binding.qualified), uses=binding.local)
    top, _, rest = qualified.partition(".")
    if top not in resolver.taken:
        return Spelling(qualified, (Need(f"import {top}", anchor),))
    alias = _free(f"{top}_", resolver)
    return Spelling(f"{alias}.{rest}", (Need(f"import {top} as {alias}", anchor),))


# ---- where new imports go ------------------------------------------------------------------------------------------------


def added(needs: Iterable[Need], source: Source, resolver: Resolver) -> list[Edit]:
    """The edits that import what is needed: each once, beside the import that it stands in for."""
    edits: dict[tuple[str, int], Edit] = {}
    tops: set[str] = set()
    for need in needs:
        if need.beside is not None:
            continue  # with the alias that it replaces, where those are removed
        if need.local and need.anchor is not None:
            edit = _in_block(need.statement, need.anchor, source)
        elif need.statement in tops:
            continue
        else:
            tops.add(need.statement)
            edit = _at_top(need.statement, need.anchor, source)
        edits[need.statement, edit.start] = edit
    return list(edits.values())


def _at_top(statement: str, anchor: cst.CSTNode | None, source: Source) -> Edit:
    """Among the imports of the module: in the place that sorting gives it in the block of the anchor, or after the last."""
    body = source.module.body
    outer = _number(anchor, source) if anchor is not None else next((n for n, node in enumerate(body) if _is_import(node)), 0)
    if anchor is not None and _is_top(anchor, source) and not _is_import(body[outer]):
        return _in_block(statement, anchor, source)  # in a line with something else
    if outer < len(body) and _is_import(body[outer]):
        block = _block(body, outer)
        open_ = [node for node in block if not any(line.comment for line in node.leading_lines)]
        later = next((node for node in open_ if _sort_key(source.code(node)) > _sort_key(statement)), None)
        if later is not None:
            start = source.line_start(source.start(later))
            return Edit(start, start, statement + source.newline)
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
    """Which statement of the module a node is in."""
    while not isinstance(source.parents[node], cst.Module):
        node = source.parents[node]
    return next(number for number, statement in enumerate(source.module.body) if statement is node)


def _block(body: Sequence[cst.CSTNode], number: int) -> list[cst.SimpleStatementLine]:
    """The imports around one that no blank line and no comment parts from it."""
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


def _is_future(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    return any(isinstance(part, cst.ImportFrom) and module_of(part) == "__future__" for part in node.body)


def _is_docstring(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Expr):
        return False
    return isinstance(node.body[0].value, (cst.SimpleString, cst.ConcatenatedString))


def _is_top(node: cst.CSTNode, source: Source) -> bool:
    """Whether a small statement is one of the module itself, in no block."""
    line = source.parents.get(node)
    return isinstance(line, cst.SimpleStatementLine) and isinstance(source.parents.get(line), cst.Module)


def _sort_key(statement: str) -> tuple[bool, str]:
    words = statement.split()
    return words[0] == "from", words[1].lower()


def _after(node: cst.CSTNode, statement: str, source: Source) -> Edit:
    end = source.next_line(source.end(node))
    on_own_line = end == 0 or source.data[end - 1 : end] in (b"\n", b"\r")
    return Edit(end, end, statement + source.newline if on_own_line else source.newline + statement)


def _first(statement: str, source: Source) -> Edit:
    """Before everything but the lines that must come first: an interpreter's and an encoding's."""
    start = 3 if source.data.startswith("\ufeff".encode()) else 0
    for _ in range(2):
        line = source.data[start : source.next_line(start)]
        if line.startswith(b"#!") or (line.startswith(b"#") and b"coding" in line):
            start = source.next_line(start)
    return Edit(start, start, statement + source.newline)


def _in_block(statement: str, anchor: cst.CSTNode, source: Source) -> Edit:
    line = source.parents[anchor]
    start = source.start(anchor)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
        return Edit(start, start, f"{statement}; ")
    indent = source.data[source.line_start(start) : start].decode()
    return _after(line, indent + statement, source)
