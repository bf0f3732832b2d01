"""Norms that a program takes, and what it does with them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Hashable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from gradclip.rounds import Clip, Measure
from gradclip.rounds.round import FAR
from gradclip.source.reading.coefficients import LOCAL, MATRIX, Norm
from gradclip.source.reading.degrees import KEEPS, LIKE, MEASURED, WEIGHTS, degree, said
from gradclip.source.reading.program import last
from gradclip.source.reading.scope import Scope
from gradclip.source.reading.values import (
    Call,
    Constant,
    Elements,
    Function,
    Made,
    Table,
    Thing,
    Tuple,
    Value,
    number_of,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = [
    "LOCAL",
    "REDUCED",
    "WEIGHTS",
    "bounded",
    "compared",
    "for_limit",
    "held",
    "is_below",
    "logged",
    "measure",
    "of_parameters",
    "of_shards",
    "of_weights",
    "passed",
    "power_of",
    "reduced",
    "rooted",
    "totalled",
]

#: functions that compute in one process
_ALONE = KEEPS | LIKE.keys() | {"debug", "full_like", "info", "isfinite", "isnan", "log", "pow", "print", "where"}
_ADDS = frozenset({"append", "appendleft", "extend", "add", "push", "update"})
REDUCED = "reduced"  #: the mark of a sum over processes
_LOGGED = re.compile(r"^(?!.*(after|post|clipped)).*(grad\w*[^\w]?norm|gnorm)", re.IGNORECASE)


def measure(machine: Machine, of: Elements, node: ast.expr, power: float | None = 1, *, of_matrix: bool = False) -> Value:
    """``p.grad.norm()``, ``p.grad ** 2``: a norm or a power of it. How it is used shows later what it is for."""
    machine.emit(Measure(**machine.about(node), params=of.params))
    place = len(machine.events) - 1
    marks = frozenset({"norm", "varies", f"{MEASURED}{place}", *([MATRIX] if of_matrix else [])}) | of.marks & {LOCAL}
    return Thing((node.lineno, node.col_offset, place), said(marks, None if power is None else Fraction(power)))


def power_of(name: str, given: Call) -> float | None:
    """Which power of a norm a method gives: ``g.pow(2)``, ``g.square()``, ``g.norm()``; None if it is not known."""
    return number_of(given.get(0, "exponent")) if name == "pow" else 2 if name == "square" else 1


def of_weights(of: Elements, name: str, given: Call) -> Value | None:
    """``p.norm()``, ``p.data.pow(2)``: of a parameter."""
    if name not in ("norm", "pow", "square") or not of.is_one:
        return None
    power = power_of(name, given)
    return Thing((*of.token, name), said(frozenset({WEIGHTS}), None if power is None else Fraction(power)))


def of_parameters(of: Value | None) -> Value | None:
    """``get_total_norm(model.parameters())``: the norm of the parameters, as it gets these; None if it gets gradients."""
    parts = of.items if isinstance(of, Tuple) else (of,)
    is_all = all(isinstance(x, Elements) and "gradient" not in x.marks and x.token[-1:] == ("parameters",) for x in parts)
    return Thing(("norm", *(x.token for x in parts if x)), said(frozenset({WEIGHTS}), 1)) if parts and is_all else None


def of_shards(function: Function, scope: Scope) -> None:
    """The arguments of which a function gets one process's shards: ``shard_map(step, in_specs=(P("model"), P()))``."""
    taken = function.node.args
    names = [x.arg for x in (*taken.posonlyargs, *taken.args)] if function.specs is not None else []
    of = function.specs
    specs = of.items if isinstance(of, Tuple) else [of] * len(names)
    for name, spec in zip(names, specs, strict=False):
        axes = spec.args if isinstance(spec, Made) and spec.name.endswith("PartitionSpec") else ()
        if name in scope.names and any(not isinstance(x, Constant) or x.value is not None for x in axes):
            scope.names[name] = replace(scope.names[name], marks=scope.names[name].marks | {LOCAL})


