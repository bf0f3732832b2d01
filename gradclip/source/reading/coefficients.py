"""Clips of gradient values that a program writes out: a norm, a limit divided by it, and the product with the gradients."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradclip.rounds import Backward, Clip, Event, Measure, Unscale, Write
from gradclip.source.reading import counts, limits, mends
from gradclip.source.reading.taken import added, after, changed, stepped, whose
from gradclip.source.reading.values import Call, Constant, Elements, Gradients, Library, Product, Thing, Value, number_of

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["LOCAL", "Coefficient", "Norm", "chosen", "computed", "factors", "function", "measured", "operated", "summed"]

LOCAL = "local"  #: the mark of this process's shards, and of values computed from them
_SQUARED = "squared"  #: the mark of gradients whose elements are squared
_SUMS = frozenset({"psum", "pmean", "all_reduce"})  #: over processes
_NORMS = frozenset({"global_norm", "norm", "l2_norm", "sum", "reduce_sum", "vdot", "dot", "tree_reduce", "reduce"})
#: functions whose result has all that has happened to the gradients which they get
_SAME = frozenset(
    {
        *("square", "abs", "ravel", "leaves", "tree_leaves", "flatten", "tree_flatten", "real", "float32", "asarray"),
        *("cast", "convert_to_tensor", "stop_gradient", "device_get", "device_put", "identity", "block_until_ready"),
        *("tree_unflatten", "unflatten", "pack_sequence_as", "tree_cast", "with_sharding_constraint"),
        *("freeze", "unfreeze", "unbox", "filter", "astype", "numpy", "copy", "reshape", "read_value", "value"),
    }
)
_OPERATORS: dict[str, type[ast.operator]] = {
    **dict.fromkeys(("add", "tree_add"), ast.Add),
    **dict.fromkeys(("sub", "subtract", "tree_sub"), ast.Sub),
    **dict.fromkeys(("mul", "multiply", "tree_mul", "scalar_mul", "tree_scalar_mul", "tree_scale"), ast.Mult),
    **dict.fromkeys(("div", "divide", "truediv", "true_divide", "tree_div"), ast.Div),
}
_FLATTENS = frozenset({"ravel", "reshape", "flatten"})
FLAT, MATRIX = "flat", "matrix"  #: the marks of a gradient as one vector, and of a norm of its matrix
_MATRIX = re.compile(r"^(jax\.numpy|numpy|cupy|torch)\.linalg\.(matrix_)?norm$|^keras\.ops\.norm$")
_LEAST = frozenset({"minimum", "min", "fmin", "clip", "clamp", "clip_by_value"})
_MOST = frozenset({"maximum", "max", "fmax"})
_CHOICES = frozenset({"where", "select"})


@dataclass(eq=False, slots=True)
class Norm(Value):
    """A norm of gradients, its square or a multiple of it."""

    of: frozenset[frozenset[int]] = frozenset()  #: by ``id``, the passes that made them, for each value that it may be
    is_one: bool = False  #: of one gradient
    floor: Value | None = None  #: it is this number, if that is larger
    by: Coefficient | None = None  #: it is divided by a limit
    is_square: bool = False  #: it is the sum of squares
    event: Measure | None = None
    history: tuple[Event, ...] = ()  #: what had happened to them


@dataclass(eq=False, slots=True)
class Coefficient(Value):
    """A limit divided by a norm."""

    of: Norm | None = None
    limit: Value | None = None
    written: ast.expr | None = None  #: the limit's expression
    is_bounded: bool = False  #: it is at most 1
    is_least: bool = False  #: it is at least 1


def is_of_matrix(name: str, of: Value, given: Call) -> bool:
    """Whether ``jnp.linalg.norm(g, ord=2)`` is a matrix norm, where ``g`` is a matrix."""
    order = given.get(1, "ord")
    is_flat = FLAT in of.marks or len(given.args) > 2 or not given.given.keys().isdisjoint(("axis", "dim"))
    return _MATRIX.search(name) is not None and isinstance(order, Constant) and order.value not in (None, "fro") and not is_flat


def measured(machine: Machine, name: str, of: Gradients, given: Call, qualified: str = "") -> Value | None:
    """``optax.global_norm(grads)``, ``jnp.sum(g**2)``."""
    if name in _SAME:
        more = {_SQUARED} if name == "square" else {FLAT} if name in _FLATTENS else frozenset[str]()
        return replace(of, row=(), marks=of.marks | more)
    if name not in _NORMS:
        return None
    token = machine.token("norm of", of.token, id(given.node))
    event = Measure(**machine.about(given.node), params=whose(of))
    is_square = name in ("sum", "reduce_sum") and _SQUARED in of.marks
    said = frozenset({"norm", *([MATRIX] if is_of_matrix(qualified, of, given) else [])}) | of.marks & {LOCAL}
    sides = frozenset({frozenset(id(x) for x in of.history if isinstance(x, Backward))})
    return Norm(token, said, sides, of.is_one, event=event, history=of.history, is_square=is_square)


def summed(one: Value) -> Value:
    """What a loop over all gradients makes of the norm of each."""
    return replace(one, is_one=False) if isinstance(one, Norm) else one


def function(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of a function of a norm or of a coefficient; None if it gets none."""
    args = (*given.args, *given.given.values())
    if name in _OPERATORS and len(args) == 2:
        return operated(machine, name, given)
    if name in _CHOICES and len(args) == 3 and mends.ELEMENTS in args[0].marks:
        of = next((x for x in args[1:] if isinstance(x, Gradients)), None)
        return mended(machine, of, given) if of is not None else None
    if name in _CHOICES and len(args) == 3:
        return chosen(machine, args[1], args[2])
    one = next((x for x in args if isinstance(x, Coefficient)), None)
    if one is not None and one.of is not None and name in ("sqrt", "rsqrt"):
        return replace(one, of=replace(one.of, is_square=False))
    if one is not None:
        is_least = name in _MOST and any(number_of(x) == 1 for x in args)
        return replace(one, is_bounded=True) if name in _LEAST else replace(one, is_least=True) if is_least else one
    norm = next((x for x in args if isinstance(x, Norm)), None)
    if norm is None:
        return None
    if name in _SUMS:
        return replace(norm, marks=norm.marks - {LOCAL})
    if name in ("sqrt", "rsqrt"):
        return replace(norm, is_square=False)
    others = [x for x in args if x is not norm]
    return replace(norm, floor=others[0]) if name in _MOST and others else summed(norm) if name in ("stack", "sum") else norm


