"""Gradients of parameters, one by one, and what a program that clips by hand does to them: ``p.grad.mul_(limit / norm)``."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradclip.rounds import UNKNOWN, Clip, Params, Unscale, Write, Zero
from gradclip.source.reading import coefficients, counts, degrees, limits, measures, mends, scales
from gradclip.source.reading.values import (
    Call,
    Constant,
    Elements,
    Product,
    Thing,
    Value,
    marks,
    number_of,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["computed", "named", "on_elements", "read", "scaled", "shards", "written"]

_WRITES = frozenset({"mul_", "div_", "add_", "sub_", "copy_", "set_value", "normal_", "masked_fill_", "nan_to_num_"})
_CLAMPS = frozenset({"clamp_", "clip_"})
_RETURNS = frozenset({"mul", "div", "clamp", "clip"})  #: the same, of a new tensor
_NORMS = frozenset({"norm", "pow", "square", "max"})  #: a norm of a gradient, or its square
_FLATTENS = frozenset({"flatten", "view", "ravel", "reshape"})
_SAME_NORM = _FLATTENS | {"numpy", "cpu", "detach", "detach_", "float", "to", "abs"}


def on_elements(machine: Machine, owner: Elements, name: str, given: Call) -> Value | None:
    """A method of ``p.grad``."""
    if "gradient" not in owner.marks:
        if name in ("clone", "detach"):
            return replace(owner, marks=owner.marks | {"copy"})
        if name == "requires_grad_" and "copy" in owner.marks:  # a parameter of its own
            return machine.thing(given.node, "parameter", owner.token)
        return measures.of_weights(owner, name, given)
    event = machine.about(given.node)
    if name in ("clone", "copy"):
        return replace(owner, marks=owner.marks | {"copy"})
    if name in _WRITES and "copy" in owner.marks:
        if any(x.startswith(degrees.MEASURED) for x in marks(given.args)):  # g.mul_(limit / norm)
            machine.emit(Clip(**event, params=owner.params, is_copy=True))
        return owner
    if name in ("clamp", "clip") and given.node is not machine.bare:
        return clamped(machine, owner, given, 0)
    if name in _RETURNS and given.node is machine.bare:  # p.grad.clamp(-1, 1)
        machine.emit(Clip(**event, params=owner.params, kind="value", is_dropped=True))
    elif name == "zero_":
        machine.emit(Zero(**event, params=owner.params))
    elif name in _CLAMPS:
        event |= {**limits.between(machine, given, 0), "is_copy": "copy" in owner.marks}
        machine.emit(Clip(**event, params=owner.params, kind="value"))
    elif name in ("mul_", "div_") and given.args:
        scaled(machine, owner, given.node, (given.args[0], given.written(0)), divides=name == "div_")
    elif name in _WRITES:
        factor = next((x.factor for x in given.args if isinstance(x, Scaled)), "")
        by = marks(given.args) | ({mends.MENDED} if name == "nan_to_num_" else frozenset())
        event |= {"params": owner.params, "factor": factor, **mends.of_write(by)}
        machine.emit(Write(**event, is_local=measures.LOCAL in by))
    elif name == "nan_to_num":
        return replace(owner, marks=owner.marks | {mends.MENDED})
    elif name in ("to_local", "full_tensor"):
        return shards(owner, is_local=name == "to_local")
    elif name in _SAME_NORM:
        return replace(owner, marks=owner.marks | {coefficients.FLAT}) if name in _FLATTENS else owner
    elif name in _NORMS:
        of = measures.measure(machine, owner, given.node, measures.power_of(name, given))
        of.marks |= {degrees.PLAIN} if name == "norm" and not given.args and not given.given else set()
        return of
    else:
        return None
    return owner


def clamped(machine: Machine, owner: Elements, given: Call, place: int) -> Value:
    """``p.grad.clamp(-1, 1)``, ``torch.clamp(p.grad, -1, 1)``: a new tensor; ``place`` is that of the lower bound."""
    said = {**limits.between(machine, given, place), "params": owner.params, "kind": "value", "is_dropped": True}
    token = machine.token("clamped", owner.token, id(given.node))
    return Scaled(token, owner.marks, frozenset({owner.token}), Clip(**machine.about(given.node), **said))


def scaled(machine: Machine, owner: Elements, node: ast.expr, given: tuple[Value, ast.expr | None], *, divides: bool) -> None:
    """``p.grad.mul_(limit / norm)``, ``p.grad /= norm / limit``: in place; ``given`` is a value, and how it is written."""
    about, by = {**machine.about(node), "params": owner.params}, given[0]
    if divides and scales.divided(machine, *given):
        machine.emit(Unscale(**about))
        return
    if _is_coefficient(by, divides=divides) and "copy" not in owner.marks:
        is_below = measures.is_below(machine)
        machine.emit(Write(**about, factor="below") if is_below else _by_hand(machine, owner, by, node))
        return
    about |= {"factor": _factor(machine, by, divides=divides), **mends.of_write(by.marks)}
    about["divisor"] = counts.divisor(*given, divides=divides)
    machine.emit(Write(**about, is_local=measures.LOCAL in by.marks))


def _is_coefficient(by: Value, *, divides: bool) -> bool:
    """Whether a number is a limit divided by a norm, as a clip multiplies gradients with it."""
    power = degrees.degree(by)
    is_measured = any(x.startswith(degrees.MEASURED) for x in by.marks)
    return is_measured and power == (1 if divides else -1) and by.marks.isdisjoint(("least", degrees.SUMMED, degrees.WEIGHTS))


def _by_hand(machine: Machine, owner: Elements, by: Value, node: ast.expr) -> Clip:
    """A clip that a program writes out: outside of the loop over its parameters, whatever the norm is."""
    loops = [*machine.loops]
    while loops and loops[-1] == owner.loop:
        loops.pop()
    places = [int(x[len(degrees.MEASURED) :]) for x in by.marks if x.startswith(degrees.MEASURED)]
    measured = [machine.events[x] for x in places if x < len(machine.events)]
    is_each = any(x.loops == tuple(machine.loops) and len(loops) < len(machine.loops) for x in measured)
    about = machine.about(node) | {"loops": tuple(loops)}
    about["tests"] = frozenset(x for x in about["tests"] if x.key not in machine.of_norms)
    return Clip(**about, params=owner.params, kind="each" if is_each else "norm", is_local=measures.LOCAL in by.marks)


def _factor(machine: Machine, by: Value, *, divides: bool) -> str:
    """What gradients are multiplied with in the place of a limit divided by their norm."""
    of = degrees.degree(by)
    power = -of if divides and of is not None else of
    if "least" in by.marks and not divides:
        return "least"
    if not any(x.startswith(degrees.MEASURED) for x in by.marks):
        is_limit = not divides and by.token and by.token in machine.above
        return "limit" if is_limit else "weights" if machine.above and degrees.WEIGHTS in by.marks and power == -1 else ""
    if power == -1 and degrees.SUMMED in by.marks:
        return "sum"
    return "" if power is None else "grows" if power > 0 else degrees.WRONG.get(power, "")


def named(machine: Machine, value: Value) -> None:
    """``g = g * coefficient``: a clip that is lost, unless the program reads the name."""
    if isinstance(value, Scaled) and value.event is not None:
        machine.lost.setdefault(value.token, (len(machine.events), value.event))


def read(machine: Machine, value: Value) -> None:
    """The program reads what has a name."""
    machine.lost.pop(value.token, None)


def shards(owner: Elements, *, is_local: bool) -> Elements:
    """The shards of gradients that this process holds, or the whole gradients."""
    said = owner.marks | {measures.LOCAL} if is_local else owner.marks - {measures.LOCAL}
    return Elements(owner.token, said, params=owner.params, is_one=owner.is_one, loop=owner.loop, of=owner.of)


def written(machine: Machine, owner: Value, made: Value, target: ast.Attribute) -> None:
    """``p.grad = made``."""
    params = owner.params if isinstance(owner, Elements) else UNKNOWN
    about = machine.about(target)
    if isinstance(made, Constant) and made.value is None:
        if any(x.kind == "finite" for x in machine.conditions):
            return  # a guard: the program makes no step with gradients that are not finite
        machine.emit(Zero(**about, params=params))
    elif scales.UNSCALED in made.marks:
        machine.emit(Unscale(**about, params=params))
    elif isinstance(made, Scaled) and made.event is not None and made.event.bound:
        machine.emit(replace(made.event, is_dropped=False))
    else:
        factor = made.factor if isinstance(made, Scaled) else ""
        said = {"is_local": measures.LOCAL in made.marks, "factor": factor, **mends.of_write(made.marks)}
        machine.emit(Write(**about, params=params, divisor=counts.of_marks(made.marks), **said))


def given(machine: Machine, grads: Value | None) -> Params | None:
    """Whose gradients an optimizer gets as values, ``optimizer.apply(grads, variables)``; None if it gets no gradients."""
    if isinstance(grads, Scaled) and grads.event is not None:
        read(machine, grads)
        machine.emit(replace(grads.event, is_dropped=False, returns=True))
        return grads.event.params
    return grads.params if isinstance(grads, Elements) and "gradient" in grads.marks else None


@dataclass(eq=False, slots=True)
class Scaled(Product):
    """A parameter's gradient times a number that a norm is in, or within bounds: a new tensor."""

    event: Clip | None = None
    factor: str = ""


