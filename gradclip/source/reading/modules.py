"""What a program does to the modules of a model: it freezes some, puts others in their place, and clips parts of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gradclip.rounds import NO_PARAMS, Params
from gradclip.source.reading.values import Constant, Elements, Instance, Made, Thing, Token, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["free", "freeze", "frozen_by", "is_free_of", "is_frozen", "left", "only_free", "parts", "passed", "replace_part"]

#: layers that have parameters
_LAYERS = re.compile(
    r"(^|\.)nn\.(\w+\.)*(\w*Linear|\w*Conv\w*|Embedding\w*|\w+Norm\w*|LSTM|GRU|RNN|\w*Cell|Transformer\w*|MultiheadAttention)$"
)
_PLAIN = re.compile(r"\.nn\.(\w*(ReLU|Dropout|Pool|Softmax)\w*|GELU|Tanh|Sigmoid|SiLU|Flatten|Identity|\w+Loss)")
_FREEZES = re.compile(r"requires_grad|freeze|toggle", re.IGNORECASE)
_LISTS = re.compile(r"(^|\.)nn\.(\w+\.)*(Sequential|ModuleList|ModuleDict)$")


def _has_parameters(one: Value) -> bool:
    """Whether an object certainly is a module with parameters."""
    if isinstance(one, Instance):
        return any(_has_parameters(x) for x in one.fields.values())
    if isinstance(one, Tuple):
        return any(_has_parameters(x) for x in one.items)
    return isinstance(one, Made) and bool(_LAYERS.search(one.name) or (_LISTS.search(one.name) and one.args))


# ---- modules that take the place of others -------------------------------------------------------------------------------


def replace_part(machine: Machine, owner: Value, name: str, value: Value) -> None:
    """``model.head = nn.Linear(64, 4)``, outside of the model's own code."""
    if owner.token and machine.scope.owner is not owner and _has_parameters(value):
        machine.parts.setdefault(owner.token, {})[name] = value
        if isinstance(owner, Instance):
            owner.late |= {name}


def parts(machine: Machine, owner: Value, of: Params, *, is_new: bool = False) -> Params:
    """The parameters of a module, with those of the modules that have been put into it; ``is_new``: it has no name."""
    listed = owner.args if isinstance(owner, Made) and _LISTS.search(owner.name) else ()
    inside = [y for x in listed for y in (x.items if isinstance(x, Tuple) else (x,))]
    if is_new and inside and all(isinstance(x, (Made, Instance)) and not x.is_open for x in inside):
        return Params.of(*(x.token for x in inside))
    more = [x.token for x in machine.parts.get(owner.token, {}).values() if x.token]
    return Params.joined([of, Params.of(*more)]) if more else of


def left(machine: Machine, of: Params) -> Params:
    """What has been put into the modules of an optimizer after it was made."""
    late = (x.token for owner, parts in machine.parts.items() if owner in of.known for x in parts.values())
    return Params.of(*late).without(of) if of.is_certain else NO_PARAMS


# ---- frozen parameters ---------------------------------------------------------------------------------------------------


def freeze(machine: Machine, of: Params, value: Value, *, is_certain: bool = True) -> None:
    """``p.requires_grad = False``, ``model.body.requires_grad_(False)``."""
    known = not value.value if isinstance(value, Constant) and is_certain else None
    for token in of.known:
        machine.frozen[token] = known


def passed(machine: Machine, target: Value, values: Iterable[Value]) -> None:
    """Unknown code gets a module, which may free parameters, or add some: ``model.add_adapter(config)``."""
    tokens = [x.token for x in values] + [target.token[:-1]]
    for token in machine.frozen:
        if any(x and (x == token or _is_part(token, x)) for x in tokens):
            machine.frozen[token] = None


