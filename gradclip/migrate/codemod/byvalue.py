"""The rewrite of a clip by value that a source writes with a general function."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.migrate.codemod.decision import Rewrite
from gradclip.migrate.codemod.imports import beside_torch, spell
from gradclip.source.bind import literal, number
from gradclip.source.byhand.clamps import ByValue
from gradclip.source.gradients import mentions_norm
from gradclip.source.model import Verdict
from gradclip.source.source import Edit, last_name

__all__ = ["rewritten"]


def rewritten(found: ByValue) -> Rewrite | None:
    """The call of gradclip; None if the clip is left to a person: a name alone does not show that something is a gradient."""
    if not found.context.gradients.is_shown(found.clipped, found.node):
        return None
    return _clamp(found) or _bounded(found) or _in_array(found)


def _clamp(found: ByValue) -> Rewrite | None:
    """``p.grad.data.clamp_(-c, c)`` of a parameter, as a call of gradclip; None for any other clip by value."""
    context, node, clipped = found.context, found.node, found.clipped
    source, options = context.source, context.options
    owner = re.fullmatch(r"(.+)\.grad(\.data)?", source.one_line(clipped))
    limits = [argument.value for argument in found.limits]
    in_place = last_name(node.func) in ("clamp_", "clip_") and isinstance(source.parents[node], cst.Expr)
    wanted = options.to == "gradclip" and (not options.sources or "torch" in options.sources)
    if not (owner and in_place and wanted and len(limits) == 2 and "torch" in context.resolver.modules):
        return None
    low, high = map(source.one_line, limits)
    value = number(limits[1])
    if low != f"-{high}" or mentions_norm(high) or (value is not None and value <= 0) or len(node.args) != 2:
        return None
    spelled = spell("gradclip.clip_grad_value_", clipped, source, context.resolver)
    edit = Edit(*source.outer_span(node), f"{spelled.text}({owner[1]}, {high})")
    return Rewrite(
        node,
        "GM401",
        Verdict.REWRITTEN,
        "It clips each element of a parameter's gradient, in place.",
        edits=(edit,),
        needs=beside_torch(spelled.needs, context),
    )


def _bounded(found: ByValue) -> Rewrite | None:
    """``torch.clamp(g, -c, c)`` and ``jnp.clip(g, -c, c)`` as a call of gradclip; None where the argument may be no tensor."""
    context, node, clipped = found.context, found.node, found.clipped
    source, options = context.source, context.options
    function = found.function
    top = (function or "torch").partition(".")[0] if function or "torch" in context.resolver.modules else ""
    framework = {"torch": "torch", "paddle": "paddle", "jax": "jax"}.get(top, "")
    wanted = options.to == "gradclip" and (not options.sources or framework in options.sources)
    limits = found.limits
    plain = (
        last_name(node.func) in ("clip", "clamp")
        and len(node.args) == len(limits) + (function is not None)
        and not node.args[0].keyword
    )
    if not (framework and wanted and plain and len(limits) == 2 and all(not a.star for a in node.args)):
        return None
    if found.finding.code != "GM401" or any(literal(limit.value) is None for limit in limits):
        return None
    lower, upper = found.bounds
    if lower is None or upper is None:
        return None
    low, high = source.one_line(lower), source.one_line(upper)
    if not (low == f"-{high}" or _ascend(*limits)):
        return None
    spelled = spell("gradclip.clip_by_value", node.func if function is not None else clipped, source, context.resolver)
    edit = Edit(*source.outer_span(node), f"{spelled.text}({source.one_line(clipped)}, {low}, {high})")
    reason = "It clips each element of a gradient, and returns it."
    return Rewrite(
        node,
        "GM401",
        Verdict.REWRITTEN,
        reason,
        edits=(edit,),
        needs=spelled.needs if function else beside_torch(spelled.needs, context),
    )


def _in_array(found: ByValue) -> Rewrite | None:
    """``np.clip(d, -5, 5, out=d)``, a statement, as a call of gradclip."""
    context, node = found.context, found.node
    source, options = context.source, context.options
    code = source.one_line(found.clipped)
    limits = node.args[1:3]
    is_numpy = "numpy" in context.resolver.modules and options.to == "gradclip" and not options.sources
    if not (is_numpy and isinstance(source.parents[node], cst.Expr) and len(node.args) == 4) or any(
        a.keyword or a.star for a in limits
    ):
        return None
    if found.out != code or found.finding.code != "GM401":
        return None
    low, high = (source.one_line(argument.value) for argument in limits)
    symmetric = low == f"-{high}"
    if not (symmetric or _ascend(*limits)) or high.startswith("-"):
        return None
    spelled = spell("gradclip.clip_", node.func, source, context.resolver)
    rule = spell(
        f"gradclip.dialects.{'torch.clip_grad_value' if symmetric else 'tensorflow.clip_by_value'}",
        node.func,
        source,
        context.resolver,
    )
    edit = Edit(*source.outer_span(node), f"{spelled.text}({code}, {rule.text}({high if symmetric else f'{low}, {high}'}))")
    needs = (*spelled.needs, *rule.needs)
    return Rewrite(
        node, "GM401", Verdict.REWRITTEN, "It clips each element of a gradient, in place.", edits=(edit,), needs=needs
    )


def _ascend(lower: cst.Arg, upper: cst.Arg) -> bool:
    """Whether two limits are numbers, the first one the smaller."""
    low, high = number(lower.value), number(upper.value)
    return low is not None and high is not None and low < high
