"""The codemod: it takes one source and returns the migrated source and its sites.

``gradclip.source`` finds the clips, and what is wrong with them. Edits replace spans of the text; every byte outside these
spans stays. ``applied``, ``byvalue`` and ``bynorm`` decide, ``rewrite`` and ``imports`` write.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from gradclip.migrate.codemod import bynorm, byvalue, legacy
from gradclip.migrate.codemod.applied import applied
from gradclip.migrate.codemod.decision import Rewrite
from gradclip.migrate.codemod.imports import added
from gradclip.migrate.codemod.unused import removed
from gradclip.natives import Kind
from gradclip.source.byhand.clamps import ByValue
from gradclip.source.byhand.norms import ByNorm
from gradclip.source.codes import CODES, RULES
from gradclip.source.found import ApiCall, Context, Decision, Finding, manual
from gradclip.source.model import Migrated, Options, Site, Verdict
from gradclip.source.sites import decided, read, site
from gradclip.source.source import Edit, Source

__all__ = ["migrate_source"]

_EARLY = "GM122"
_MOVE = "Move it behind the reduction over the replicas first, and run the migration again."


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
        >>> from gradclip.source.model import Options
        >>> print(migrate_source("import torch\\ntorch.nn.utils.clip_grad_norm_(params, 1.0)\\n", Options()).source, end="")
        import gradclip
        gradclip.clip_grad_norm_(params, 1.0)
    """
    return read(source, options, _migrated)


def _migrated(context: Context) -> Migrated:
    source = context.source
    decisions = legacy.warned_once(_apart(_reduced_first(decided(context, _decide), source), source), source)
    rewrites = [decision for decision in decisions if isinstance(decision, Rewrite)]
    edits = [edit for decision in rewrites for edit in decision.edits]
    edits += (_imports(rewrites, context) if rewrites else []) + _comments(decisions, context)
    return Migrated(source.edited(edits) if edits else source.text, tuple(_site(decision, source) for decision in decisions))


def _decide(found: ApiCall | ByValue | ByNorm) -> list[Decision]:
    if isinstance(found, ApiCall):
        decisions = applied(found)
    else:
        rewrite = byvalue.rewritten(found) if isinstance(found, ByValue) else bynorm.rewritten(found)
        decisions = [rewrite or manual(found.node, found.finding)]
    made, own = decisions[0], found.context.options.about.own
    if own and isinstance(made, Rewrite) and any("gradclip" in need.statement for need in made.needs):
        return [manual(made.node, _shadowed(own), made.api)]
    return decisions


def _shadowed(own: str) -> Finding:
    """Why no call becomes gradclip's where the project has a module of this name."""
    return Finding("GM201", f"`import gradclip` would import the project's own {own} here.", "Rename that file first.")


def _reduced_first(decisions: Sequence[Decision], source: Source) -> list[Decision]:
    """The decisions; a clip before the reduction over replicas stays until a person has moved it."""
    early = [one for one in decisions if one.code == _EARLY]
    if not early:
        return [*decisions]
    at, functions = {one.node for one in early}, {outer for one in early for outer in _around(one, source)}
    made = []
    for one in decisions:
        if isinstance(one, Rewrite) and one.node in at:
            continue
        is_early = isinstance(one, Rewrite) and one.code in CODES and _around(one, source) & functions
        made.append(manual(one.node, Finding(one.code, advice=_MOVE), one.api) if is_early else one)
    return made


def _around(one: Decision, source: Source) -> set[cst.CSTNode]:
    """The functions around a place."""
    return {outer for outer in source.ancestors(one.node) if isinstance(outer, cst.FunctionDef)}


def _apart(decisions: Sequence[Decision], source: Source) -> list[Decision]:
    """Drop a decision that lies within the text that the rewrite of a clip by norm replaces, but no mistake of its step."""
    whole = [one for one in decisions if isinstance(one, Rewrite) and one.code == "GM402"]
    replaced = sorted(((edit.start, edit.end, one) for one in whole for edit in one.edits), key=lambda span: span[0])

    def is_replaced(decision: Decision) -> bool:
        at = source.start(decision.node)
        number = bisect.bisect_right(replaced, at, key=lambda span: span[0]) - 1
        return number >= 0 and at < replaced[number][1] and replaced[number][2] is not decision

    return [decision for decision in decisions if decision.code in RULES or not is_replaced(decision)]


def _site(decision: Decision, source: Source) -> Site:
    made = site(decision, source)
    return replace(made, assumption=decision.assumption, lacks=decision.lacks) if isinstance(decision, Rewrite) else made


# ---- writing ---------------------------------------------------------------------------------------------------------------


def _imports(decisions: Sequence[Rewrite], context: Context) -> list[Edit]:
    """The edits that add the imports that the rewrites need, and remove the imports that they leave unused."""
    source, resolver = context.source, context.resolver
    needs = [need for decision in decisions for need in decision.needs]
    objects = frozenset(
        decision.api.framework
        for decision in decisions
        if decision.released and decision.api is not None and decision.api.kind is Kind.OBJECT
    )
    return added(needs, source) + removed(decisions, objects, source, resolver, context.options.about.kept)


def _comments(decisions: Sequence[Decision], context: Context) -> list[Edit]:
    """One comment line above each manual place, if the user asks for it, and above each change of meaning; each line once."""
    source = context.source
    lines: dict[tuple[int, str], Edit] = {}
    for decision in decisions:
        text = f"# gradclip: {decision.comment}" if isinstance(decision, Rewrite) and decision.comment else ""
        mark = text
        if decision.outcome is Verdict.MANUAL and context.options.annotate:
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
