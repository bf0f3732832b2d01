"""What an expression stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradclip.rounds import Params
from gradclip.source.reading import (
    attributes,
    calls,
    coefficients,
    comprehensions,
    degrees,
    elements,
    forward,
    generators,
    gradients,
    measures,
    mends,
    products,
    taken,
    tests,
)
from gradclip.source.reading.program import last
from gradclip.source.reading.values import (
    MOST,
    SCALED,
    Constant,
    Context,
    Elements,
    Formula,
    Function,
    Gradients,
    Instance,
    Made,
    Table,
    Thing,
    Tuple,
    Value,
    joined,
    last_of,
    marks,
    named,
    origin,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["either", "unpacked", "value"]

_SETTINGS = frozenset({"learning_rate", "lr", "weight_decay", "beta_1", "beta_2", "momentum", "get_config"})


def value(machine: Machine, node: ast.expr) -> Value:
    """The value of an expression."""
    made = _BY_TYPE.get(type(node))
    if made is not None:
        return made(machine, node)
    marks: frozenset[str] = frozenset()
    keys: list[object] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            one = value(machine, child)
            marks |= one.marks
            keys.append(one.token)
    return Thing(machine.token(type(node).__name__, *keys), marks)


def _constant(machine: Machine, node: ast.Constant) -> Value:
    return Constant(("constant", repr(node.value)), value=node.value)


def _name(machine: Machine, node: ast.Name) -> Value:
    found = machine.scope.find(node.id, machine)
    if found is None:
        found = Thing((origin(node.id, machine.scope.file.path),), tests.marked(node.id))
        top = machine.scope
        while top.outer is not None:
            top = top.outer
        top.names[node.id] = found
    if machine.lost:
        elements.read(machine, found)
    if type(found) is Thing and not machine.sums:  # the usual case
        return found
    if isinstance(found, Constant) and not found.name:
        return named(found, node.id)
    if isinstance(found, Made) and machine.idle.pop(found.where, None) is not None:
        machine.read.add(found.where)
    return taken.kept(machine, found)


def _attribute(machine: Machine, node: ast.Attribute) -> Value:
    idle = dict(machine.idle) if node.attr in _SETTINGS and isinstance(node.value, ast.Name) else None
    found = attributes.of(machine, value(machine, node.value), node.attr)
    if idle is not None and machine.idle.keys() != idle.keys():  # its rate is no use of an optimizer
        machine.read -= idle.keys() - machine.idle.keys()
        machine.idle = idle
    return taken.kept(machine, found)


def _tuple(machine: Machine, node: ast.Tuple | ast.List | ast.Set) -> Value:
    items: list[Value] = []
    for x in node.elts:
        one = value(machine, x.value if isinstance(x, ast.Starred) else x)
        items += one.items if isinstance(x, ast.Starred) and isinstance(one, Tuple) else [one]
    return Tuple(machine.token("tuple", *(x.token for x in items)), marks(items), items=tuple(items[:MOST]))


def _dict(machine: Machine, node: ast.Dict) -> Value:
    table = Table(machine.fresh(node, "table"))
    for key, x in zip(node.keys, node.values, strict=True):
        one = value(machine, x)
        if key is None:
            table.items.update(one.items if isinstance(one, Table) else {})
        elif isinstance(known := value(machine, key), Constant):
            table.items[known.value] = one
    measures.logged(machine, [table])
    return table


def _formatted(machine: Machine, node: ast.JoinedStr) -> Value:
    """``f"grad_norm {norm}"``."""
    parts = [value(machine, x.value if isinstance(x, ast.FormattedValue) else x) for x in node.values]
    measures.logged(machine, parts)
    return Thing(machine.token("JoinedStr", *(x.token for x in parts)), marks(parts))


def _subscript(machine: Machine, node: ast.Subscript) -> Value:
    owner, key = value(machine, node.value), value(machine, node.slice)
    if isinstance(owner, Elements):
        if isinstance(key, Constant) and key.value in ("params", "parameters"):
            return Elements(owner.token, params=owner.params, of=owner.of)
        group = gradients.group(owner.of, key)
        return Elements((*owner.token, "[]"), params=owner.params if group is None else group, of=owner.of)
    if isinstance(key, Constant):
        if isinstance(owner, Table) and owner.is_of_lists:
            owner.items.setdefault(key.value, Tuple((*owner.token, ("[]", key.value))))
        if isinstance(owner, Table) and key.value in owner.items:
            return named(owner.items[key.value], str(key.value))
        if isinstance(owner, Tuple) and isinstance(key.value, int) and -len(owner.items) <= key.value < len(owner.items):
            return owner.items[key.value]
    if isinstance(owner, Gradients):
        return owner
    said = tests.marked(key.value) if isinstance(key, Constant) and isinstance(key.value, str) else frozenset[str]()
    name = key.value if isinstance(key, Constant) and isinstance(key.value, str) else machine.token("key", key.token)[1]
    return Thing((*owner.token, ("[]", name)), owner.marks | key.marks | said)


def _binary(machine: Machine, node: ast.BinOp) -> Value:
    left, right = value(machine, node.left), value(machine, node.right)
    if isinstance(node.op, ast.Add) and isinstance(left, Elements) and mends.NOISE in right.marks:
        return replace(left, marks=left.marks | right.marks)
    if isinstance(node.op, ast.Add) and (isinstance(left, (Elements, Tuple)) or isinstance(right, Elements)):
        return joined([left, right])
    if isinstance(node.op, ast.Pow):
        measures.rooted(machine, node, left)
    changed = elements.computed(machine, node, left, right) or coefficients.computed(machine, node, left, right)
    if changed is not None:
        return changed
    if isinstance(node.op, ast.BitOr) and isinstance(left, Table) and isinstance(right, Table):
        return Table(left.token, items={**left.items, **right.items})
    if isinstance(node.op, ast.Mod) and not isinstance(left, Constant):  # it differs between the passes
        marks = degrees.combined(node.op, left, right) | {"every", "varies"}
        return Thing(machine.token("Mod", left.token, right.token, tuple(machine.passes)), marks)
    return products.value(machine, node, left, right)


def _unary(machine: Machine, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        return tests.formula(machine, node)
    one = value(machine, node.operand)
    if isinstance(one, Constant) and isinstance(one.value, (int, float)) and isinstance(node.op, ast.USub):
        return Constant(("-", *one.token), value=-one.value)
    return Thing((type(node.op).__name__, *one.token), one.marks)


def _test(machine: Machine, node: ast.BoolOp | ast.Compare) -> Value:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):  # params or model.parameters()
        values = [value(machine, x) for x in node.values]
        if any(isinstance(x, (Elements, Made, Instance, Gradients)) for x in values):
            return next(x for x in values if isinstance(x, (Elements, Made, Instance, Gradients)))
    made = tests.formula(machine, node)
    if not made.token:
        made.token = machine.token(made.op, *(x.token for x in made.parts))
        made.marks = marks(made.parts)
    return made


def _chosen(machine: Machine, node: ast.IfExp) -> Value:
    test = tests.formula(machine, node.test)
    known = tests.known(test)
    if known is not None:
        return value(machine, node.body if known else node.orelse)
    if machine.scope.file.matters(node):
        truth = tests.decided(machine, test, default=True)
        mark = len(machine.conditions)
        machine.conditions += tests.conditions(machine, test, truth)
        made = value(machine, node.body if truth else node.orelse)
        del machine.conditions[mark:]
        if isinstance(made, Context):  # no_sync() in some of the passes
            made.kind = ""
        return made
    return either(machine, value(machine, node.body), value(machine, node.orelse))


def _lambda(machine: Machine, node: ast.Lambda) -> Value:
    return Function((origin("lambda", id(node)),), node=node, scope=machine.scope)


def _walrus(machine: Machine, node: ast.NamedExpr) -> Value:
    made = value(machine, node.value)
    machine.bind(node.target, made)
    return made


def _inner(machine: Machine, node: ast.Starred | ast.Await) -> Value:
    return value(machine, node.value)


def either(machine: Machine, one: Value, other: Value) -> Value:
    """One of two values: what both say of it, and the one that is something where the other is None."""
    if one is other or one.token == other.token:
        return one
    for first, second in ((one, other), (other, one)):
        if isinstance(second, Constant) and (second.value is None or second.value is False) and not isinstance(first, Constant):
            return first
        if isinstance(second, Constant) and second.value is True and isinstance(first, Formula):
            return first
    for outer, inner in ((one, other), (other, one)):
        if isinstance(outer, Made) and isinstance(inner, Made) and any(x is inner for x in outer.args):
            return outer  # MultiSteps(tx): it does all that the inner one does
    if isinstance(one, Made) and isinstance(other, Made) and type(one) is type(other):
        mine, theirs = (gradients.of_optimizer(x) for x in (one, other))
        if mine == theirs and mine.known:
            return one
    if isinstance(one, coefficients.Norm) and isinstance(other, coefficients.Norm):
        return replace(one, of=one.of | other.of)
    if (choice := coefficients.chosen(machine, one, other)) is not None:
        return choice
    if isinstance(one, Gradients) and isinstance(other, Gradients):
        return one if len(one.history) >= len(other.history) else other
    if isinstance(one, Elements) and isinstance(other, Elements):
        if one.params == other.params:
            return one
        return Elements((*one.token[:4], "either"), params=Params(one.params.known | other.params.known, is_all=False))
    both, some = one.marks & other.marks, one.marks | other.marks
    unsure = (SCALED, forward.THROUGH, *([measures.LOCAL] if measures.REDUCED in some else []))  # of one side, not certain
    said = both | {x for x in some if not x.startswith(unsure)}
    return Thing((origin(last_of(one), (one.token, other.token)),), said)


def unpacked(machine: Machine, one: Value, target: ast.Tuple | ast.List) -> Sequence[Value]:
    """The parts of a value for the targets of an assignment."""
    count = len(target.elts)
    if isinstance(one, Tuple) and len(one.items) == count:
        return one.items
    if isinstance(one, Elements) and one.is_one:  # for name, param in model.named_parameters()
        return [*(Thing((*one.token, i)) for i in range(count - 1)), one]
    if isinstance(one, Gradients):  # for grad, variable in zip(grads, variables)
        row = [taken.element(x) for x in one.row[:count]] or [replace(one, row=())]
        return [*row, *(Thing((*one.token, i)) for i in range(count - len(row)))]
    names = [last(x) or "it" for x in target.elts]
    return [Thing((origin(name, (one.token, i)),), one.marks | tests.marked(name)) for i, name in enumerate(names)]


_BY_TYPE: dict[type[ast.expr], Callable[[Machine, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Set: _tuple,
    ast.Dict: _dict,
    ast.JoinedStr: _formatted,
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _test,
    ast.Compare: _test,
    ast.IfExp: _chosen,
    ast.Lambda: _lambda,
    ast.ListComp: comprehensions.value,
    ast.GeneratorExp: comprehensions.value,
    ast.SetComp: comprehensions.value,
    ast.DictComp: comprehensions.value,
    ast.NamedExpr: _walrus,
    ast.Starred: _inner,
    ast.Await: _inner,
    ast.Yield: generators.yielded,
    ast.Call: calls.call,
}
