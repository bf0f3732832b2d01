"""The rewrite of a clip by norm that a source writes out: one call of gradclip."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.migrate.byhand.coefficients import EPSILON, Clipped
from gradclip.migrate.byhand.exact import Exact
from gradclip.migrate.byhand.functional import Exactly, Functional
from gradclip.migrate.byhand.held import holds
from gradclip.migrate.byhand.stretch import broken
from gradclip.migrate.codemod.decision import Need, Rewrite
from gradclip.migrate.codemod.imports import beside_torch, spell
from gradclip.migrate.codemod.legacy import is_legacy
from gradclip.migrate.codemod.remains import comments, remains
from gradclip.source.byhand.norms import ByNorm
from gradclip.source.byhand.vocabulary import LEAVES
from gradclip.source.found import Context, Decision, Finding, manual
from gradclip.source.model import Verdict
from gradclip.source.source import Edit, Source, last_name

__all__ = ["rewritten"]

_RULES = {"jax": "optax.clip_by_global_norm", "tensorflow": "tensorflow.clip_by_global_norm"}
_NUMBER = re.compile(r"\.item\(|float\(|math\.|np\.|numpy\.")
_TOPS = {
    "jax": "jax",
    "optax": "jax",
    "flax": "jax",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "paddle": "paddle",
    "numpy": "numpy",
}


def rewritten(found: ByNorm) -> Decision | None:
    """The call of gradclip, or what keeps a clip from one; None if the clip's value is not certain, or no dialect has it."""
    context, options = found.context, found.context.options
    framework = _framework(context)
    if not framework or options.to != "gradclip" or found.finding.code != "GM402":
        return None
    functional = context.source.once(rewritten, lambda: Functional(context, framework))
    kept: Decision | None = None
    for one in functional.clips(found.places):
        made = _call(one, found, functional.exact)
        if isinstance(made, Rewrite):
            return made
        kept = kept or made
    return kept


def _framework(context: Context) -> str:
    """The framework of the source's arrays; "" where gradclip cannot run, or has no such arrays."""
    modules = context.resolver.modules
    if {"mxnet", "chainer", "cupy", "theano"} & modules or any(is_legacy(context, one) for one in ("tensorflow", "paddle")):
        return ""
    return next((_TOPS[one] for one in _TOPS if one in modules), "")


def _call(one: Exactly, found: ByNorm, exact: Exact) -> Decision | None:
    """The call in place of an expression or a statement; None if a part may have another value there."""
    between = broken(one, exact, found.context)
    if between is not None:
        return manual(found.node, _kept(one, between, exact, found.context))
    if one.replaces and (other := holds(one, found.context)) is not None:
        reason = (
            f"A clip by norm, written out; {found.context.source.shown(other)} holds gradients that it replaces by new ones."
        )
        return manual(found.node, Finding("GM402", reason, "gradclip's clip of parameters would change them: clip a copy."))
    site, clip, source, sources = one.site, one.clip, found.context.source, found.context.options.sources
    returns_norm = one.framework == "torch" and not one.keeps
    left = remains(site, f"{one.tensors} {clip.limit}", clip.norm if returns_norm else None, exact, found.context)
    if left is None or (sources and one.framework not in sources):
        return None
    line, needs = _line(one, found.context)
    line = f"{one.to} = {line}" if one.to else line
    span = source.outer_span(site) if isinstance(site, cst.BaseExpression) else source.span(site)
    if not isinstance(site, cst.BaseExpression):
        indent = source.data[source.line_start(span[0]) : span[0]].decode()
        replaced = source.data[span[0] - len(indent) : span[1]].decode()
        if left.norm:
            line = f"{left.norm} = {line}{_of_norm(clip, left.text + replaced)}"
        line = "".join(f"{comment}{source.newline}{indent}" for comment in comments(replaced)) + line
    whose = "a" if not returns_norm else "torch's" if clip.epsilon == EPSILON else "Paddle's"
    said = "the norm of each gradient" if clip.norm.value == "one" else "one norm over all gradients"
    return Rewrite(
        found.node,
        "GM402",
        Verdict.REWRITTEN,
        f"It is {whose} clip by {said}, written out.",
        edits=(Edit(*span, line), *left.edits),
        needs=beside_torch(needs, found.context) if returns_norm else needs,
        assumption="; ".join(filter(None, _assumptions(one, found.context, by_if=returns_norm))),
    )


