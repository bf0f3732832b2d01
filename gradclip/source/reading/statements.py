"""What a statement of each kind does on one way."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradclip.rounds import Condition, Write
from gradclip.source.reading import (
    branches,
    choices,
    coefficients,
    degrees,
    elements,
    expressions,
    functional,
    generators,
    gradients,
    handlers,
    loops,
    measures,
    mends,
    modules,
    scales,
    scope,
    slots,
    taken,
    tests,
)
from gradclip.source.reading.program import last
from gradclip.source.reading.values import (
    Class,
    Constant,
    Context,
    Elements,
    Formula,
    Function,
    Gradients,
    Instance,
    Library,
    Made,
    Origin,
    Table,
    Token,
    Tuple,
    Value,
    atoms,
    joined,
    marks,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["bind", "run"]

_SEVERAL = (ast.Tuple, ast.List)


def run(machine: Machine, node: ast.stmt) -> str:
    """Run a statement; return how it leaves its block: "", "return", "continue", "break", "raise"."""
    do = _BY_TYPE.get(type(node))
    return do(machine, node) or "" if do is not None else ""


def _expr(machine: Machine, node: ast.Expr) -> None:
    machine.bare = node.value
    machine.value(node.value)


def _function_def(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    token = (Origin(node.name, hash((id(node), machine.scope.key))),)
    made = Function(token, node=node, scope=machine.scope)
    machine.scope.names[node.name] = functional.decorated(machine, made, made)
    if (wrapped := handlers.registered(machine, node, made)) is not None:
        machine.scope.names[node.name] = wrapped


def _class_def(machine: Machine, node: ast.ClassDef) -> None:
    machine.scope.names[node.name] = made = Class((Origin(node.name, id(node)),), node=node, scope=machine.scope)
    handlers.registered(machine, node, made)


def _import(machine: Machine, node: ast.Import) -> None:
    for alias in node.names:
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        machine.scope.names[alias.asname or name] = Library((name,), name=name)


def _assign(machine: Machine, node: ast.Assign) -> None:
    value = _assigned(machine, node.targets[0] if len(node.targets) == 1 else None, node.value)
    for target in node.targets:
        machine.bind(target, value)
    slots.bound(machine, node.targets, value)
    branches.bound(machine, node.targets, value)


def _assigned(machine: Machine, target: ast.expr | None, node: ast.expr) -> Value:
    """The value of an assignment: what it makes gets the name of its target: ``self.a, self.b = Linear(), Linear()``."""
    if isinstance(target, _SEVERAL) and isinstance(node, _SEVERAL) and _is_in_pairs(target.elts, node.elts):
        items = [_assigned(machine, x, y) for x, y in zip(target.elts, node.elts, strict=True)]
        return Tuple(machine.token("tuple", *(x.token for x in items)), marks(items), items=tuple(items))
    machine.hint = _hint(machine, target) if target is not None else ()
    value = machine.value(node)
    machine.hint = ()
    return value


def _is_in_pairs(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    return len(targets) == len(values) and not any(isinstance(x, ast.Starred) for x in (*targets, *values))


def _ann_assign(machine: Machine, node: ast.AnnAssign) -> None:
    if node.value is not None:
        machine.hint = _hint(machine, node.target)
        value = machine.value(node.value)
        machine.hint = ()
        machine.bind(node.target, value)


def _hint(machine: Machine, target: ast.expr) -> Token:
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and machine.scope.owner is not None:
        owner = machine.scope.find(target.value.id, machine)
        if owner is machine.scope.owner:
            return (*owner.token, target.attr)
    if isinstance(target, ast.Attribute):
        return (target.attr,)
    return ()


def _aug_assign(machine: Machine, node: ast.AugAssign) -> None:
    old, more = machine.value(node.target), machine.value(node.value)
    measures.totalled(machine, more)
    operation = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
    if isinstance(old, Gradients) or isinstance(more, Gradients):
        machine.bind(node.target, coefficients.computed(machine, operation, old, more) or old)
    elif isinstance(old, Elements) and "gradient" in old.marks and isinstance(node.op, (ast.Mult, ast.Div)):
        elements.scaled(machine, old, node.target, (more, node.value), divides=isinstance(node.op, ast.Div))
    elif isinstance(old, Elements):
        made = joined([old, more])
        made.marks |= {x for x in more.marks if x == measures.LOCAL or mends.NOISE in more.marks}
        machine.bind(node.target, made)
    elif isinstance(more, coefficients.Norm):
        machine.bind(node.target, coefficients.summed(more))
    else:
        marks = degrees.combined(node.op, old, more) | {"varies"}
        if degrees.PLAIN in more.marks and isinstance(node.op, ast.Add):
            marks = marks - {degrees.PLAIN} | {degrees.SUMMED}
        if last(node.target) in machine.scope.file.counters:
            marks |= {"every"}
        key = (old.token, type(node.op).__name__, more.token)
        machine.bind(node.target, machine.thing(node, ast.unparse(node.target), key, marks))


def bind(machine: Machine, target: ast.expr, value: Value) -> None:
    """Give a target a value."""
    if isinstance(target, ast.Name):
        machine.scope.names[target.id] = value
        elements.named(machine, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = expressions.unpacked(machine, value, target)
        for one, part in zip(target.elts, parts, strict=True):
            if isinstance(one, ast.Name) and one.id.startswith("_"):  # only the norm is wanted
                machine.changes = [x for x in machine.changes if x is not part]
            machine.bind(one, part)
    elif isinstance(target, ast.Starred):
        machine.bind(target.value, value)
    elif isinstance(target, ast.Attribute):
        owner = machine.value(target.value)
        modules.replace_part(machine, owner, target.attr, value)
        if isinstance(owner, Instance):
            owner.fields[target.attr] = value
        elif target.attr == "requires_grad" and isinstance(owner, Elements):
            modules.freeze(machine, owner.params, value, is_certain=owner.is_one and not modules.is_free_of(machine, owner))
        elif target.attr == "grad" or (target.attr == "data" and "gradient" in owner.marks):
            elements.written(machine, owner, value, target)
        elif target.attr in ("grad_clip", "_grad_clip") and isinstance(owner, Made) and "paddle" in owner.name:
            slots.set_late(machine, owner, target, value)
        elif target.attr == "need_clip":
            slots.mark(machine, owner, value)
        elif target.attr == "requires_grad":
            modules.freeze(machine, gradients.of_module(owner), value)
    elif isinstance(target, ast.Subscript):
        owner, key = machine.value(target.value), machine.value(target.slice)
        if isinstance(owner, Elements) and mends.ELEMENTS in key.marks:  # p.grad[torch.isnan(p.grad)] = 0
            machine.emit(Write(**machine.about(target), params=owner.params, is_mend=True))
        measures.logged(machine, (key, value))  # stats["grad_norm"] = norm
        if isinstance(owner, Table) and isinstance(key, Constant):
            owner.items[key.value] = value
        elif (grads := taken.gathered(value.items[0] if isinstance(value, Tuple) and value.items else value)) is not None:
            if isinstance(owner, Gradients) and isinstance(target.value, (ast.Name, ast.Attribute)):
                machine.bind(target.value, replace(grads, is_one=False))
            else:
                taken.held(machine, owner, grads)


def _if(machine: Machine, node: ast.If) -> str:
    file = machine.scope.file
    formula = tests.formula(machine, node.test)
    matters = any(map(file.matters, (*node.body, *node.orelse)))
    leaves = any(map(file.leaves, node.body)), any(map(file.leaves, node.orelse))
    known = tests.known(formula)
    if known is not None and not formula.marks:
        return machine.block(node.body if known else node.orelse)
    if not matters and not any(leaves):
        return _both(machine, node, formula)
    ends = isinstance(node.body[-1], (ast.Continue, ast.Break, ast.Raise))  # the usual way goes on
    default = not ends and ((matters and any(map(file.matters, node.body))) or not leaves[0])
    told = machine.changes and any(tests.kind_of(x.marks) for x in atoms(formula))  # `if i % k: continue`
    is_open = matters or machine.events or told  # else nothing has happened that it could skip
    truth = tests.decided(machine, formula, default) if is_open else default
    conditions = tests.conditions(machine, formula, truth)
    if not truth and isinstance(node.body[-1], ast.Continue):  # what follows is about the others
        machine.scope.names.update((key, no) for key, _, no in choices.sides(machine, node.test))
    mark = len(machine.conditions)
    machine.conditions += conditions
    left = tests.under(machine, formula, node.body) if truth else machine.block(node.orelse)
    if left or not any(leaves):
        del machine.conditions[mark:]
    return left


def _both(machine: Machine, node: ast.If, test: Formula) -> str:
    """A branch without events: what its sides bind is one of the two."""
    names = machine.scope.names
    before = dict(names)
    machine.branches.append(len(machine.loops))
    machine.conditions.append(Condition(id(node)))
    parts = list(choices.sides(machine, node.test))
    names.update((key, yes) for key, yes, _ in parts)
    tests.under(machine, test, node.body)
    first = dict(names)
    names.clear()
    names.update(before)
    names.update((key, no) for key, _, no in parts)
    machine.block(node.orelse)
    if parts:
        for known in (first, names):
            known.update((key, before[key]) for key, _, _ in parts)
    machine.conditions.pop()
    machine.branches.pop()
    for name, value in first.items():
        other = names.get(name)
        if other is not value:
            sides = (scope.loaded(machine, x) for x in (value, other) if x is not None)
            names[name] = value if other is None else expressions.either(machine, *sides)
    return ""


def _with(machine: Machine, node: ast.With | ast.AsyncWith, done: int = 0) -> str:
    """The objects of a ``with`` from a number on, and its block."""
    if done == len(node.items):
        return machine.block(node.body)
    item, mark = node.items[done], len(machine.contexts)
    value = machine.value(item.context_expr)

    def inside(made: Value) -> str:
        if item.optional_vars is not None:
            machine.bind(item.optional_vars, made)
        return _with(machine, node, done + 1)

    if isinstance(value, generators.Managed):
        return generators.run(machine, value, inside)
    context = value if isinstance(value, Context) else Context(value.token)
    machine.contexts.append(context)
    is_scaled = context.kind == "scaled"
    left = inside(context.inner if is_scaled and context.inner else generators.entered(machine, value, item.context_expr))
    if is_scaled:
        scales.leave(machine, node)
    generators.left(machine, value)
    del machine.contexts[mark:]
    return left


def _try(machine: Machine, node: ast.Try) -> str:
    left = machine.block(node.body)
    if not left:
        left = machine.block(node.orelse)
    for handler in node.handlers:
        if not any(map(machine.scope.file.matters, handler.body)):
            machine.block(handler.body)
    return machine.block(node.finalbody) or left


def _match(machine: Machine, node: ast.Match) -> str:
    machine.value(node.subject)
    for case in node.cases:
        if any(map(machine.scope.file.matters, case.body)):
            return machine.block(case.body)
    return ""


def _return(machine: Machine, node: ast.Return) -> str:
    machine.result = machine.value(node.value) if node.value is not None else Constant(("None",), value=None)
    return "return"


def _assert(machine: Machine, node: ast.Assert) -> None:
    machine.value(node.test)


_BY_TYPE: dict[type[ast.stmt], Callable[[Machine, Any], str | None]] = {
    ast.Expr: _expr,
    ast.FunctionDef: _function_def,
    ast.ClassDef: _class_def,
    ast.Import: _import,
    ast.ImportFrom: scope.bind,
    ast.Assign: _assign,
    ast.AnnAssign: _ann_assign,
    ast.AugAssign: _aug_assign,
    ast.If: _if,
    ast.For: loops.each,
    ast.While: loops.repeat,
    ast.With: _with,
    ast.Try: _try,
    ast.Match: _match,
    ast.Return: _return,
    ast.Continue: lambda machine, node: "continue",
    ast.Break: lambda machine, node: "break",
    ast.Raise: lambda machine, node: "raise",
    ast.Assert: _assert,
    ast.AsyncFunctionDef: _function_def,
    ast.AsyncFor: loops.each,
    ast.AsyncWith: _with,
}
