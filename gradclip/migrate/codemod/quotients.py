"""The parts of a quotient: a measured norm, a limit, and their factors."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.migrate.codemod.bind import number
from gradclip.migrate.codemod.found import Context
from gradclip.migrate.codemod.source import last_name, words

__all__ = ["GRADIENT", "GUARDS", "factors", "has_epsilon", "is_limit", "measured_norm"]

_LIMIT = re.compile(  # max_norm, l2_norm_clip, grad_clip, clip_value, threshold
    r"\w*(max|clip|threshold|limit|cutoff)\w*norm|\w*norm\w*(clip|max|limit|threshold)|(max_?)?grad(ient)?s?_?(clip\w*|norm)|"
    r"\w*clip(ping)?(_(val(ue)?|grad\w*|threshold|limit|norm))?|max_?grad\w*|\w*threshold|(\w+_)?limit|theta|max_?length",
    re.IGNORECASE,
)
_MEASURED = re.compile(
    r"(?!.*((layer|batch|instance|group|rms|weight|spectral)_?norm|normal))\w*norms?(_\w+)?\d*", re.IGNORECASE
)
_MEASURES = words("norm global_norm vector_norm get_total_norm matrix_norm get_grad_norm calc_grad_norm l2_norm unitwise_norm")
GUARDS = re.compile(r"min(imum)?$|clamp(_max)?_?$|clip$|where$|cond$|select$")
GRADIENT = re.compile(r"\b(\w*_)?(grads?|gradients?)\b|\bd[A-Z]\w*\b|\bg\b")


def measured_norm(node: cst.BaseExpression, context: Context) -> str:
    """The name of a measured norm in an expression, also with an epsilon or in a maximum; "" if there is none."""
    if isinstance(node, cst.Name):
        if _is_name_of_limit(node.value):
            return ""
        if _MEASURED.fullmatch(node.value):
            return node.value
        value = context.resolver.value_of(node)
        return node.value if isinstance(value, cst.Call) and last_name(value.func) in _MEASURES else ""
    if isinstance(node, cst.Attribute):
        name = node.attr.value
        return name if _MEASURED.fullmatch(name) and not _is_name_of_limit(name) else ""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Add, cst.Divide, cst.Multiply)):
        other = "" if isinstance(node.operator, cst.Divide) else measured_norm(node.right, context)
        return measured_norm(node.left, context) or other
    if isinstance(node, cst.Subscript):
        return measured_norm(node.value, context)
    if isinstance(node, cst.Call):
        name = last_name(node.func)
        if name in _MEASURES:
            return name
        parts = [argument.value for argument in node.args]
        if isinstance(node.func, cst.Attribute):
            parts.append(node.func.value)
        if name in ("max", "maximum", "clamp", "clamp_", "astype", "item", "float", "add", "to", "view", "reshape", "sqrt"):
            return next((found for part in parts if (found := measured_norm(part, context))), "")
    return ""


def _is_name_of_limit(name: str) -> bool:
    return _LIMIT.fullmatch(name) is not None and not re.fullmatch(
        r"(grad(ient)?s?_?norm|un?clip|pre_?clip)\w*", name, re.IGNORECASE
    )


def is_limit(node: cst.BaseExpression, *, strict: bool) -> bool:
    """Whether an expression is a limit by its name; if not ``strict``, any name or number that could be a limit."""
    if isinstance(node, cst.Call) and last_name(node.func) == "float" and node.args:
        return is_limit(node.args[0].value, strict=strict)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide) and number(node.left) == 1:
        return is_limit(node.right, strict=strict)  # 1 / limit
    if number(node) is not None:
        return not strict and number(node) != 1
    if isinstance(node, cst.Subscript):
        key = node.slice[0].slice
        if isinstance(key, cst.Index) and isinstance(key.value, cst.SimpleString):
            return _LIMIT.fullmatch(str(key.value.raw_value)) is not None  # args["max_norm"]
        return is_limit(node.value, strict=strict)
    if not isinstance(node, (cst.Name, cst.Attribute)):
        return False
    name = last_name(node)
    if _is_name_of_limit(name) or _LIMIT.fullmatch(name):
        return True
    return not strict and not GRADIENT.search(name)


def factors(node: cst.BinaryOperation, context: Context) -> list[cst.BaseExpression]:
    """The factors of a quotient, in its numerator and around it."""
    found = list(_flat(node.left))
    inner: cst.CSTNode = node
    for outer in context.source.ancestors(node):
        if isinstance(outer, cst.BinaryOperation) and isinstance(outer.operator, cst.Multiply):
            found += _flat(outer.right if inner is outer.left else outer.left)
        elif isinstance(outer, cst.Arg):
            call = context.source.parents[outer]
            if not isinstance(call, cst.Call) or not GUARDS.search(last_name(call.func)):
                break
            found += [argument.value for argument in call.args if argument is not outer]  # minimum(1 / limit, 1 / norm)
            outer = call
        elif not isinstance(outer, cst.Call):
            break
        inner = outer
    return found


def _flat(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        yield from _flat(node.left)
        yield from _flat(node.right)
    else:
        yield node


def has_epsilon(norm: cst.BaseExpression, context: Context) -> bool:
    return re.search(r"\+|eps", context.source.code(norm)) is not None