def computed(machine: Machine, node: ast.BinOp, left: Value, right: Value) -> Value | None:
    """The square of a parameter's gradient, or the gradient times a coefficient."""
    power = number_of(right) if isinstance(node.op, ast.Pow) else 2
    is_square = isinstance(node.op, ast.Pow) or (isinstance(node.op, ast.Mult) and left.token == right.token)
    if is_square and isinstance(left, Elements) and "gradient" in left.marks:
        return measures.measure(machine, left, node, power)
    is_gradient = isinstance(left, Elements) and "gradient" in left.marks
    if is_gradient and isinstance(node.op, ast.Div) and scales.divided(machine, right, node.right):
        return replace(left, marks=left.marks | {scales.UNSCALED})
    divides = isinstance(node.op, ast.Div)
    for one, by, written in ((left, right, node.right), (right, left, node.left)):
        if not isinstance(one, Elements) or not one.is_one or "gradient" not in one.marks or isinstance(by, Elements):
            continue
        if isinstance(node.op, (ast.Mult, ast.Div)) and (count := counts.divisor(by, written, divides=divides)):
            token = machine.token(type(node.op).__name__, left.token, right.token)
            return Thing(token, degrees.combined(node.op, left, right) | {f"{counts.DIVIDED}{count}"})
        if isinstance(node.op, ast.Mult) and any(x.startswith(degrees.MEASURED) for x in by.marks):
            event = Clip(**machine.about(node), params=one.params, is_dropped=True)
            token = machine.token("scaled", one.token, by.token, id(node))
            said, factor = degrees.said(one.marks | by.marks, None), _factor(machine, by, divides=False)
            return Scaled(token, said, frozenset({one.token, by.token}), event, factor)
    return None