def _kept(one: Exactly, between: cst.CSTNode, exact: Exact, context: Context) -> Finding:
    """Why a clip by hand stays: something that runs between its lines."""
    shown = context.source.shown(between)
    reason = f"A clip by norm, written out; {shown} runs between its first and its last line, and may change the norm"
    reason += " or the gradients."
    values = ((place, exact.certain.value(place)) for place in [*exact.read])
    named = (context.source.code(place) for place, value in values if value is not None and exact.of(value) == one.clip.norm)
    name = next(named, "norm")
    call = f"gradclip.clip_grads_with_norm_({one.tensors}, {one.clip.limit}, {name})"
    if one.keeps:
        call = f"gradclip.scale_by_norm({one.tensors}, rule, {name}).grads"
    return Finding("GM402", reason, f"If it changes the norm, write: {call}. If it changes nothing, move it out of the clip.")


def _of_norm(clip: Clipped, replaced: str) -> str:
    """How to take the norm from what the call returns: a number where the replaced lines made it one."""
    return ("" if clip.epsilon == EPSILON else ".norm") + (".item()" if _NUMBER.search(replaced) else "")


def _assumptions(one: Exactly, context: Context, *, by_if: bool) -> tuple[str, ...]:
    held = "no other code holds the old gradients: by hand, each parameter gets a new one" if one.replaces else ""
    return _assumed(one.clip, by_if=by_if), _read_twice(one, context), _dtypes(one, context.source), held


def _assumed(clip: Clipped, *, by_if: bool) -> str:
    nans = "if the norm is NaN, an `if` clips nothing, and gradclip makes every gradient NaN"
    assumed = f"finite gradients: {nans if by_if else 'those with a NaN may come out otherwise'}"
    return f"{assumed}; a limit far above its epsilon, {clip.epsilon:g}" if 0 < clip.epsilon < EPSILON else assumed


def _read_twice(one: Exactly, context: Context) -> str:
    """What a rewrite assumes of values that a function gets or returns: no iterator. A second loop would find nothing in it."""
    source = context.source
    name = next((n for n in source.between(cst.Name, *source.span(one.site)) if n.value == one.tensors), None)
    places = context.resolver.assigned_at(name) if name is not None else ()
    values = [context.resolver.value(place) for place in places if not isinstance(place, cst.Param)]
    unknown = len(values) < len(places) or any(_is_unknown(value) for value in values)
    listed = any(not isinstance(value, cst.List) and not _is_unknown(value) for value in values)
    if one.keeps or not isinstance(one.site, (cst.For, cst.If)) or not unknown or listed:
        return ""
    return f"`{one.tensors}` is not an iterator: by hand, the norm would use it up, and nothing would be clipped"


def _dtypes(one: Exactly, source: Source) -> str:
    """What a rewrite assumes where the norm may have another dtype than the gradients: by hand, a product has the wider one."""
    if not one.keeps or not re.search(r"float(32|64)|double\(|\.float\(", _code(source.function(one.site), source)):
        return ""
    return "gradients of the norm's dtype: gradclip keeps each gradient's, and by hand bfloat16 times float32 is float32"


def _code(function: cst.CSTNode, source: Source) -> str:
    return source.text if function is source.module else source.code(function)


def _is_unknown(value: cst.BaseExpression | None) -> bool:
    """Whether a value is what a function returns that may make an iterator."""
    return isinstance(value, cst.Call) and last_name(value.func) not in LEAVES | {"sorted"}


def _line(one: Exactly, context: Context) -> tuple[str, tuple[Need, ...]]:
    """gradclip's call, and what it needs to be imported."""
    at = context.source.between(cst.Name, *context.source.span(one.site))[0]
    needs: tuple[Need, ...] = ()

    def spelled(name: str) -> str:
        nonlocal needs
        made = spell(f"gradclip.{name}", at, context.source, context.resolver)
        needs = (*needs, *made.needs)
        return made.text

    tensors, limit, framework = one.tensors, one.clip.limit, one.framework
    own, torchs = one.clip.norm.value == "one", one.clip.epsilon == EPSILON
    if own and one.keeps and not torchs:
        return f"{spelled('clip_by_norm')}({tensors}, {limit})", needs
    if torchs and framework == "torch" and not one.keeps:
        return f"{spelled('clip_grad_norm_')}({tensors}, {limit})", needs
    rule = _RULES.get(framework, "paddle.clip_grad_by_global_norm")
    rule = "torch.clip_grad_norm" if torchs else "tensorflow.clip_by_norm" if own else rule
    line = f"{spelled('clip' if one.keeps else 'clip_')}({tensors}, {spelled(f'dialects.{rule}')}({limit}))"
    return line + ".grads" if one.keeps else line, needs
