"""GM123: a function of one tensor gets gradients that may be None."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.natives.model import Applied
from gradclip.source.found import ApiCall, Finding
from gradclip.source.objects import maker
from gradclip.source.source import last_name, target_names
from gradclip.source.traps import unused

__all__ = ["check"]

_ALL = re.compile(r"\.(trainable_)?(variables|weights)(\(\))?$")


def check(found: ApiCall) -> Finding | None:
    """``[tf.clip_by_norm(g, 1.0) for g in grads]`` of all variables of a model, without a test for None."""
    tensors, source = found.tensors, found.context.source
    if found.api.applied is not Applied.TENSOR or not isinstance(tensors, cst.Name) or unused.check(found):
        return None
    for outer in source.inside(found.call):
        if isinstance(outer, (cst.If, cst.IfExp, cst.Lambda)):
            return None  # it may be the test
        if isinstance(outer, (cst.ListComp, cst.GeneratorExp)):
            loop = outer.for_in
            if loop.ifs or loop.inner_for_in is not None or tensors.value not in target_names(loop.target):
                return None
            return _unguarded(found, tensors, loop.iter)
    return None


def _unguarded(found: ApiCall, tensor: cst.Name, iterable: cst.BaseExpression) -> Finding | None:
    source, values = found.context.source, found.context.values
    listed = iterable
    if isinstance(iterable, cst.Call) and last_name(iterable.func) == "zip" and iterable.args:
        listed = iterable.args[0].value
    made = listed if isinstance(listed, cst.Call) else values.value_of(listed)
    if not isinstance(made, cst.Call) or last_name(made.func) not in ("gradient", "gradients") or len(made.args) < 2:
        return None
    wanted = made.args[1].value
    wanted = values.value_of(wanted) or wanted
    if len(made.args) > 2 or not _ALL.search(source.one_line(wanted)) or _is_sequential(wanted, found):
        return None
    of = "gradclip" if found.is_own else "tf"
    reason = f"{source.shown(made)} is None for each variable that the loss does not use, and this function fails on None."
    return Finding("GM123", reason, f"Write: ... if {tensor.value} is not None else None; or take {of}.clip_by_global_norm.")


def _is_sequential(variables: cst.BaseExpression, found: ApiCall) -> bool:
    """Whether they are those of a model in which each layer takes what the last one gives: its loss uses all of them."""
    model = maker(variables.value, found.context) if isinstance(variables, cst.Attribute) else None
    return model is not None and last_name(model.func) == "Sequential"