def totalled(machine: Machine, one: Value) -> None:
    """A norm of one gradient becomes a part of the norm of all: no matrix norm does."""
    if MATRIX in one.marks:
        _used(machine, one, "matrix")


def reduced(machine: Machine, given: Call) -> None:
    """``dist.all_reduce(norm)``: from here on it is the norm of all processes."""
    for node in (*given.node.args, *(x.value for x in given.node.keywords)):
        one = machine.value(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if one is not None and LOCAL in one.marks and not isinstance(one, Elements):
            machine.bind(node, Thing((*one.token, "reduced"), one.marks - {LOCAL} | {REDUCED}))


def passed(machine: Machine, given: Call) -> bool:
    """Whether a call of an unknown function gets a norm of this process's shards, and may reduce it over all processes."""
    if last(given.node.func) in _ALONE or not any(LOCAL in x.marks for x in (*given.args, *given.given.values())):
        return False
    reduced(machine, given)
    return True


def rooted(machine: Machine, node: ast.BinOp, left: Value) -> None:
    """``total ** (1 / order)``: for the order inf it is 1, whatever the norms are."""
    power = node.right
    totalled(machine, left)
    is_norm = isinstance(left, Norm) or any(x.startswith(MEASURED) for x in left.marks)
    if is_norm and isinstance(power, ast.BinOp) and isinstance(power.op, ast.Div):
        order = machine.value(power.right)
        if isinstance(order, Constant) and order.value == math.inf:
            machine.emit(Measure(**machine.about(node), use="root"))


def _used(machine: Machine, one: Value, use: str) -> None:
    if isinstance(one, Norm) and one.event is not None and any(isinstance(x, Clip) for x in one.history):
        machine.measured.append((*one.history, replace(one.event, use=use)))
    for place in _places(one):
        event = machine.events[place] if place < len(machine.events) else None
        if isinstance(event, Measure):
            machine.events[place] = replace(event, use=use)


def _places(one: Value) -> list[int]:
    """The events in which a norm was measured."""
    return [int(x[len(MEASURED) :]) for x in one.marks if x.startswith(MEASURED)]


def compared(machine: Machine, left: Value, right: Value) -> None:
    """``norm > limit``: with the limit of the clip, or more, a norm after the clip is never larger."""
    for one, other in ((left, right), (right, left)):
        places = _places(one)
        near = machine.events[max(0, min(places) - FAR) : max(places) + 1] if places else ()
        events = one.history if isinstance(one, Norm) else near
        limits = [x.limit for x in events if isinstance(x, Clip)]
        value = number_of(other)
        above = any(x == other.token or (value is not None and isinstance(x, (int, float)) and value >= x) for x in limits)
        if above:
            _used(machine, one, "limit")


def bounded(machine: Machine, test: Hashable, left: Value, right: Value) -> None:
    """``if norm > limit:``."""
    is_norm = degree(left) == 1 or (isinstance(left, Norm) and not left.is_one)
    if is_norm and degree(right) == 0:
        machine.bounds[test] = right.token


def is_below(machine: Machine) -> bool:
    """Whether a test holds that the norm is below the limit, where a clip multiplies: ``if norm < limit:``."""
    return machine.below > 0 or any(x.key in machine.bounds and not x.holds for x in machine.conditions)


def for_limit(machine: Machine, limit: Value | None) -> None:
    """A limit that is computed from earlier norms: these have to be those before the clip."""
    if limit is not None:
        _used(machine, limit, "history")


def held(owner: Value, name: str, values: Iterable[Value]) -> None:
    """``history.append(norm)``: an object of which nothing else is known has what it is given."""
    if name in _ADDS:
        owner.marks |= {y for x in values for y in x.marks if y.startswith(MEASURED)}


def logged(machine: Machine, values: Iterable[Value]) -> None:
    """``log({"grad_norm": norm})``."""
    values = list(values)
    named = any(isinstance(x, Constant) and isinstance(x.value, str) and _LOGGED.search(x.value) for x in values)
    for x in values:
        if isinstance(x, Table):
            for key, one in x.items.items():
                if _LOGGED.search(str(key)):
                    _used(machine, one, "log")
        elif named:
            _used(machine, x, "log")
