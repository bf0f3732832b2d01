"""What limits a clip: a number, or the object that holds it, and the name of its setting."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from gradclip.natives import Native
from gradclip.source.reading.program import last
from gradclip.source.reading.scales import SCALE
from gradclip.source.reading.values import Call, Constant, Origin, Product, Thing, Value, number_of

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["about", "between", "declared", "of_native", "order", "ranged"]

_TYPE = re.compile(r"norm_?type|(^|_)(ord|order|p)$", re.IGNORECASE)  #: a name of the order of a norm
_LIMIT = re.compile(r"max|clip|limit|threshold", re.IGNORECASE)  #: a name of a limit
_NONE = re.compile(r"(\bis( not)?|[!=]=) None\)?`$")  #: a test that 0 passes
_TELLS = re.compile(r"norm|val|global|each|per_", re.IGNORECASE)  #: a name that says what its limit is of


def about(
    machine: Machine,
    limit: Value | None,
    node: ast.expr | None,
    *,
    zero_is_off: bool = False,
    factors: frozenset[object] = frozenset(),
) -> dict[str, Any]:
    """What a clip says of its limit; ``node`` is the expression that gives it, ``factors`` are those of the loss."""
    setting = _setting(limit, node)
    off = not zero_is_off and bool(setting) and _is_off(machine, limit, node, setting)
    scaled = limit is not None and (SCALE in limit.marks or (isinstance(limit, Product) and bool(limit.sides & factors)))
    key = ("truth", *limit.token) if limit is not None else ()
    unset = any(x.key == key and not x.holds for x in machine.conditions)
    of_ratio = limit is not None and not machine.ranges.isdisjoint(_keys(limit))
    return {
        "limit": _identity(limit),
        "setting": setting,
        "is_off": off,
        "is_unset": unset,
        "is_scaled": scaled,
        "is_range": of_ratio,
    }


def ranged(machine: Machine, given: Call) -> None:
    """``ratio.clamp(1 - x, 1 + x)``, as in PPO: ``x`` is the range of a ratio, and no limit of a norm."""
    bounds = [x for x in (*given.node.args, *(y.value for y in given.node.keywords)) if isinstance(x, ast.BinOp)]
    low = [x.right for x in bounds if isinstance(x.op, ast.Sub) and _is_one(x.left)]
    high = [x.right if _is_one(x.left) else x.left for x in bounds if isinstance(x.op, ast.Add)]
    if low and high and ast.dump(low[0]) == ast.dump(high[0]):
        machine.ranges |= _keys(machine.value(low[0]))


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _keys(value: Value) -> frozenset[object]:
    """What identifies a setting: the name of a number, or the object."""
    return frozenset({value.name} - {""} if isinstance(value, Constant) else {value.token} - {()})


def declared(machine: Machine, given: Call) -> None:
    """``parser.add_argument("--clip", default=0.0)``."""
    names = [x.value for x in given.args if isinstance(x, Constant) and isinstance(x.value, str)]
    default = given.given.get("default")
    action = given.given.get("action")
    is_flag = isinstance(action, Constant) and action.value == "store_true"
    if names and (
        is_flag or (isinstance(default, Constant) and default.value == 0 and isinstance(default.value, (int, float)))
    ):
        machine.file.zeros.add(max(names, key=len).lstrip("-").replace("-", "_"))


def between(machine: Machine, given: Call, place: int) -> dict[str, Any]:
    """What ``clamp(-limit, limit)`` says of its limit; ``place`` is that of its lower bound."""
    names = {"min": ("min", "a_min"), "max": ("max", "a_max")}
    sides = {side: (place + i, *more) for i, (side, more) in enumerate(names.items())}
    has = [side for side, where in sides.items() if not _is_none(given.get(*where))]
    upper = sides[has[-1]] if has else sides["max"]
    bound = has[0] if len(has) == 1 and not given.is_starred else ""
    return {**about(machine, given.get(*upper), given.written(*upper)), "bound": bound}


def _is_none(value: Value | None) -> bool:
    return value is None or (isinstance(value, Constant) and value.value is None)


def of_native(machine: Machine, native: Native, given: Call, factors: frozenset[object] = frozenset()) -> dict[str, Any]:
    """The same for the call of a native."""
    if not native.dialect:
        return {}
    place = (list(native.signature.parameters).index(native.limit), native.limit)
    return about(machine, given.get(*place), given.written(*place), zero_is_off=native.at_zero != "zeros", factors=factors)


def order(native: Native | None, limit: str, given: Call) -> dict[str, Any]:
    """The order of the norm, and whether it is exchanged with the limit, which ``limit`` names: fields of a clip's event."""
    names = [] if native is None else [*native.signature.parameters]
    if "norm_type" not in names:
        return {}
    place = (names.index("norm_type"), "norm_type")
    value, name = given.get(*place), _setting(given.get(*place), given.written(*place))
    known = value.value if isinstance(value, Constant) else number_of(value)
    if not (_TYPE.search(limit) or (_LIMIT.search(name) and not _TYPE.search(name))):
        return {"order": known}
    reason = f"Its limit is `{limit or number_of(given.get(1))}`, and the order of its norm is `{name or known}`."
    return {"order": known, "exchanged": reason}


