"""Optax's transformations: what a chain does to gradients, where it updates them and where it is made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.natives import BY_NAME, Kind, Native
from gradclip.natives.optax import may_clip_updates
from gradclip.natives.own import BY_RULE, is_clipped
from gradclip.rounds import UNKNOWN, Backward, Clip, Params, Step, Write
from gradclip.source.reading import limits, own, slots
from gradclip.source.reading.taken import EVERY, after, clip_by, gathered, stepped, whose
from gradclip.source.reading.values import Bound, Call, Function, Gradients, Made, Table, Thing, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["is_clip", "made_of", "updated"]

#: optax's functions that make updates of gradients
_OPTIMIZER = re.compile(
    r"optax\.(\w+\.)?(scale_by_\w+|adam\w*|sgd|noisy_sgd|rmsprop|adagrad|adadelta|adafactor|lion|lamb|lars|novograd|nadam\w*|"
    r"radam|yogi|sm3|fromage|adabelief|amsgrad|rprop|lbfgs|sign_sgd|optimistic_\w+|adan|muon|prodigy|sophia)$"
)
_CHAINS = frozenset({"chain", "named_chain"})
_AROUND = frozenset({"apply_if_finite", "flatten", "with_extra_args_support", "maybe_transform", "conditionally_transform"})
#: transformations that call a function, and what it gets before the state and the parameters
_OWN = frozenset({"stateless", "stateless_with_tree_map", "GradientTransformation", "GradientTransformationExtraArgs"})
_NO_PARAMS = "It needs the parameters, and `update` gets none: it raises an error. Write: update(grads, state, params)."
_OF_OTHERS = _CHAINS | {"multi_transform", "partition", "MultiSteps"}


def is_clip(link: Value) -> Native | None:
    """The native of a transformation of a chain."""
    if not isinstance(link, Made):
        return None
    if link.name in BY_RULE:
        return own.native_of(link.name, _made_by(link)) if link.node is not None else None
    native = BY_NAME.get(link.name)
    return native if native is not None and native.kind is Kind.OBJECT and native.framework == "optax" else None


def _clip(machine: Machine, native: Native, link: Made, of: Gradients, given: Call) -> Clip:
    """The clip that a link of a chain is; its limit may be in a rule of gradclip's."""
    if link.name in BY_RULE:
        limit, written = own.taken(link.name, _made_by(link))
    else:
        limit = link.args[0] if link.args else None
        written = link.node.args[0] if link.node is not None and link.node.args else None
    said = limits.about(machine, limit, written, zero_is_off=True) | {
        "where": link.where,
        "text": link.text,
    }
    about = machine.about(given.node)
    return clip_by(native, of, **{**about, **said, "tests": about["tests"] | link.tests})


def _is_clipped(link: Value) -> bool:
    """Whether ``gradclip.clipped`` made it."""
    return isinstance(link, Made) and is_clipped(link.name)


def _made_by(link: Made) -> Call:
    assert link.node is not None
    return Call(link.node, link.args, link.given)


def _links(made: Value) -> Iterator[Value]:
    """The transformations of a chain, in order."""
    if isinstance(made, Made) and made.name.rpartition(".")[2] in _AROUND and made.args:
        yield from _links(made.args[0])
    elif isinstance(made, Made) and made.name.rpartition(".")[2] in _CHAINS:
        for link in (*made.args, *(x for _, x in sorted(made.given.items()))):
            part = link.items[-1] if isinstance(link, Tuple) and link.items else link
            yield from _links(part)
    else:
        yield made
        if isinstance(made, Made) and _is_clipped(made) and made.args:
            yield from _links(made.args[0])


def made_of(machine: Machine, made: Made, given: Call) -> None:
    """What a chain does to the gradients of any program, which may take it where no reader can follow."""
    if made.name.rpartition(".")[2] in _OF_OTHERS:
        backward = Backward(text="The backward pass", params=Params(unseen=frozenset({made.token})))
        known = len(machine.changes)
        updated(machine, made, Gradients((*made.token, "grads"), history=(backward,)), given)
        del machine.changes[known:]


def updated(machine: Machine, owner: Value, of: Gradients, given: Call) -> Value:
    """``transformation.update(grads, state, params)``."""
    result = of
    for link in _links(owner):
        native = is_clip(link)
        if native is not None and may_clip_updates(native.dialect) and result.is_update:
            continue  # Adafactor's limit of updates
        if _is_clipped(link) and sum(isinstance(x, Clip) for x in result.history) == 1:  # the program clips before it
            step = Step(**machine.about(given.node), params=whose(result), optimizer=link.token, clip=slots.own_clip(link))
            machine.taken.append((*result.history, step))
            continue
        if native is not None and isinstance(link, Made):
            event = _clip(machine, native, link, result, given)
            if native.last == "adaptive_grad_clip" and _lacks_params(given):
                machine.taken.append((replace(event, unread=_NO_PARAMS),))
                return Tuple((), items=(after(result, event), Thing((*of.token, "state"))))
            result = after(result, event)
            if event.is_late:
                machine.taken.append(result.history)
            else:
                machine.changes.append(result)
        elif isinstance(link, Made) and link.name.endswith("zero_nans"):
            about = {**machine.about(given.node), "text": link.text}
            result = after(result, Write(**about, params=whose(result), is_mend=True))
        elif isinstance(link, Made) and link.name.endswith(("multi_transform", "partition")) and link.args:
            result = _parted(machine, link, result, given)
        elif isinstance(link, Made) and link.name.endswith("masked") and _is_zero(link.args[:1]):
            result = _masked(machine, link, result, given)
        elif isinstance(link, Made) and link.name.endswith("masked") and link.args:
            _partly_clipped(machine, link, result, given)
        elif isinstance(link, Made) and link.name.endswith("MultiSteps") and link.args:
            result = _accumulated(machine, link.args[0], result, given)
        elif isinstance(link, Made) and link.name.rpartition(".")[2] in _OWN and (link.args or link.given):
            result = _own(machine, link, result, given)
        elif (isinstance(link, Made) and _OPTIMIZER.match(link.name)) or not isinstance(link, Made):
            result = stepped(machine, link, result, given)
    return Tuple((), items=(result, Thing((*of.token, "state"))))


