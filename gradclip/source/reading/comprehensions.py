"""Comprehensions: lists and dictionaries of parameters, of gradients, or of a few known objects."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gradclip.rounds import Backward, Params
from gradclip.source.reading import choices, coefficients, elements, handlers, modules
from gradclip.source.reading.values import Constant, Elements, Gradients, Table, Thing, Tuple, Value, joined, marks

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["value"]

Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


def value(machine: Machine, node: Comprehension) -> Value:
    """A list or a dictionary made in a loop: of parameters, or of gradients."""
    if isinstance(node, ast.DictComp) and (table := handlers.lists(machine, node)) is not None:
        return table
    element = node.value if isinstance(node, ast.DictComp) else node.elt
    first = node.generators[0]
    listed = machine.value(first.iter)
    before = dict(machine.scope.names)
    one = listed
    if isinstance(listed, Elements):
        one = replace(listed, token=(*listed.token, "one"), is_one=True, loop=id(node))
    elif isinstance(listed, Gradients):
        one = replace(listed, is_one=True)
    elif (
        isinstance(listed, Tuple)
        and handlers.are_few(listed)
        and len(node.generators) > 1
        and not isinstance(node, ast.DictComp)
    ):
        parts = [_each(machine, first.target, x, _inner(node))[1] for x in listed.items]
        machine.scope.names = before
        return joined(y for x in parts for y in (x.items if isinstance(x, Tuple) and len(x.items) == 1 else (x,)))
    elif isinstance(listed, Tuple) and listed.items and len(listed.items) <= 4 and len(node.generators) == 1:
        passes = [_each(machine, first.target, x, node) for x in listed.items]
        if isinstance(node, ast.DictComp):
            return Table(machine.fresh(node, "table"), items=dict(passes))
        return Tuple(("list",), marks(x for _, x in passes), items=tuple(x for _, x in passes))
    else:
        one = Thing((*listed.token, "each", *machine.passes), frozenset({"varies"}))
    machine.bind(first.target, one)
    for more in node.generators[1:]:
        inner = machine.value(more.iter)
        if isinstance(inner, Elements):
            inner = Elements((*inner.token, "one"), params=inner.params, is_one=True, loop=id(node))
        machine.bind(more.target, inner)
    machine.lists.append(id(node))
    made = _looped(machine, element, node)
    machine.lists.pop()
    machine.scope.names = before
    if isinstance(made, Tuple) and made.items and isinstance(made.items[0], Gradients):
        made = replace(made.items[0], row=made.items)
    elif isinstance(made, Gradients) and any(x.ifs for x in node.generators):
        made = replace(made, pairs="filtered")
    if isinstance(made, Gradients):
        return replace(made, is_one=False)
    if isinstance(made, Elements):
        if any(modules.only_free(x) for g in node.generators for x in g.ifs):
            made = replace(made, token=(*made.token, "free"), params=modules.free(machine, made.params, listed=True))
        tests = [x for g in node.generators for x in g.ifs]
        if not all(map(choices.is_harmless, tests)):
            part = choices.chosen(machine, made, first.target, tests) if len(node.generators) == 1 else None
            if part is not None:
                return replace(part, is_one=False, loop=None)
            return Elements((*made.token, id(node)), made.marks, params=Params(made.params.known, is_all=False))
        return Elements(made.token, made.marks, params=made.params)
    if isinstance(made, coefficients.Norm):
        return coefficients.summed(made)
    if isinstance(made, elements.Scaled):
        return made
    return Thing(("list", *made.token), made.marks)


@lru_cache(maxsize=64)  # its identity is that of the loop
def _inner(node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> ast.ListComp:
    """``[[p for p in m.parameters()] for m in modules]`` of ``[p for m in modules for p in m.parameters()]``."""
    rest = ast.copy_location(ast.ListComp(node.elt, node.generators[1:]), node)
    return ast.copy_location(ast.ListComp(rest, node.generators[:1]), node)


def _looped(machine: Machine, element: ast.expr, node: Comprehension) -> Value:
    """What a pass makes; a loop that makes a backward pass has two."""
    start, depth = len(machine.events), len(machine.loops)
    key = (id(node), machine.scope.key)
    made = machine.value(element)
    if not any(isinstance(x, Backward) for x in machine.events[start:]):
        return made
    machine.events[start:] = [replace(x, loops=(*x.loops[:depth], key, *x.loops[depth:])) for x in machine.events[start:]]
    machine.loops.append(key)
    machine.passes.append(1)
    made = machine.value(element)
    machine.passes.pop()
    machine.loops.pop()
    return made


def _each(machine: Machine, target: ast.expr, one: Value, node: Comprehension) -> tuple[object, Value]:
    """What one pass makes, and its key in a dictionary."""
    machine.spend()
    machine.bind(target, one)
    if not isinstance(node, ast.DictComp):
        return None, machine.value(node.elt)
    key = machine.value(node.key)
    return key.value if isinstance(key, Constant) else key.token, machine.value(node.value)