def _identity(limit: Value | None) -> Any:
    return number_of(limit) if limit is None or isinstance(limit, Constant) else limit.token


def _setting(limit: Value | None, node: ast.expr | None) -> str:
    """The name of the object that holds a limit, if it tells something; else that of the expression."""
    own = _own_name(limit)
    return own if own and _TELLS.search(own) else (_name(node) or own)


def _own_name(limit: Value | None) -> str:
    if isinstance(limit, Constant):
        return limit.name
    end = limit.token[-1] if isinstance(limit, Thing) and limit.token else None
    if isinstance(end, Origin):
        return end.name
    if isinstance(end, tuple):  # a key
        return str(end[-1])
    return end if isinstance(end, str) and end.isidentifier() else ""


def _name(node: ast.expr | None) -> str:
    """The name of a setting: of ``cfg.clip``, ``cfg["clip"]``, ``cfg.get("clip", 0.0)``, ``float(cfg.clip)``."""
    if isinstance(node, ast.UnaryOp):
        return _name(node.operand)
    if isinstance(node, ast.Subscript):
        return _text(node.slice)
    if isinstance(node, ast.Call):
        texts = (text for x in node.args if (text := _text(x)))
        return next(texts, _name(node.args[0]) if len(node.args) == 1 else "")
    return last(node) if node is not None else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_off(machine: Machine, limit: Value | None, node: ast.expr | None, setting: str) -> bool:
    """Whether the default of a setting is 0, and no test of it is around."""
    names = {setting, _own_name(limit), _name(node)} - {""}
    value = number_of(limit)
    if value is None:
        is_get = isinstance(node, ast.Call) and len(node.args) == 2 and last(node.func) == "get"
        default = node.args[1] if is_get and isinstance(node, ast.Call) else None
        has_zero = isinstance(default, ast.Constant) and default.value == 0
        if not has_zero and names.isdisjoint(machine.file.zeros):
            return False
    elif value != 0 or value is False:
        return False
    tested = [x for x in machine.conditions if any(name in x.text for name in names) or _is_of(x.key, limit)]
    return all(_NONE.search(x.text) for x in tested) and (not tested or _is_as_given(machine, node))


def _is_as_given(machine: Machine, node: ast.expr | None) -> bool:
    """Whether an expression is a setting of an object that the source leaves as it was: ``args.clip``."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id != "self"):
        return False
    stored = (x.attr for x in machine.scope.file.nodes if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store))
    return node.attr not in stored


def _is_of(key: object, limit: Value | None) -> bool:
    """Whether a test is about an object."""
    return limit is not None and isinstance(key, tuple) and bool(limit.token) and key[1 : 1 + len(limit.token)] == limit.token
