"""The codemod: it takes one source and returns the migrated source and its sites.

LibCST parses the source. A name counts only if its imports resolve it to exactly one function of the table. Edits replace spans
of the text; every byte outside these spans stays. ``calls`` decides, ``traps`` object, ``rewrite`` and ``imports`` write.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import libcst as cst

from gradclip.code.flow import Flow
from gradclip.code.found import Context
from gradclip.code.gradients import Gradients
from gradclip.code.model import Migrated, Options, Outcome, Site, SourceError
from gradclip.code.replaced import replacements
from gradclip.code.resolve import Resolver
from gradclip.code.settings import KEYS
from gradclip.code.source import Edit, Source, last_name, target_names
from gradclip.code.traps import PLACES
from gradclip.errors import more
from gradclip.migrate.codemod import byhand, calls, configuration, handwritten, legacy, libraries, mentions
from gradclip.migrate.codemod.decision import Decision
from gradclip.migrate.codemod.imports import added
from gradclip.migrate.codemod.unused import removed
from gradclip.natives import BY_NAME, Kind

__all__ = ["migrate_source"]

#: in lower case; a source without any of these words has no sites
_WORDS = (
    *("clip", "clamp", "_norm", "norm(", "/ norm", "/norm", "/ (norm", "/(norm", "minimum"),
    *(".mul_(", "agc(", "optax", "dpsgd", "differentially_private"),
)
_BOM = "\ufeff"


def migrate_source(source: str, options: Options) -> Migrated:
    """Migrate one source.

    Args:
        source: Python 3.
        options: the user's options.

    Returns:
        The new source, in which each byte outside a rewrite equals the old one, and the sites in the order of the text.

    Raises:
        SourceError: if the source is not Python 3.

    Example:
        >>> from gradclip.migrate.codemod import migrate_source
        >>> from gradclip.code.model import Options
        >>> print(migrate_source("import torch\\ntorch.nn.utils.clip_grad_norm_(params, 1.0)\\n", Options()).source, end="")
        import gradclip
        gradclip.clip_grad_norm_(params, 1.0)
    """
    lower = source.lower()
    if not any(word in lower for word in _WORDS):
        return Migrated(source)
    mark = _BOM if source.startswith(_BOM) else ""
    collects = gc.isenabled()
    gc.disable()  # a tree has many objects, and none becomes garbage during parsing
    try:
        migrated = _migrate(Source(source.removeprefix(_BOM)), options)
    except RecursionError:
        raise SourceError("nested too deeply to be read") from None
    finally:
        if collects:
            gc.enable()
    return Migrated(mark + migrated.source, migrated.sites)


def _migrate(source: Source, options: Options) -> Migrated:
    resolver = Resolver(source, options.stars)
    replaced = replacements(source, resolver)
    gradients = Gradients(source, resolver)
    context = Context(source, resolver, gradients, Flow(source, gradients), options, replaced)
    mistakes = [calls.manual(node, finding) for check in PLACES for node, finding in check(context)]
    named = {decision.node for decision in mistakes}
    decisions = [*mistakes, *(decision for decision in _decisions(context) if decision.node not in named)]
    decisions = _outermost([decision for decision in decisions if _selected(decision, options)], source)
    if not decisions:
        return Migrated(source.text)
    decisions.sort(key=lambda decision: source.start(decision.node))
    decisions = legacy.once(decisions, source)
    edits = [edit for decision in decisions for edit in decision.edits]
    edits += _imports(decisions, context) + _comments(decisions, context)
    return Migrated(source.edited(edits) if edits else source.text, tuple(_site(decision, source) for decision in decisions))


def _outermost(decisions: Sequence[Decision], source: Source) -> list[Decision]:
    """Drop a decision that lies within another one: ``set_gradient_clip(Clip())`` is one site, and so is a handwritten clip."""
    quotients = [decision.node for decision in decisions if decision.code in ("GM402", "GM113")]
    around = {outer for node in quotients for outer in source.ancestors(node)}
    decisions = [decision for decision in decisions if decision.code != "GM112" or decision.node not in around]
    outer = {decision.node for decision in decisions if decision.api is not None and decision.api.kind is Kind.GLOBAL_STATE}
    whole = {decision.edits[0]: decision for decision in decisions if decision.code == "GM402" and decision.edits}
    if not outer and not whole:
        return list(decisions)
    return [
        decision
        for decision in decisions
        if outer.isdisjoint(source.ancestors(decision.node))
        and not any(
            edit.start <= source.start(decision.node) < edit.end and decision is not other for edit, other in whole.items()
        )
    ]


def _selected(decision: Decision, options: Options) -> bool:
    """Whether the user selected a decision, by its code or by the code of its function."""
    codes = [decision.code, *([decision.api.code] if decision.api is not None else [])]
    ignored = any(code.startswith(prefix) for code in codes for prefix in options.ignore)
    chosen = not options.select or any(code.startswith(prefix) for code in codes for prefix in options.select)
    return chosen and not ignored


def _site(decision: Decision, source: Source) -> Site:
    line, column = source.position(decision.node)
    text = source.code(decision.node).splitlines()[0].rstrip()
    said = (decision.reason, decision.advice, more(decision.code), decision.assumption, decision.lacks)
    return Site(line, column, decision.code, decision.outcome, text, *said)


# ---- finding ---------------------------------------------------------------------------------------------------------------


def _decisions(context: Context) -> Iterator[Decision]:
    """Every place that clips gradients or looks like a clip, each once."""
    source = context.source
    names = _names(context)
    for call in source.any(cst.Call):
        name = last_name(call.func)
        if name in names or any(a.keyword is not None and a.keyword.value in mentions.CLIP_KEYWORDS for a in call.args):
            decided = [*calls.decide(call, context)] or [*libraries.call(call, context)] or [*mentions.call(call, context)]
            decided = decided or [*(byhand.call(call, context) if name in byhand.METHODS else ())]
            yield from decided
            if decided:
                continue
        for argument in call.args:
            if argument.keyword is not None and argument.keyword.value in KEYS:
                yield from configuration.keyword(argument, context)
    nodes: list[cst.Name | cst.Attribute] = [*source.any(cst.Name), *source.any(cst.Attribute)]
    for node in nodes:
        if last_name(node) in names and _is_value(node, source):
            yield from mentions.value(node, context)
    yield from _others(context)


def _others(context: Context) -> Iterator[Decision]:
    source = context.source
    for node, name in context.replaced.items():
        yield mentions.replaced(node, name)
    for string in source.any(cst.SimpleString):
        yield from mentions.text(string, context)
    for call in source.any(cst.Call):
        yield from mentions.looked_up(call, context)
    for element in source.any(cst.DictElement):
        yield from configuration.entry(element, context)
    for attribute in source.any(cst.Attribute):
        if attribute.attr.value == "CLIP_GRADIENTS":
            yield from configuration.attribute(attribute, context)
        elif attribute.attr.value in mentions.CLIP_KEYWORDS:
            yield from configuration.assigned(attribute, context)
        elif configuration.is_setting(attribute.attr.value):
            yield from configuration.setting(attribute, context)
    yield from handwritten.clips(context)


def _names(context: Context) -> frozenset[str]:
    """The last names that a relevant call can have in this source: imports and assignments may add new names."""
    telling = mentions.METHODS | byhand.METHODS | libraries.LAST_NAMES | _TABLE
    imported = {binding.local for binding in context.resolver.bindings if binding.qualified.rpartition(".")[2] in telling}
    assigned = {
        name
        for assign in context.source.any(cst.Assign)
        if last_name(assign.value) in telling | imported
        for target in assign.targets
        for name in target_names(target.target)
    }
    return frozenset(telling | imported | assigned)


def _is_value(node: cst.Name | cst.Attribute, source: Source) -> bool:
    """Whether the source reads a name that is not called, bound, imported or part of a longer name."""
    parent = source.parents.get(node)
    if isinstance(parent, cst.Attribute):
        return parent.attr is not node
    if isinstance(parent, cst.Call):
        return parent.func is not node
    if isinstance(parent, cst.Arg):
        return parent.keyword is not node
    binders = (
        cst.AssignTarget,
        cst.ImportAlias,
        cst.ImportFrom,
        cst.AsName,
        cst.FunctionDef,
        cst.ClassDef,
        cst.Param,
        cst.NameItem,
    )
    return not isinstance(parent, binders)


# ---- writing ---------------------------------------------------------------------------------------------------------------


def _imports(decisions: Sequence[Decision], context: Context) -> list[Edit]:
    """The edits that add the imports that the rewrites need, and remove the imports that they leave unused."""
    source, resolver = context.source, context.resolver
    needs = [need for decision in decisions for need in decision.needs]
    objects = frozenset(
        decision.api.framework
        for decision in decisions
        if decision.released and decision.api is not None and decision.api.kind is Kind.OBJECT
    )
    return added(needs, source, resolver) + removed(decisions, objects, source, resolver, context.options.kept)


def _comments(decisions: Sequence[Decision], context: Context) -> list[Edit]:
    """One comment line above each manual place, if the user asks for it, and above each change of meaning; each line once."""
    source = context.source
    lines: dict[tuple[int, str], Edit] = {}
    for decision in decisions:
        text = f"# gradclip: {decision.comment}" if decision.comment else ""
        mark = text
        if decision.outcome is Outcome.MANUAL and context.options.annotate:
            mark = f"# gradclip: MANUAL {decision.code} "
            text = mark + decision.reason
        if not text:
            continue
        start = source.start(source.statement(decision.node))
        line = source.line_start(start)
        if not any(above.startswith(mark) for above in source.comments_above(line)):
            indent = source.data[line:start].decode()
            lines[line, mark] = Edit(line, line, f"{indent}{text}{source.newline}")
    return list(lines.values())


_TABLE = frozenset(name.partition("(")[0].rpartition(".")[2] for name in BY_NAME)
