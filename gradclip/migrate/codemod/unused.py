"""Remove the imports that a rewrite leaves unused, unless other code may need them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from gradclip.migrate.codemod.decision import Rewrite
from gradclip.migrate.codemod.separated import without
from gradclip.source.resolve import Binding, Resolver
from gradclip.source.source import Edit, Source, last_name

__all__ = ["removed"]

#: a name in a type comment, or in a doctest, which has the module's names
_IN_TEXT = r"(?m)#[ \t]*type:(?![ \t]*ignore)[^\n]*\b{name}\b|^[ \t]*(>>[>]|\.\.\.) [^\n]*\b{name}[ \t]*[.(]"


def removed(
    decisions: Sequence[Rewrite],
    kept: frozenset[str],
    source: Source,
    resolver: Resolver,
    elsewhere: frozenset[str] = frozenset(),
) -> list[Edit]:
    """The edits that remove the imports of released names without other uses, and insert needed names in their place.

    Args:
        decisions: the rewrites: the names that they remove, need, and still use.
        kept: the frameworks of which one import must stay, because an object looks for the framework when it is made.
        elsewhere: the names that other files import from this one; ``"*"`` for all.
    """
    gone = {_first_name(node) for decision in decisions for node in decision.released}
    used = {decision.uses for decision in decisions}
    needs = (need for decision in decisions for need in decision.needs)
    beside: dict[cst.ImportAlias, str] = {need.beside: need.statement for need in needs if need.beside is not None}
    free = [
        binding
        for binding in resolver.bindings
        if (uses := resolver.uses.get(binding.local))
        and gone.issuperset(uses)
        and binding.local not in used
        and binding.local not in source.hidden_names
        and not _is_wanted(binding, source)
        and not (elsewhere & {"*", binding.local} and source.function(binding.node) is source.module)
    ]
    for framework in kept:
        left = [b for b in resolver.bindings if b.qualified.partition(".")[0] == framework and b not in free]
        if not left:
            free = [b for b in free if b.qualified.partition(".")[0] != framework]
    edits = []
    for node in dict.fromkeys(binding.node for binding in resolver.bindings):
        aliases = [binding.alias for binding in free if binding.node is node]
        names = {alias: name for alias, name in beside.items() if any(alias is other for other in _aliases(node))}
        if len(aliases) == len(_aliases(node)) and not names and _is_alone(node, source):
            continue
        if aliases or names:
            edits += _statement(node, aliases, names, source)
    return edits


def _first_name(node: cst.CSTNode) -> cst.CSTNode:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def _is_wanted(binding: Binding, source: Source) -> bool:
    """Whether an import has a purpose beyond this source, or its line mentions F401."""
    name = binding.alias.name
    if binding.alias.asname is not None and isinstance(name, cst.Name) and name.value == binding.local:
        return True  # "import x as x" exports it
    code = re.compile(rf"\b{binding.local}\s*[.(]")
    for string in source.all(cst.SimpleString):
        if string.raw_value == binding.local:  # __all__, getattr
            return True
        text = str(string.raw_value)
        if isinstance(source.parents[string], cst.Arg) and code.search(text):  # eval
            return True
        if source.within(string, cst.Annotation) is not None and re.search(rf"\b{binding.local}\b", text):
            return True
    if re.search(_IN_TEXT.format(name=binding.local), source.text):
        return True
    line = source.parents[binding.node]
    start = source.start(line)
    return b"F401" in source.data[source.line_start(start) : source.next_line(source.end(line))]


def _is_alone(node: cst.Import | cst.ImportFrom, source: Source) -> bool:
    """Whether a block would be empty without this statement."""
    line = source.parents[node]
    block = source.parents[line]
    statements = getattr(line, "body", ())
    return len(statements) == 1 and not (
        isinstance(line, cst.SimpleStatementLine) and (isinstance(block, cst.Module) or len(getattr(block, "body", ())) > 1)
    )


def _aliases(node: cst.Import | cst.ImportFrom) -> Sequence[cst.ImportAlias]:
    return () if isinstance(node.names, cst.ImportStar) else node.names


def _statement(
    node: cst.Import | cst.ImportFrom, unused: list[cst.ImportAlias], names: dict[cst.ImportAlias, str], source: Source
) -> list[Edit]:
    """Edit one import statement: drop its unused names and add the needed ones."""
    present = {last_name(alias.name) for alias in _aliases(node) if alias.asname is None and alias not in unused}
    edits, left, written = [], [], set(present)
    for alias in _aliases(node):
        name = names.get(alias)
        start, end = source.span(alias)
        if name is None or name in written:
            left += [] if alias in unused else [alias]
            continue
        written.add(name)
        left.append(alias)
        edits.append(Edit(start, end, name) if alias in unused else Edit(start, start, f"{name},{_space(alias, source)}"))
    if not left:
        return [_whole(node, source)]
    return edits + without(_aliases(node), [alias for alias in unused if alias not in left], source)


def _space(alias: cst.ImportAlias, source: Source) -> str:
    """The separator of two names: a line break if each name has its own line."""
    start = source.start(alias)
    indent = source.data[source.line_start(start) : start].decode()
    return " " if indent.strip() else source.newline + indent


def _whole(node: cst.Import | cst.ImportFrom, source: Source) -> Edit:
    line = source.parents[node]
    start, end = source.span(node)
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
        return Edit(source.line_start(start), source.next_line(end), "")
    statements = list(getattr(line, "body", ()))
    number = statements.index(node)
    if number + 1 < len(statements):
        return Edit(start, source.start(statements[number + 1]), "")
    return Edit(source.end(statements[number - 1]), end, "")