def _lacks_params(given: Call) -> bool:
    """Whether ``update`` gets gradients and a state only."""
    is_update = isinstance(given.node.func, ast.Attribute) and given.node.func.attr == "update"
    return is_update and not given.is_starred and len(given.args) + len(given.given) == 2 and "params" not in given.given


def _is_zero(links: Iterable[Value]) -> bool:
    """Whether a transformation makes its updates zero: what it has is frozen."""
    return any(isinstance(x, Made) and x.name.endswith("set_to_zero") for x in links)


def _masked(machine: Machine, link: Made, of: Gradients, given: Call) -> Gradients:
    """``masked(set_to_zero(), mask)``: after a clip, what is frozen has counted in its norm."""
    clips = [x for x in of.history if isinstance(x, Clip)]
    if not clips:
        return of
    free, frozen = (*of.token, "free"), (*of.token, "frozen")
    whole = tuple(replace(x, params=Params.of(free, frozen)) for x in of.history if not isinstance(x, Step))
    step = Step(**machine.about(given.node), params=Params.of(free), optimizer=link.token)
    machine.taken.append((*whole, step))
    return of


def _partly_clipped(machine: Machine, link: Made, of: Gradients, given: Call) -> None:
    """``masked(chain(clip, add_decayed_weights), mask)``: the mask of the decay leaves some gradients out of the clip, too."""
    inner = [*_links(link.args[0])]
    clips = [(x, native) for x in inner if isinstance(x, Made) and (native := is_clip(x)) is not None]
    if len(inner) == len(clips) or not all(isinstance(x, Made) and not _OPTIMIZER.match(x.name) for x in inner):
        return
    inside, outside = Params.of((*of.token, "masked")), Params.of(("what the mask leaves out",))
    whole = Params.joined([inside, outside])
    history = tuple(replace(x, params=whole) for x in of.history if not isinstance(x, Step))
    clipped = (replace(_clip(machine, native, x, of, given), params=inside) for x, native in clips)
    step = Step(**machine.about(given.node), params=whole, optimizer=link.token)
    machine.taken.append((*history, *clipped, step))


def _own(machine: Machine, link: Made, of: Gradients, given: Call) -> Gradients:
    """A transformation of the program: ``GradientTransformation(init, update)``, ``stateless(function)``."""
    function = Call(given.node, link.args, link.given).get(1 if "Gradient" in link.name else 0, "update", "f")
    if not isinstance(function, (Function, Bound)):
        return of
    one = replace(of, is_one=True) if "tree_map" in link.name else of
    made = machine.apply(function, Call(given.node, (one, Thing((*of.token, "state")), Thing((*of.token, "params"))), {}))
    first = made.items[0] if isinstance(made, Tuple) and made.items else made
    found = gathered(first)
    return replace(found, is_one=of.is_one) if found is not None else of


def _accumulated(machine: Machine, inner: Value, of: Gradients, given: Call) -> Gradients:
    """``MultiSteps(inner)``: the inner transformation gets the mean of several passes."""
    outer = [x for x in of.history if isinstance(x, Clip)]
    again = Gradients(of.token, history=(*of.history, *of.history) if outer else of.history)
    before = len(machine.conditions)
    machine.conditions.append(EVERY)
    made = updated(machine, inner, again, given)
    del machine.conditions[before:]
    return made.items[0] if isinstance(made, Tuple) and isinstance(made.items[0], Gradients) else of


def _parted(machine: Machine, link: Made, of: Gradients, given: Call) -> Gradients:
    """``multi_transform({"body": adam, "head": set_to_zero()}, labels)``: a transformation for each part."""
    parts = link.args[0].items if isinstance(link.args[0], Table) else {}
    tokens = {name: (*of.token, str(name)) for name in parts}
    whole = Params.of(*tokens.values())
    history = tuple(replace(x, params=whole) for x in of.history)
    frozen = {name for name, part in parts.items() if _is_zero([part])}
    for name, part in parts.items():
        for one in _links(part):
            native = is_clip(one)
            if native is not None and isinstance(one, Made):
                event = _clip(machine, native, one, of, given)
                history = (*history, replace(event, params=Params.of(tokens[name])))
    mine = Params.of(*(token for name, token in tokens.items() if name not in frozen)) if parts else UNKNOWN
    step = Step(**machine.about(given.node), params=mine, optimizer=link.token)
    machine.taken.append((*history, step))
    return after(of, step, is_update=True)
