"""Loops and branches that a library makes: ``jax.lax.scan``, ``fori_loop`` and ``cond``, ``tf.cond``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.rounds import Write
from gradclip.source.reading import coefficients
from gradclip.source.reading.taken import after, whose
from gradclip.source.reading.values import Bound, Call, Formula, Function, Gradients, Thing, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["function"]


def function(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of a function that calls functions of the program; None if it is none of these."""
    if name in ("tensorflow.cond", "keras.ops.cond") and len(given.args) > 2:
        return _branched(machine, given.args[0], given)
    functions = [isinstance(x, (Function, Bound)) for x in given.args]
    if name.endswith(".scan") and functions[:1] == [True] and len(given.args) > 1:
        return _scanned(machine, given)
    if name.endswith(".fori_loop") and functions[2:3] == [True] and len(given.args) > 3:
        number = Thing(machine.fresh(given.node, "number"), frozenset({"varies"}))
        return _again(_looped(machine, given.args[2], (number, given.args[3]), given))
    return _either(machine, given) if name.endswith(".cond") and functions[1:3] == [True, True] else None


def _scanned(machine: Machine, given: Call) -> Value:
    """``jax.lax.scan(micro_batch, carry, batches)``: what its function does runs in several passes."""
    body, carry = given.args[0], given.args[1]
    made = _looped(machine, body, (carry, Thing(machine.fresh(given.node, "batch"))), given)
    first = made.items[0] if isinstance(made, Tuple) and made.items else made
    return Tuple((), items=(_again(first), Thing(machine.fresh(given.node, "outputs"))))


def _looped(machine: Machine, body: Value, args: tuple[Value, ...], given: Call) -> Value:
    """One pass of a loop that a library makes."""
    machine.loops.append(id(given.node))
    made = machine.apply(body, Call(given.node, args, {}))
    machine.loops.pop()
    return made


def _again(one: Value) -> Value:
    """What several passes of a loop make: all that happens to gradients happens again."""
    if isinstance(one, Tuple):
        return Tuple(one.token, one.marks, items=tuple(_again(x) for x in one.items))
    return replace(one, history=(*one.history, *one.history)) if isinstance(one, Gradients) else one


def _either(machine: Machine, given: Call) -> Value:
    """``jax.lax.cond(norm > limit, scale, keep, grads)``."""
    one, other = (machine.apply(x, Call(given.node, given.args[3:], {})) for x in given.args[1:3])
    test = given.args[0]
    is_below = isinstance(test, Formula) and test.op == "not" and test.parts[0].token in machine.bounds
    scaled = one if is_below else other if test.token in machine.bounds else None
    if isinstance(scaled, Gradients) and scaled.unless is not None:  # cond(norm < limit, scale, keep, grads)
        return after(scaled, Write(**machine.about(given.node), params=whose(scaled), factor="below"))
    chosen = coefficients.chosen(machine, one, other)
    longer = max(one, other, key=lambda x: len(x.history) if isinstance(x, Gradients) else -1)
    return longer if chosen is None else chosen


def _branched(machine: Machine, test: Value, given: Call) -> Value:
    """``tf.cond(is_last, apply, keep)``: the way decides which of its functions runs."""
    holds = machine.conditions_if(test, machine.shown(given.node.args[0]))
    before = len(machine.conditions)
    machine.conditions += holds or ()
    made = machine.apply(given.args[1 if holds is not None else 2], Call(given.node, (), {}))
    del machine.conditions[before:]
    return made
