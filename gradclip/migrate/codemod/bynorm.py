"""The rewrite of a clip by norm that a source writes out: one call of gradclip."""

from __future__ import annotations

import libcst as cst

from gradclip.code.byhand.coefficients import EPSILON, Clipped
from gradclip.code.byhand.functional import Exactly, Functional
from gradclip.code.byhand.norms import ByNorm
from gradclip.code.byhand.spans import between
from gradclip.code.found import Context
from gradclip.code.model import Outcome
from gradclip.code.source import Edit
from gradclip.migrate.codemod import canonical
from gradclip.migrate.codemod.canonical import comments
from gradclip.migrate.codemod.decision import Need, Rewrite
from gradclip.migrate.codemod.imports import spell
from gradclip.migrate.codemod.legacy import is_legacy
from gradclip.migrate.codemod.remains import remains

__all__ = ["rewritten"]

_RULES = {"jax": "optax.clip_by_global_norm", "tensorflow": "tensorflow.clip_by_global_norm"}
_TOPS = {
    "jax": "jax",
    "optax": "jax",
    "flax": "jax",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "paddle": "paddle",
    "numpy": "numpy",
}


def rewritten(found: ByNorm) -> Rewrite | None:
    """The call of gradclip; None if the clip's value is not certain, or no dialect has it."""
    context = found.context
    made = canonical.rewritten(found.node, context)
    if made is not None:
        return made
    framework, options = _framework(context), context.options
    if not framework or options.to != "gradclip" or (options.sources and framework not in options.sources):
        return None
    functional: Functional = context.source.once(rewritten, lambda: Functional(context))
    exactly = functional.clips(found.places, framework)
    return next((made for one in exactly if (made := _call(one, found, framework, functional)) is not None), None)


def _framework(context: Context) -> str:
    """The framework of the source's arrays; "" where gradclip cannot run, or has no such arrays."""
    modules = context.resolver.modules
    if {"mxnet", "chainer", "cupy", "theano"} & modules or any(is_legacy(context, one) for one in ("tensorflow", "paddle")):
        return ""
    return next((_TOPS[one] for one in _TOPS if one in modules), "")


def _call(one: Exactly, found: ByNorm, framework: str, functional: Functional) -> Rewrite | None:
    """The call in place of an expression or a statement; None if a part may have another value there."""
    site, clip, source = one.site, one.clip, found.context.source
    left = remains(site, f"{one.tensors} {clip.limit}", functional.exact, found.context)
    if left is None:
        return None
    line, needs = _line(one, framework, found.context)
    line = f"{one.to} = {line}" if one.to else line
    span = source.outer_span(site) if isinstance(site, cst.BaseExpression) else source.span(site)
    if not isinstance(site, cst.BaseExpression):
        indent = source.data[source.line_start(span[0]) : span[0]].decode()
        replaced = source.data[span[0] - len(indent) : span[1]].decode()
        line = "".join(f"{comment}{source.newline}{indent}" for comment in comments(replaced)) + line
    said = "the norm of each gradient" if clip.norm.value == "one" else "one norm over all gradients"
    return Rewrite(
        found.node,
        "GM402",
        Outcome.REWRITTEN,
        f"It is a clip by {said}, written out.",
        edits=(Edit(*span, line), *left),
        needs=needs,
        assumption=_assumed(clip),
    )


def _assumed(clip: Clipped) -> str:
    assumed = "finite gradients: those with a NaN may come out otherwise"
    return f"{assumed}; a limit far above its epsilon, {clip.epsilon:g}" if 0 < clip.epsilon < EPSILON else assumed


def _line(one: Exactly, framework: str, context: Context) -> tuple[str, tuple[Need, ...]]:
    """gradclip's call, and what it needs to be imported."""
    at = between(context.source, cst.Name, *context.source.span(one.site))[0]
    needs: tuple[Need, ...] = ()

    def spelled(name: str) -> str:
        nonlocal needs
        made = spell(f"gradclip.{name}", at, context.source, context.resolver)
        needs = (*needs, *made.needs)
        return made.text

    tensors, limit = one.tensors, one.clip.limit
    own, torchs = one.clip.norm.value == "one", one.clip.epsilon == EPSILON
    if own and one.keeps and not torchs:
        return f"{spelled('clip_by_norm')}({tensors}, {limit})", needs
    if torchs and framework == "torch" and not one.keeps:
        return f"{spelled('clip_grad_norm_')}({tensors}, {limit})", needs
    rule = _RULES.get(framework, "paddle.clip_grad_by_global_norm")
    rule = "torch.clip_grad_norm" if torchs else "tensorflow.clip_by_norm" if own else rule
    line = f"{spelled('clip' if one.keeps else 'clip_')}({tensors}, {spelled(f'dialects.{rule}')}({limit}))"
    return line + ".grads" if one.keeps else line, needs
