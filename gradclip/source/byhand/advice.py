"""What to do with a clip by norm that a source writes out: which rule has its meaning, or which call takes its norm."""

from __future__ import annotations

import bisect
import re

import libcst as cst

from gradclip.natives import BY_CODE
from gradclip.source.byhand.algebra import Clip, Form, leaves, names, text
from gradclip.source.byhand.forms import Forms, epsilon
from gradclip.source.found import Context, Finding
from gradclip.source.source import last_name, target_names

__all__ = ["advice"]

_FOLLOWS = re.compile(r"(^|_)(avg|average|ema|mean|median|quantile|percentile|history|running|moving)(_|$)", re.IGNORECASE)
_PARAMETER = re.compile(r"\b(p|w|pp?_?norm|param\w*|weights?\w*|w_norm|unit_norm)\b")
_EXAMPLES = re.compile(r"per_?(sample|example|instance)", re.IGNORECASE)
_CALLS = 8  #: calls before a quotient to look at
_REDUCES = re.compile(r"all_?reduce|psum|pmean|reduce_scatter|all_?gather", re.IGNORECASE)


def advice(node: cst.BaseExpression, clip: Clip, forms: Forms, context: Context) -> Finding:
    """What a clip computes, and the rule that has this meaning."""
    limit, norm = text(clip.limit), clip.norm
    function = context.source.within(node, cst.FunctionDef)
    adaptive = function is not None and re.search(r"agc|adaptive|unit_?wise", function.name.value, re.IGNORECASE)
    if adaptive or any(_is_of_a_parameter(part) for part in leaves(clip.limit)):
        reason = "Each unit of a gradient is clipped relative to its parameter's norm: this is adaptive clipping, written out."
        what = f"The rule is gradclip.dialects.{BY_CODE['GO504'].dialect}; gradclip.clip takes the parameters for it too."
        what += " Its units are columns: look which units the norm has here."
    elif norm.value == "rms":
        reason = "Each gradient is clipped by its root mean square, written out."
        what = f"The rule is gradclip.dialects.optax.clip_by_block_rms({limit}): pass it to gradclip.clip."
    elif any(_FOLLOWS.search(name) for name in names(clip.limit)):
        reason = f"A clip by norm, written out, with a limit that follows the run: `{limit}`."
        what = "gradclip.limits has limits that follow the run; a rule takes one in place of a number."
    elif _EXAMPLES.search(str(norm.parts[0].value)):
        reason = "Each example's gradient is clipped by its own norm, written out."
        what = f"The rule is gradclip.dialects.optax.per_example_global_norm_clip({limit}): pass it to gradclip.clip."
    elif norm.value in ("name", "given") or _is_reduced(norm, node, forms, context):
        reason = "A clip by a norm that is given, or was reduced over processes, written out."
        shown = text(norm) if norm.value == "name" else "norm"
        arrays = {"jax", "tensorflow"} & context.resolver.modules and not {"torch", "paddle"} & context.resolver.modules
        rule = f"gradclip.dialects.torch.clip_grad_norm({limit})"
        what = f"gradclip.clip_grads_with_norm_(params, {limit}, {shown})"
        what = f"Write: {f'gradclip.scale_by_norm(grads, {rule}, {shown}).grads' if arrays else what}."
    elif _is_of_one(norm, node, context):
        reason = "Each gradient is clipped by its own norm, written out."
        what = f"The rule is gradclip.dialects.paddle.clip_grad_by_norm({limit}): pass it to gradclip.clip or gradclip.clip_."
    else:
        eps = epsilon(node, context)
        dialect = "torch.clip_grad_norm" if eps else "paddle.clip_grad_by_global_norm"
        reason, made = "", f"gradclip.dialects.{dialect}({limit})"
        what = f"For one norm over all gradients the rule is {made}: pass it to gradclip.clip or gradclip.clip_."
        what += "" if eps in ("", "1e-06") else f" Its epsilon is 1e-6, not {eps}."
    return Finding("GM402", reason, what)


def _is_of_one(norm: Form, node: cst.BaseExpression, context: Context) -> bool:
    """Whether a loop takes the norm of one gradient in each pass, and scales it in the same pass."""
    source, tensor = context.source, norm.node
    if not isinstance(tensor, cst.BaseExpression):
        return False
    shared = {*source.inside(node)}
    loops = [one for one in source.inside(tensor) if isinstance(one, cst.For) and one in shared]
    used = {name.value for name in source.of(tensor, cst.Name)}
    return any(not used.isdisjoint(target_names(one.target)) for one in loops)


def _is_reduced(norm: Form, node: cst.BaseExpression, forms: Forms, context: Context) -> bool:
    """Whether a call before a quotient reduces a norm, or a square of it, over processes."""
    source = context.source
    every = source.once(_is_reduced, lambda: [one for one in source.all(cst.Call) if _REDUCES.search(last_name(one.func))])
    last = bisect.bisect_left(every, source.start(node), key=source.start)
    before = [one for one in every[max(0, last - _CALLS) : last] if source.function(one) is source.function(node)]
    names = [name for one in before for name in context.source.of(one, cst.Name)]
    return any(leaf.parts == norm.parts for name in names for leaf in leaves(forms.of(name)) if leaf.op == "norm")


def _is_of_a_parameter(leaf: Form) -> bool:
    if leaf.op != "norm":
        return False
    text = str(leaf.parts[0].value) if leaf.parts else ""
    return _PARAMETER.search(text) is not None and "grad" not in text
