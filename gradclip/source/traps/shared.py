"""GM116: a list that contains a parameter twice, such as a tied parameter of several modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.source import Source, last_name, once, receiver

__all__ = ["check", "joined", "listed_twice", "ties"]

_SAME_ELEMENTS = frozenset({"list", "tuple", "iter", "reversed", "sorted", "filter"})  # a set drops duplicates
_JOINED = (cst.Call, cst.List, cst.Tuple, cst.BinaryOperation, cst.ListComp, cst.GeneratorExp)
_DISTINCT = "param_groups"  # an optimizer rejects a parameter in two of its groups


def check(found: ApiCall) -> Finding | None:
    """The same parameters twice in one list, or those of two modules that share a weight."""
    parts, source = joined(found), found.context.source
    codes = [source.code(part) for part, _ in parts]
    for number, code in enumerate(codes):
        if code in codes[:number] and not code.startswith("itertools."):
            return listed_twice(f"`{code}` is joined with itself")
    owners = {source.code(owner) for part, _ in parts if (owner := receiver(part, "parameters")) is not None}
    for tie, *tied in ties(source) if len(owners) > 1 else ():
        if len({owner for owner in owners for weight in tied if _has(owner, weight)}) > 1:
            return listed_twice(f"{source.shown(tie)} ties weights")
    return None


def _has(owner: str, weight: str) -> bool:
    """Whether a module has a weight, also one that its class ties: ``model.emb`` and ``self.emb.weight``."""
    within = weight.removeprefix("self.") if weight.startswith("self.") else ""
    return weight.startswith(f"{owner}.") or (bool(within) and owner.partition(".")[2] == within.rpartition(".")[0])


def joined(found: ApiCall) -> list[tuple[cst.BaseExpression, bool]]:
    """The parts of a list of parameters, if two of them may share a parameter; else an empty list."""
    if found.is_own:
        return []  # gradclip counts a parameter once
    counts = found.framework in ("torch", "paddle") and found.api.kind is Kind.IN_PLACE and not found.clips_by_value
    parts = list(_parts(found.tensors, found.context, 6)) if counts and found.tensors is not None else []
    return parts if _may_share(parts, found.context) else []


def listed_twice(what: str) -> Finding:
    """GM116, by its evidence."""
    reason = f"{what}: a parameter that is listed twice counts twice natively, and once in gradclip."
    return Finding("GM116", reason, changes=True)


@once
def ties(source: Source) -> list[tuple[cst.Assign, str, str]]:
    """The assignments of one module's weight to another, with the text of both."""
    pairs = ((one, one.targets[0].target) for one in source.all(cst.Assign))
    return [
        (one, source.code(target), source.code(one.value))
        for one, target in pairs
        if last_name(target) == last_name(one.value) == "weight" and isinstance(one.value, cst.Attribute)
    ]


def _parts(node: cst.BaseExpression, context: Context, depth: int) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """The parts that an expression of parameters joins, each with whether it is a collection, not a single parameter."""
    value = context.values.value_of(node)
    if isinstance(node, cst.Name) and value is not None and depth:
        node = value if isinstance(value, _JOINED) else node
    if isinstance(node, (cst.List, cst.Tuple)) and depth:
        for element in node.elements:
            starred = isinstance(element, cst.StarredElement)
            yield from _parts(element.value, context, depth - 1) if starred else [(element.value, False)]
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add) and depth:
        yield from _parts(node.left, context, depth - 1)
        yield from _parts(node.right, context, depth - 1)
    elif isinstance(node, cst.Call) and depth:
        yield from _of_call(node, context, depth)
    elif isinstance(node, (cst.ListComp, cst.GeneratorExp)) and depth and not node.for_in.ifs:  # else some of a list
        nested = node.for_in.inner_for_in is not None and _DISTINCT not in context.source.code(node)
        if nested:
            yield node, True
        yield from _parts(node.for_in.iter, context, depth - 1)
    else:
        yield node, True


def _of_call(call: cst.Call, context: Context, depth: int) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """The parts of ``chain(a, b)`` or ``list(a)``; any other call is one part."""
    name = last_name(call.func)
    if name == "chain":
        for argument in call.args:
            if argument.star and _DISTINCT not in context.source.code(argument):
                yield call, True
            yield from _parts(argument.value, context, depth - 1)
    elif name == "from_iterable" and _DISTINCT not in context.source.code(call):
        yield from ((call, True), (call.args[0].value if call.args else call, True))
    elif name in _SAME_ELEMENTS and isinstance(call.func, cst.Name) and call.args:
        yield from _parts(call.args[-1 if name == "filter" else 0].value, context, depth - 1)
    else:
        yield call, True


def _may_share(parts: Sequence[tuple[cst.BaseExpression, bool]], context: Context) -> bool:
    """Whether two parts can share a parameter; parts of one module with different names do not."""
    if len(parts) < 2:
        return False
    if any(collection for _, collection in parts):
        return True
    code = context.source.code
    owners = {code(part.value) for part, _ in parts if isinstance(part, cst.Attribute)}
    return len(owners) > 1 or len({code(part) for part, _ in parts}) < len(parts)