def mended(machine: Machine, of: Gradients, given: Call) -> Gradients:
    """``jnp.nan_to_num(g)``, ``jnp.where(jnp.isnan(g), 0, g)``."""
    return after(of, Write(**machine.about(given.node), params=whose(of), is_mend=True))


def chosen(machine: Machine, one: Value, other: Value) -> Value | None:
    """One of two: the gradients or scaled ones, a coefficient or 1."""
    for x, y in ((one, other), (other, one)):
        if isinstance(x, Gradients) and x.unless is not None and isinstance(y, Gradients) and y.unless is None:
            return changed(machine, replace(x, unless=None), x.unless)
        if isinstance(x, Coefficient):
            return replace(x, is_bounded=True)
    return None


def operated(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of an operator that is a function: ``tf.multiply(grads, scale)``; None for any other."""
    values = (*given.args, *given.given.values())
    if name not in _OPERATORS or len(values) != 2:
        return None
    written = given.node.args if len(given.node.args) == len(values) else [ast.Constant(value=None)] * 2
    operation = ast.copy_location(ast.BinOp(written[0], _OPERATORS[name](), written[1]), given.node)
    return computed(machine, operation, *values)


def computed(machine: Machine, node: ast.BinOp, left: Value, right: Value) -> Value | None:
    """The result of an operator, if one of its sides is a norm, a coefficient or gradients."""
    divides = isinstance(node.op, (ast.Div, ast.FloorDiv))
    if isinstance(left, Gradients) and isinstance(right, Gradients) and isinstance(node.op, ast.Add):
        return added([left, right])
    if isinstance(node.op, ast.Sub) and isinstance(right, Gradients) and isinstance(left, (Thing, Elements)):
        return _descended(machine, node, left, right)
    for one, other, written in ((left, right, node.right), (right, left, node.left)):
        if isinstance(one, Gradients) and isinstance(node.op, ast.Pow):
            return replace(one, row=(), by=None, marks=one.marks | ({_SQUARED} if number_of(other) == 2 else set()))
        if isinstance(one, Gradients) and not isinstance(other, Gradients):
            count = counts.divisor(other, written, divides=divides)
            if count and any(isinstance(x, Clip) for x in one.history):
                return after(one, Write(**machine.about(node), params=whose(one), divisor=count))
            return _scaled(machine, node, one, other, divides=divides)
    if divides and isinstance(right, Norm) and (not isinstance(left, Norm) or _is_clipped(left) > _is_clipped(right)):
        equal = right.floor is not None and right.floor.token == left.token
        return Coefficient(machine.token("by", left.token, right.token), right.marks, right, left, node.left, equal)
    if divides and isinstance(left, Norm):
        by = Coefficient(right.token, left.marks, left, right, node.right, is_bounded=True)
        return replace(left, by=by, floor=None)
    known = next((x for x in (left, right) if isinstance(x, (Norm, Coefficient))), None)
    if isinstance(node.op, ast.Pow) and isinstance(known, Norm):  # total ** 0.5
        return replace(known, is_square=False)
    if isinstance(node.op, ast.Pow) and isinstance(known, Coefficient) and known.of is not None:
        return replace(known, of=replace(known.of, is_square=False))
    return known


def _is_clipped(norm: Norm) -> bool:
    """Whether it is the norm of gradients after a clip: as a limit, such a norm is of an earlier step."""
    return any(isinstance(x, Clip) for x in norm.history)


def _scaled(machine: Machine, node: ast.BinOp, of: Gradients, by: Value, *, divides: bool) -> Gradients:
    """``grads * min(1, limit / norm)``, ``grads / max(1, norm / limit)``, ``grads / loss_scale``."""
    backward = of.backward
    if mends.NOISE in by.marks:
        return after(of, Write(**machine.about(node), params=whose(of), noise=mends.noise_by(by.marks)))
    inverse = not divides and isinstance(by, Product) and any(("1/", x) in by.sides for x in of.factors)
    if backward is not None and (inverse or (divides and by.token and by.token in of.factors)):
        text = machine.shown(node.right)
        history = tuple(replace(x, scaler=text) if x is backward else x for x in of.history)
        return replace(of, history=(*history, Unscale(**machine.about(node), params=whose(of))), factors=frozenset())
    if (factor := _factor(by, divides=divides)) and backward is not None:
        return after(of, Write(**machine.about(node), params=whose(of), factor=factor))
    if isinstance(by, Norm) and divides:
        by = by.by if by.by is not None and by.floor is not None else by
    known = (Constant, Thing, Norm)
    if isinstance(of.by, known) and isinstance(by, known) and isinstance(of.by, Norm) is not isinstance(by, Norm):
        norm, limit = (of.by, by) if isinstance(of.by, Norm) else (by, of.by)  # g / norm * limit, g * limit / norm
        by = Coefficient((), frozenset(), norm, limit, node.right if limit is by else None) if isinstance(norm, Norm) else by
    if not isinstance(by, Coefficient) or by.of is None:
        keeps = isinstance(node.op, ast.Mult) if not isinstance(by, Norm) else divides
        return replace(of, by=by if keeps and isinstance(by, known) else None)
    of = replace(of, by=None)
    if machine.below:  # `if norm < limit:`
        return after(of, Write(**machine.about(node), params=whose(of), factor="below"))
    said = limits.about(machine, by.limit, by.written, zero_is_off=True, factors=of.factors)
    over = by.of.by.limit if by.of.by is not None else None  # the norm is divided by the loss scale
    said["is_scaled"] |= over is not None and over.token in of.factors
    if isinstance(by.limit, Norm) and by.limit.event is not None and _is_clipped(by.limit):
        machine.measured.append((*by.limit.history, replace(by.limit.event, use="history")))
    if MATRIX in by.of.marks and not by.of.is_one and by.of.event is not None:
        machine.measured.append((*by.of.history, replace(by.of.event, use="matrix")))
    kind = "each" if by.of.is_one else "norm"
    is_loop = by.of.is_one and isinstance(by.limit, Constant)
    said |= {"is_loop": is_loop, "is_late": of.is_update, "is_local": LOCAL in by.marks}
    event = Clip(**machine.about(node), **said, returns=True, params=whose(of), kind=kind)
    if not by.is_bounded and not machine.conditions:
        return replace(of, unless=event)
    return changed(machine, of, event)


def _factor(by: Value, *, divides: bool) -> str:
    """What gradients are multiplied with in the place of a limit divided by their norm."""
    if isinstance(by, Coefficient) and not divides and by.of is not None and by.of.is_square:
        return "square"
    if isinstance(by, Coefficient):
        return "grows" if divides else "least" if by.is_least else ""
    return "grows" if isinstance(by, Norm) and not divides and by.by is not None and by.floor is None else ""


def _descended(machine: Machine, node: ast.BinOp, params: Value, of: Gradients) -> Thing:
    """``params - rate * grads``: a step that a program writes out."""
    call = ast.copy_location(ast.Call(func=node, args=[node.left, node.right], keywords=[]), node)
    stepped(machine, Library(("by hand",), name="by hand"), of, Call(call, (params, of), {}))
    return Thing((*params.token[:4], "stepped"), params.marks)


def factors(loss: Value) -> frozenset[object]:
    """What a loss is multiplied by."""
    return loss.sides if isinstance(loss, Product) else frozenset()
