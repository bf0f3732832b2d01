"""gradclip's own functions that take a rule: what they do to gradients."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from gradclip.natives import DIALECTS, Kind, Native
from gradclip.natives.own import BY_RULE, by_rule, dialect_of, parameters_of
from gradclip.source.reading import gradients, limits, measures
from gradclip.source.reading.taken import changed, clip_by
from gradclip.source.reading.values import Call, Elements, Gradients, Made, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["function", "native_of", "taken"]


def native_of(name: str, given: Call) -> Native | None:
    """The record of a call of gradclip that takes a rule; None for any other call."""
    if name not in BY_RULE:
        return None
    rule = _rule(name, given)
    return by_rule(name, dialect_of(rule.name) if isinstance(rule, Made) else "")


def taken(name: str, given: Call) -> tuple[Value | None, ast.expr | None]:
    """The limit that the rule of a call has, and the expression that gives it."""
    rule = _rule(name, given)
    dialect = dialect_of(rule.name) if isinstance(rule, Made) else ""
    if not dialect or not isinstance(rule, Made) or not isinstance(rule.node, ast.Call):
        return rule, None
    native, inner = by_rule(name, dialect), Call(rule.node, rule.args, rule.given)
    place = [*inspect.signature(DIALECTS[dialect]).parameters].index(native.limit) if native is not None else 0
    names = (native.limit,) if native is not None else ()
    return inner.get(place, *names), inner.written(place, *names)


def _rule(name: str, given: Call) -> Value | None:
    return given.get(parameters_of(name).index("rule"), "rule")


def function(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of a call that clips, or measures, by a rule; None for one that makes an object, and for no gradients."""
    native, of = native_of(name, given), given.get(0, "grads")
    if native is None:
        return None
    limit, written = taken(name, given)
    if native.kind is Kind.IN_PLACE:
        return gradients.clip(machine, of, limit, given, native, written, is_by_rule=True)
    if native.kind is Kind.RETURNED and isinstance(of, Gradients):
        said = limits.about(machine, limit, written, zero_is_off=not native.dialect or native.at_zero != "zeros")
        return changed(machine, of, clip_by(native, of, **machine.about(given.node), **said))
    if native.kind is Kind.MEASURE and isinstance(of, Elements):
        return measures.measure(machine, of, given.node)
    return None