def frozen_by(machine: Machine, name: str, values: Iterable[Value]) -> None:
    """``set_requires_grad(critic, False)``, a function that cannot be read."""
    if not _FREEZES.search(name):
        return
    values = list(values)
    flag = next((x for x in values if isinstance(x, Constant)), Constant((), value=False))
    for x in values:
        if isinstance(x, (Thing, Made, Instance)):
            freeze(machine, Params.of(x.token), flag)
        elif isinstance(x, Elements):
            freeze(machine, x.params, flag)


def is_frozen(machine: Machine, token: object) -> bool:
    """Whether all parameters of a module are frozen."""
    return _state(machine, token) is True


def is_free_of(machine: Machine, one: Elements) -> bool:
    """Whether a test within the loop over parameters decides which of them it is about."""
    depth = next((i for i, x in enumerate(machine.loops) if x == one.loop), -1)
    return depth >= 0 and any(x > depth for x in machine.branches)


def free(machine: Machine, of: Params, *, listed: bool = False) -> Params:
    """Those parameters that are not frozen; ``listed``: as a list of them is made."""
    if not machine.frozen or (not listed and not of.is_all):
        return _expanded(machine, of)
    found: set[object] = set()
    is_all = of.is_all
    for token in _expanded(machine, of).known:
        state = _state(machine, token)
        within = [x for x, frozen in machine.frozen.items() if _is_part(x, token) and frozen is False]
        found |= {token} if state is not True else set(within)
        is_all = is_all and not (listed and (state is None or (state is False and _frozen_part(machine, token))))
    if not found:
        return Params(of.known, False, of.unseen) if listed else of
    return Params(frozenset(found), is_all, of.unseen)


def _frozen_part(machine: Machine, token: object) -> bool:
    return any(_is_part(x, token) and frozen is not False for x, frozen in machine.frozen.items())


def _is_part(one: object, of: object) -> bool:
    return isinstance(one, tuple) and isinstance(of, tuple) and len(one) > len(of) and one[: len(of)] == of


def _state(machine: Machine, token: object) -> bool | None:
    """Whether parameters are frozen; None if only some of them may be."""
    around = [token[:i] for i in range(1, len(token) + 1)] if isinstance(token, tuple) else [token]
    known = [(i, x) for i, x in enumerate(machine.frozen) if x in around]
    return machine.frozen[known[-1][1]] if known else False


def _expanded(machine: Machine, of: Params) -> Params:
    """The modules of which a model of the project consists, in its place, if all are known."""
    found: set[object] = set()
    for token in of.known:
        found |= set(() if token in machine.chosen else _fields(machine, token)) or {token}
    return Params(frozenset(found), of.is_all, of.unseen)


def _fields(machine: Machine, token: object) -> list[Token]:
    made = machine.objects.get(token)
    if (
        made is None
        or made.is_open
        or any(_is_recurrent(x) for x in made.fields.values())
        or not machine.is_a(made.of, ("Module",))
    ):
        return []
    modules = {name: x for name, x in made.fields.items() if isinstance(x, (Made, Instance))}
    plain = all(isinstance(x, Constant) for name, x in made.fields.items() if name not in modules)
    own = {name: x for name, x in modules.items() if _has_parameters(x)}
    tokens = {name: (*made.token, name) for name in own}  # of one in whose place another has come, too
    is_known = plain and len(own) > 1 and all(x.token == tokens[name] or name in made.late for name, x in own.items())
    others = (x for name, x in modules.items() if name not in own)
    return [*tokens.values()] if is_known and all(_is_plain(x) for x in others) else []


def _is_recurrent(one: Value) -> bool:
    """Whether a program may mean to clip this part only."""
    return isinstance(one, Made) and re.search(r"(LSTM|GRU|RNN)(Cell)?$", one.name) is not None


def _is_plain(one: Value) -> bool:
    """Whether a module has no parameters: an activation, a dropout."""
    return isinstance(one, Made) and _PLAIN.search(one.name) is not None


def only_free(test: ast.expr) -> bool:
    """``if p.requires_grad``."""
    return isinstance(test, ast.Attribute) and test.attr == "requires_grad"
