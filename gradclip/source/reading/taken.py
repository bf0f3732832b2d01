"""Gradients that are values: what a clip, a reduction or a step adds to their history, and the clips that optimizers have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradclip.core.rule import Scope
from gradclip.natives import KEYWORDS, Native
from gradclip.natives.own import native_of
from gradclip.rounds import UNKNOWN, Backward, Clip, Condition, Event, Params, Reduce, Step
from gradclip.source.reading import limits, slots
from gradclip.source.reading.values import Call, Constant, Elements, Gradients, Library, Made, Table, Thing, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = [
    *("EVERY", "added", "after", "assigned", "changed", "clip_by", "element", "gathered", "held", "kept"),
    *("made_with", "paired", "stepped", "whose", "zipped_pair"),
]

EVERY = Condition("MultiSteps", kind="every", text="`MultiSteps` has seen all passes")
_FITS = frozenset({"fit", "fit_generator", "train_on_batch"})
_KINDS = {Scope.VALUE: "value", Scope.GLOBAL: "norm", Scope.EXAMPLE: "example"}


def after(one: Gradients, *events: Event, is_update: bool = False) -> Gradients:
    """Gradients after more has happened to them."""
    return replace(one, history=(*one.history, *events), is_update=one.is_update or is_update, row=())


def changed(machine: Machine, of: Gradients, clip: Clip) -> Gradients:
    """What a clip makes of gradients, after the steps so far: the program may take it, or drop it."""
    made = replace(after(of, clip), after=len(machine.taken))
    machine.changes.append(made)
    return made


def added(parts: Sequence[Gradients]) -> Gradients:
    """The sum of gradients: all that has happened to its parts, in the order in which they were made."""
    first, *more = dict.fromkeys(parts)
    history = first.history
    for one in more:
        known = {id(x) for x in history}
        history = (*history, *(x for x in one.history if id(x) not in known))
    return replace(first, history=history, row=())


def gathered(one: Value | None) -> Gradients | None:
    """Gradients as one value: a list or a dictionary of nothing else, also of pairs with their variables."""
    if isinstance(one, Gradients):
        return one
    if type(one) is Thing or not isinstance(one, (Tuple, Table)) or not one.items:
        return None
    items = one.items if isinstance(one, Tuple) else tuple(one.items.values())
    parts = [gathered(x.items[0] if isinstance(x, Tuple) and x.items else x) for x in items]
    known = [x for x in parts if x is not None]
    return replace(added(known), is_one=False) if known and len(known) == len(parts) else None


def element(one: Value) -> Value:
    """What a loop takes of a list in one pass."""
    if isinstance(one, Gradients):
        return replace(one, is_one=True)
    if isinstance(one, Elements):
        return replace(one, token=(*one.token, "one"), is_one=True)
    return Thing((*one.token, "each"), one.marks)


def held(machine: Machine, owner: Value, of: Gradients | None) -> None:
    """An object of the program, or one of its elements, holds gradients from here on: ``sums[i] = grads``."""
    token = owner.token
    last = token[-1] if token else ""
    if last == "each" or (isinstance(last, tuple) and last[0] == "[]" and not isinstance(last[1], str)):
        token = token[:-1]
    if of is not None and token:
        machine.sums[token] = replace(of, token=token, is_one=False, row=(), pairs="")
    else:
        machine.sums.pop(token, None)


def kept(machine: Machine, owner: Value) -> Value:
    """The gradients that an object of the program holds, or the object."""
    return machine.sums.get(owner.token, owner) if machine.sums and not isinstance(owner, Gradients) else owner


def assigned(machine: Machine, owner: Value, name: str, given: Call) -> Value | None:
    """``total.assign_add(grads)``, ``variable.assign_sub(rate * grads)``, ``total.assign(zeros)``."""
    of = gathered(given.get(0))
    if name == "assign_sub" and of is not None:
        stepped(machine, Library(("by hand",), name="by hand"), of, given)
    elif name == "assign_add" and of is not None:
        held(machine, owner, added([owner, of]) if isinstance(owner, Gradients) else of)
    elif name == "assign":
        machine.changes = [x for x in machine.changes if not (machine.is_callback and of is not None and x.token == of.token)]
        held(machine, owner, of)
    else:
        return None
    return owner


def whose(of: Gradients) -> Params:
    """The parameters of gradients, or what identifies gradients whose origin is not known."""
    made = dict.fromkeys(x.params for x in of.history if isinstance(x, Backward))
    return Params.joined(made) if made else Params(unseen=frozenset({of.token}))


def clip_by(native: Native, of: Gradients, **about: Any) -> Clip:
    """What a native does to gradients."""
    return Clip(**about, returns=True, params=whose(of), kind=_kind(native), is_late=of.is_update)


def _kind(native: Native) -> str:
    return _KINDS.get(native.rule().scope, "each") if native.dialect else "norm"


def made_with(machine: Machine, made: Made, given: Call) -> None:
    """An optimizer that clips, or an object that clips for one: what its limit is called, whatever uses it."""
    about = {**machine.about(given.node), "params": UNKNOWN}
    step = Step(**{**about, "text": "The optimizer's step"}, optimizer=made.token)
    own = native_of(made.name)
    objects = [own] if own is not None and slots.is_object(made) else []
    for native in (*objects, *(x for x in KEYWORDS.get(made.name, ()) if x.keyword in given.given)):
        limit = limits.of_native(machine, native, given)
        machine.taken.append((Clip(**about, **limit, returns=True, kind=_kind(native)), step))


def stepped(machine: Machine, owner: Value, of: Gradients, given: Call) -> Gradients:
    """An optimizer takes gradients; those that it has made itself it does not take again."""
    if of.is_update:
        return of
    if isinstance(owner, Thing) and owner.token[-1:] == ("optimizer",) and machine.file.compiled is not None:
        owner = machine.file.compiled  # self.optimizer of a Keras model
    passes = owner.given.get("gradient_accumulation_steps") if isinstance(owner, Made) else None
    if passes is not None and not slots.is_off(passes) and any(isinstance(x, Clip) for x in of.history):
        of = replace(of, history=(*of.history, *of.history))
        machine.conditions.append(replace(EVERY, text="`gradient_accumulation_steps` passes are done"))
        made = _taken_by(machine, owner, of, given)
        machine.conditions.pop()
        return made
    return _taken_by(machine, owner, of, given)


def _taken_by(machine: Machine, owner: Value, of: Gradients, given: Call) -> Gradients:
    about = machine.about(given.node)
    params, history = whose(of), of.history
    reduced = any(isinstance(x, Reduce) for x in history) or (of.backward is None and machine.reduces)
    if machine.replicas and not reduced and not _keeps_apart(given):
        history = (*history, Reduce(**about, params=params))
    step = Step(**about, params=params, optimizer=owner.token, clip=slots.own_clip(owner), paired=of.variables)
    step = replace(step, is_shifted=of.pairs == "shifted", is_reordered=of.pairs == "reordered")
    machine.taken.append((*history, step))
    if isinstance(owner, Made) and not slots.own_clip(owner) and not any(isinstance(x, Clip) for x in history):
        _beside_compiled(machine, step)
        slots.stepped_without(machine, owner, step.text)
    return after(of, step, is_update=True)


def _beside_compiled(machine: Machine, step: Step) -> None:
    """A step without a clip, in a program that compiles its model with an optimizer that clips, and never calls ``fit``."""
    compiled = machine.file.compiled
    if slots.own_clip(compiled) and machine.file.called.isdisjoint(_FITS):
        why = f"The program calls no fit(), and {step.text} steps with another optimizer, which has no limit."
        machine.taken.append((Clip(where=compiled.where, text=compiled.text, params=step.params, unread=why),))


def paired(of: Gradients, args: Sequence[Value]) -> Gradients:
    """``zip(grads, variables)``, ``apply(grads, variables)``."""
    if of.pairs == "filtered" and of.sources and any(x.token == of.sources for x in args):
        return replace(of, pairs="shifted")
    reordered = (x for x in args if isinstance(x, Elements) and x.token != of.sources and x.params == whose(of))
    if of.sources[:1] == ("+",) and any(x.token[:1] == ("+",) for x in reordered):
        return replace(of, pairs="reordered")
    others = [x.params for x in args if isinstance(x, Elements) and x.params.meets(whose(of)) is False]
    return replace(of, variables=others[0]) if others else of


def zipped_pair(machine: Machine, pair: Tuple, given: Call) -> None:
    """``zip(tf.clip_by_global_norm(grads, limit), variables)``: the gradients and their norm, as two gradients."""
    made = pair.items[0]
    if isinstance(made, Gradients) and made.history:
        *before, clip = made.history
        machine.changes = [x for x in machine.changes if x.history[-1] is not clip]
        if isinstance(clip, Clip):
            step = Step(**machine.about(given.node), params=whose(made))
            machine.taken.append((*before, replace(clip, is_pair=True), step))


def _keeps_apart(given: Call) -> bool:
    """``experimental_aggregate_gradients=False`` or ``skip_gradients_aggregation=True``: the program has summed."""
    names = {"experimental_aggregate_gradients": False, "skip_gradients_aggregation": True}
    return any(isinstance(x := given.given.get(name), Constant) and x.value is value for name, value in names.items())
