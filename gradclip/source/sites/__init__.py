"""Every place in a source that clips gradients, or looks like a clip, and what the linter says of it.

``calls`` reads the calls of the table's functions, ``libraries`` and ``configuration`` the clips of other libraries, and
``mentions`` what only looks like a clip; ``gradclip.source.byhand`` finds the clips that are written out.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from gradclip.core.errors import more
from gradclip.natives import BY_NAME, KEYWORDS, Kind
from gradclip.source.bind import keyword
from gradclip.source.byhand import clamps, likely, norms
from gradclip.source.codes import wanted
from gradclip.source.found import ApiCall, Context, Decision, manual
from gradclip.source.gradients import Gradients
from gradclip.source.hidden import may_clip, names_clip, trains
from gradclip.source.model import Migrated, Options, Site, SourceError, Verdict
from gradclip.source.resolve import Resolver
from gradclip.source.settings import KEYS
from gradclip.source.sites import calls, configuration, libraries, mentions, own
from gradclip.source.source import Source, last_name, target_names, words
from gradclip.source.traps import PLACES, steps
from gradclip.source.values import Values

__all__ = ["decided", "linted", "read", "site"]

#: a decision, or a clip that a rewrite may replace
_Found = Decision | ApiCall | clamps.ByValue | norms.ByNorm
_BOM = "\ufeff"


def linted(source: str, options: Options) -> Migrated:
    """The mistakes in a source, and its clips; the source stays as it is.

    Args:
        source: Python 3.
        options: the user's options.

    Raises:
        SourceError: if the source is not Python 3.
    """

    def sites(context: Context) -> Migrated:
        found = [site(one, context.source) for one in decided(context, _said)]
        return Migrated(context.source.text, tuple(sorted([*found, *steps.hidden(context)])))

    return read(source, options, sites)


def _said(found: ApiCall | clamps.ByValue | norms.ByNorm) -> list[Decision]:
    return calls.mistakes(found) if isinstance(found, ApiCall) else [manual(found.node, found.finding)]


def read(source: str, options: Options, do: Callable[[Context], Migrated]) -> Migrated:
    """Parse a source, and do something with it, unless none of its words can be a clip.

    Raises:
        SourceError: if the source is not Python 3.
    """
    if not may_clip(source, lint=options.lint):
        return Migrated(source)
    mark = _BOM if source.startswith(_BOM) else ""
    text = source.removeprefix(_BOM)
    collects = gc.isenabled()
    gc.disable()  # a tree has many objects, and none becomes garbage during parsing
    try:
        likely_at = [] if options.lint else [place.lineno for place, _ in likely.places(text)]
        is_asked = options.norms or likely_at or (options.lint and trains(text))
        if not (is_asked or names_clip(text, _CLIPS)):
            return Migrated(source)
        made = do(_context(Source(text, likely_at), options))
    except RecursionError:
        raise SourceError("nested too deeply to be read") from None
    finally:
        if collects:
            gc.enable()
    return Migrated(mark + made.source, made.sites)


def _context(source: Source, options: Options) -> Context:
    resolver = Resolver(source, options.about.stars)
    values = Values(source, resolver)
    gradients = Gradients(source, resolver, values)
    return Context(
        source,
        resolver,
        values,
        gradients,
        options,
        mentions.replacements(source, resolver),
    )


def decided(
    context: Context, decide: Callable[[ApiCall | clamps.ByValue | norms.ByNorm], Sequence[Decision]]
) -> list[Decision]:
    """The decisions that the user selected, in the order of the text; ``decide`` says what becomes of a clip."""
    places = [*_found(context)]
    calls = frozenset(one.call for one in places if isinstance(one, ApiCall))
    mistakes = [manual(node, finding) for check in PLACES for node, finding in check(context)]
    told = {(one.node, one.code) for one in mistakes}
    others = [manual(*one) for one in steps.elsewhere(context, calls)] if _has_steps(places, context) else []
    mistakes += [one for one in others if (one.node, one.code) not in told]
    named = {one.node for one in mistakes}
    for found in places:
        decisions = [found] if isinstance(found, Decision) else decide(found)
        mistakes += [one for one in decisions if one.node not in named or one.outcome is Verdict.REWRITTEN]
    mistakes += likely.named(context, mistakes)
    chosen = [one for one in mistakes if wanted(context.options, one.code, *([one.api.code] if one.api is not None else ()))]
    kept = _outermost(chosen, context.source)
    return sorted(kept, key=lambda one: context.source.start(one.node))


def _has_steps(places: Sequence[_Found], context: Context) -> bool:
    """Whether the rounds of a source are read: always by the linter; a migration is about the source's own gradients."""
    is_clip = (not isinstance(one, Decision) or one.code != "GM112" for one in places)
    return context.options.lint or any(is_clip) or re.search(r"\.grad\b", context.source.text) is not None


