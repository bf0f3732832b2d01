"""Handwritten clips by norm: a norm of gradients, a quotient of a limit and the norm, a product with the gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.migrate.codemod import canonical
from gradclip.migrate.codemod.bind import number
from gradclip.migrate.codemod.calls import manual
from gradclip.migrate.codemod.found import Context, Decision, Finding
from gradclip.migrate.codemod.quotients import GRADIENT, GUARDS, factors, has_epsilon, is_limit, measured_norm
from gradclip.migrate.codemod.source import last_name, target_names

__all__ = ["division"]

_OF_GRADIENTS = re.compile(
    r"(global|total|g|grads?|gradients?|per_sample|unclipped|l2)_?\w*norms?(_\w+)?|norm_sample|grad_norm\w*", re.IGNORECASE
)
_AT_LEAST = re.compile(r"max(imum)?$|clamp(_min)?_?$|clip$")
_ADAPTIVE = re.compile(r"agc|adaptive|unit_?wise", re.IGNORECASE)


def division(node: cst.BinaryOperation, context: Context) -> Iterator[Decision]:
    """Decide on a quotient that is the coefficient of a clip by norm, or part of one."""
    above, below = measured_norm(node.right, context), measured_norm(node.left, context)
    if (above or below) and _is_without_gradients(node, context):
        return
    if above and not below:
        yield from _by_a_norm(node, above, context)
    elif below and not above and is_limit(node.right, strict=False) and not isinstance(node.right, cst.Integer | cst.Float):
        scaled = not _is_inner(node, context) and _is_at_least_one(node, context)
        if scaled and (is_limit(node.right, strict=True) or _touches(node, below, context)):
            yield _decision(node, node.right, node.left, context)
        elif not scaled and is_limit(node.right, strict=True) and _divides_gradients(node, context):
            yield _unbounded(node, context)
    elif is_limit(node.right, strict=True) or number(node.left) is None or not _assigned(node, context):
        return
    elif _multiplies_gradients(node, context) and _is_bounded(node, "", context):
        yield _decision(node, node.left, node.right, context)  # the name of the norm does not matter


def _by_a_norm(node: cst.BinaryOperation, norm: str, context: Context) -> Iterator[Decision]:
    """Decide on ``limit / norm``, and on ``1 / norm`` or ``g / norm`` beside a limit."""
    limit = next((factor for factor in factors(node, context) if is_limit(factor, strict=True)), None)
    touches = _touches(node, norm, context)
    if limit is None and touches:
        limit = next((factor for factor in factors(node, context) if is_limit(factor, strict=False)), None)
        if limit is not None and not _multiplies_gradients(node, context):
            limit = None
    if limit is None or not (touches or _OF_GRADIENTS.fullmatch(norm)):
        return
    if _is_bounded(node, norm, context) or (is_limit(limit, strict=True) and _is_selected(node, context)):
        yield _decision(node, limit, node.right, context)
    elif touches and (is_limit(limit, strict=True) or _scales_in_place(node, norm, context)):
        yield _unbounded(node, context)


def _unbounded(node: cst.BinaryOperation, context: Context) -> Decision:
    reason = f"{context.source.shown(node)} has no bound of 1 here: small gradients would be scaled up."
    return manual(node, Finding("GM113", reason, "Bound it by 1, or use gradclip's clip."))


def _decision(node: cst.BinaryOperation, limit: cst.BaseExpression, norm: cst.BaseExpression, context: Context) -> Decision:
    """The replacement for a clip, which depends on its epsilon and its scope."""
    whole = canonical.rewritten(node, context)
    if whole is not None:
        return whole
    source = context.source
    function = source.within(node, cst.FunctionDef)
    told = source.one_line(limit)
    assigned = context.resolver.value_of(limit)
    adaptive = function is not None and _ADAPTIVE.search(function.name.value) is not None
    if adaptive or (assigned is not None and _ADAPTIVE.search(source.code(assigned))):
        reason = "Each unit of a gradient is clipped relative to its parameter's norm: this is adaptive clipping, written out."
        advice = "The rule is gradclip.dialects.optax.adaptive_grad_clip; gradclip.clip takes the parameters for it too."
        return manual(node, Finding("GM402", reason, advice))
    dialect = "torch.clip_grad_norm" if has_epsilon(norm, context) else "paddle.clip_grad_by_global_norm"
    made = f"gradclip.dialects.{dialect}({told})"
    advice = f"For one norm over all gradients the rule is {made}: pass it to gradclip.clip or gradclip.clip_."
    return manual(node, Finding("GM402", advice=advice))


# ---- the use of a quotient ---------------------------------------------------------------------------------------------


def _is_without_gradients(node: cst.BinaryOperation, context: Context) -> bool:
    """Whether a function mentions no gradients: then it projects parameters onto a ball."""
    function = context.source.within(node, cst.FunctionDef)
    if function is None:
        return False
    code = context.source.code(function).replace("no_grad", "")
    return re.search(r"clip|grad|update|\b\w?g\b", code, re.IGNORECASE) is None


def _touches(node: cst.BinaryOperation, norm: str, context: Context) -> bool:
    """Whether a quotient concerns gradients: by its factors, by its norm, or by the name of its function."""
    if _multiplies_gradients(node, context) or _OF_GRADIENTS.fullmatch(norm):
        return True
    function = context.source.within(node, cst.FunctionDef)
    return function is not None and re.search(r"clip|grad", function.name.value, re.IGNORECASE) is not None


def _multiplies_gradients(node: cst.BinaryOperation, context: Context) -> bool:
    source = context.source
    if any(_is_gradient(factor, context) for factor in factors(node, context)):
        return True
    for outer in source.ancestors(node):
        if isinstance(outer, cst.AugAssign):
            return _is_gradient(outer.target, context)
        if isinstance(outer, cst.Call) and re.fullmatch(r"(_foreach_)?(mul|div)_?|multiply|scale_?", last_name(outer.func)):
            others = [outer.func.value] if isinstance(outer.func, cst.Attribute) else []
            return any(_is_gradient(other, context) for other in [*others, *(a.value for a in outer.args)])
        if isinstance(outer, cst.SimpleStatementLine):
            break
    body = _body(node, context)
    gradient = r"(\w*grads?\w*|\bg)(\.data)?(\[[^\]]*\])?"
    return any(
        re.search(
            rf"{gradient}\s*(\*=?|/=?)\s*{name}\b|{gradient}\.(mul|div)_?\({name}\b|\b{name}\s*\*\s*\w*(\.?grad|\bg\b)", body
        )
        for name in _assigned(node, context)
    )


def _is_gradient(node: cst.BaseExpression, context: Context) -> bool:
    return context.gradients.is_gradient(node) or (
        isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)) and GRADIENT.search(context.source.code(node)) is not None
    )


def _divides_gradients(node: cst.BinaryOperation, context: Context) -> bool:
    """Whether the source divides gradients by the quotient, through a name."""
    body = _body(node, context)
    gradient = r"(\w*grads?\w*|\bg)(\.data)?(\[[^\]]*\])?"
    return any(
        re.search(rf"{gradient}\s*/=?\s*{name}\b|{gradient}\.div_?\({name}\b", body) for name in _assigned(node, context)
    ) and not _is_bounded(node, "", context)


def _scales_in_place(node: cst.BinaryOperation, norm: str, context: Context) -> bool:
    """Whether the source multiplies ``p.grad`` by a number over the norm of all gradients; other tensors may be steps."""
    if not re.match(r"(global|total|grads?)_", norm):
        return False
    for outer in context.source.ancestors(node):
        if isinstance(outer, cst.AugAssign):
            return ".grad" in context.source.code(outer.target)
        if isinstance(outer, cst.Call) and last_name(outer.func) in ("mul_", "scale_"):
            return ".grad" in context.source.code(outer.func)
    return False


def _is_bounded(node: cst.BinaryOperation, norm: str, context: Context) -> bool:
    """Whether a minimum, an ``if``, a maximum in the norm or a ``where`` bounds the coefficient by 1."""
    source = context.source
    if _is_at_least_the_limit(node.right, context):
        return True
    for outer in source.ancestors(node):
        if isinstance(outer, cst.Call) and GUARDS.search(last_name(outer.func)):
            return True
        if isinstance(outer, (cst.If, cst.IfExp, cst.While)) and re.search(r"norm|clip", source.code(outer.test)):
            return True
        if isinstance(outer, cst.FunctionDef):
            break
    if _is_guarded(node, norm, context):
        return True
    body = _body(node, context)
    return any(
        re.search(
            rf"(min(imum)?|clamp|clip|where|select)\([^()]*(\([^()]*\)[^()]*)*\b{name}\b|\b{name}\.(clamp|clip|min)"
            rf"|\b{name}\s*[<>]|[<>]=?\s*{name}\b",
            body,
        )
        for name in _assigned(node, context)
    )


def _is_at_least_the_limit(norm: cst.BaseExpression, context: Context) -> bool:
    """Whether a norm is ``max(norm, limit)``, or a name for it."""
    value = context.resolver.value_of(norm) or norm
    if not isinstance(value, cst.Call) or not _AT_LEAST.search(last_name(value.func)):
        return False
    return any(is_limit(argument.value, strict=True) for argument in value.args)


def _is_selected(node: cst.BinaryOperation, context: Context) -> bool:
    """Whether the quotient scales only some elements: ``g[norm > limit]``, or a name for the comparison."""
    source = context.source
    statement = source.within(node, cst.SimpleStatementLine)
    if statement is None:
        return False
    start, end = source.span(statement)
    if any(start <= source.start(one) < end for one in source.any(cst.Comparison)):
        return True
    values = (context.resolver.value_of(name) for name in source.any(cst.Name) if start <= source.start(name) < end)
    return any(value is not None and re.search(r"[^-]>|<|greater|less", source.code(value)) for value in values)


def _is_guarded(node: cst.BinaryOperation, norm: str, context: Context) -> bool:
    """Whether the function has already returned if the norm is small."""
    source, function = context.source, context.source.function(node)
    for branch in source.any(cst.If):
        if source.function(branch) is function and source.start(branch) < source.start(node):
            leaves = any(source.within(one, cst.If) is branch for one in source.any(cst.Return, cst.Continue))
            if leaves and norm and re.search(rf"\b{norm}\b", source.code(branch.test)):
                return True
    return False


def _is_inner(node: cst.BinaryOperation, context: Context) -> bool:
    """Whether a quotient is in the numerator of another: ``norm / scale`` in ``(norm / scale + eps) / limit``."""
    inner: cst.CSTNode = node
    for outer in context.source.ancestors(node):
        if not isinstance(outer, cst.BinaryOperation):
            return False
        if isinstance(outer.operator, cst.Divide) and inner is outer.left:
            return True
        inner = outer
    return False


def _is_at_least_one(node: cst.BinaryOperation, context: Context) -> bool:
    """Whether a quotient of a norm and a limit is a divisor of at least 1, or is compared with 1."""
    source = context.source
    for outer in source.ancestors(node):
        if isinstance(outer, cst.Call) and _AT_LEAST.search(last_name(outer.func)):
            return True
        if isinstance(outer, cst.SimpleStatementLine):
            break
    body = _body(node, context)
    return any(
        re.search(rf"\b{name}\s*>=?\s*1|\bmax(imum)?\([^()]*\b{name}\b|\b{name}\.clamp|1(\.0*)?\s*<=?\s*{name}\b", body)
        for name in _assigned(node, context)
    )


def _body(node: cst.CSTNode, context: Context) -> str:
    function = context.source.function(node)
    return context.source.code(function) if function is not context.source.module else context.source.text


def _assigned(node: cst.CSTNode, context: Context) -> frozenset[str]:
    """The names that an assignment gives to the value of an expression."""
    for outer in context.source.ancestors(node):
        if isinstance(outer, cst.Assign):
            return frozenset(name for target in outer.targets for name in target_names(target.target))
        if isinstance(outer, (cst.SimpleStatementLine, cst.Lambda)):
            break
    return frozenset()