def _outermost(decisions: Sequence[Decision], source: Source) -> list[Decision]:
    """Drop a decision that lies within another one: ``set_gradient_clip(Clip())`` is one site, and so is a handwritten clip."""
    quotients = [decision.node for decision in decisions if decision.code in ("GM402", "GM113")]
    around = {outer for node in quotients for outer in source.ancestors(node)}
    outer = {decision.node for decision in decisions if decision.api is not None and decision.api.kind is Kind.GLOBAL_STATE}
    kept = [decision for decision in decisions if decision.code != "GM112" or decision.node not in around]
    return [one for one in kept if not outer or outer.isdisjoint(source.ancestors(one.node))]


def site(decision: Decision, source: Source) -> Site:
    """A decision, as data without the source."""
    line, column = source.position(decision.node)
    text = source.code(decision.node).splitlines()[0].rstrip()
    told = (decision.code, decision.outcome, text, decision.reason, decision.advice, more(decision.code))
    return Site(line, column, *told, is_followed=decision.is_followed)


# ---- finding ---------------------------------------------------------------------------------------------------------------


def _found(context: Context) -> Iterator[_Found]:
    """Every place that clips gradients or looks like a clip, each once."""
    source = context.source
    names = _names(context)
    for call in source.all(cst.Call):
        name, given = last_name(call.func), [keyword(one) for one in call.args]
        if name in names or name == "partial" or not configuration.CLIP_KEYWORDS.isdisjoint(given):
            found: list[_Found] = [*calls.call(call, context)]
            found = found or [*libraries.call(call, context)] or [*mentions.call(call, context)]
            found = found or [*(clamps.call(call, context) if name in clamps.METHODS else ())]
            yield from found
            if found:
                continue
        for key, argument in zip(given, call.args, strict=True):
            if key in KEYS:
                yield from configuration.argument(argument, context)
    nodes: list[cst.Name | cst.Attribute] = [*source.all(cst.Name), *source.all(cst.Attribute)]
    for node in nodes:
        if last_name(node) in names and _is_value(node, source):
            yield from mentions.value(node, context)
    yield from _others(context)


def _others(context: Context) -> Iterator[_Found]:
    source = context.source
    for node, name in context.replaced.items():
        yield mentions.replaced(node, name)
    for string in source.all(cst.SimpleString):
        yield from mentions.text(string, context)
    for call in source.all(cst.Call):
        yield from mentions.looked_up(call, context)
    for element in source.all(cst.DictElement):
        yield from configuration.entry(element, context)
    for attribute in source.all(cst.Attribute):
        yield from configuration.attribute(attribute, context)
    yield from norms.clips(context)


def _names(context: Context) -> frozenset[str]:
    """The last names that a relevant call can have in this source: imports and assignments may add new names."""
    imported = {binding.local for binding in context.resolver.bindings if binding.qualified.rpartition(".")[2] in _TELLING}
    assigned = {
        name
        for assign in context.source.all(cst.Assign)
        if last_name(assign.value) in _TELLING | imported
        for target in assign.targets
        for name in target_names(target.target)
    }
    return frozenset(_TELLING | imported | assigned)


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


_TABLE = frozenset(name.partition("(")[0].rpartition(".")[2] for name in BY_NAME)
_TELLING = mentions.METHODS | clamps.METHODS | libraries.LAST_NAMES | _TABLE | own.LAST_NAMES
#: the names of clips and of settings that clip; an optimizer clips by such a setting, and most sources have a minimum
_CLIPS = (_TELLING | KEYS.keys() | configuration.CLIP_KEYWORDS | libraries.KEYS) - {
    name.rpartition(".")[2] for name, apis in KEYWORDS.items() if all(len(api.signature.parameters) <= 3 for api in apis)
}
_CLIPS -= words("min max minimum maximum norm")
