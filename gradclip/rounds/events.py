"""What happens to gradients between a backward pass and a step, as data."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from gradclip.rounds.params import NO_PARAMS, UNKNOWN, Params

__all__ = ["Backward", "Clip", "Condition", "Event", "Hook", "Measure", "Reduce", "Step", "Unscale", "Write", "Zero"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A test that an event needs: on one way through the program it has one value."""

    key: Hashable  #: equal tests have equal keys
    holds: bool = True
    kind: str = (
        ""  #: "every" (true in each k-th pass), "synced" (so, and the optimizer knows it), "finite", "process"; "": any other
    )
    text: str = ""  #: as it is shown
    varies: bool = False  #: it can have another value in the next pass of a loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to gradients, or that a program does to them."""

    where: Hashable = None  #: the place in the program
    text: str = ""  #: as it is shown: "`loss.backward()`"
    params: Params = UNKNOWN
    tests: frozenset[Condition] = field(default_factory=frozenset)  #: those that it needs; a run needs none
    loops: tuple[Hashable, ...] = ()  #: the loops around it, the outermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward(Event):
    """A backward pass writes gradients, or adds to them."""

    loss: Hashable = None  #: its identity, where gradients are values
    scaler: str = ""  #: what scales the loss, as it is shown; "" if nothing does
    is_local: bool = False  #: the processes exchange nothing (``no_sync``)
    is_again: bool = False  #: the step evaluates its closure
    is_try: bool = False  #: the loop around it may end after any pass, as one does that tries again
    added: Params = NO_PARAMS  #: those to whose gradients it adds what a step has taken
    broken: Params = NO_PARAMS  #: those whose gradients are not finite after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscale(Event):
    """Gradients are divided by the loss scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(Event):
    """Gradients are summed over processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Event):
    """Other code changes gradients."""

    is_local: bool = False  #: by a norm of the shards that this process holds
    factor: str = ""  #: what they are multiplied with in the place of limit / norm: "limit", "grows", "square", "root",
    #: "sum", "weights", "least", "below", "kept"; "" for any other
    divisor: str = ""  #: the count that they are divided by, as it is shown
    is_mend: bool = False  #: zeros for NaN
    noise: frozenset[str] = frozenset()  #: what the noise is multiplied by that it adds, as text


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook(Event):
    """A hook that clips a gradient, and returns nothing; or one that comes too late."""

    is_late: bool = False  #: it is registered after a backward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero(Event):
    """Gradients become zero, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure(Event):
    """A norm is taken."""

    use: str = ""  #: "limit" if a test compares it with the limit or more, "log" if it is reported as the gradient norm,
    #: "history" if a later limit is computed from it, "root" if it is a root for the order inf,
    #: "matrix" if it is a matrix norm that counts as the norm of the elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip(Event):
    """A clip: whose gradients, by which rule and limit."""

    kind: str = "norm"  #: or "each", by a norm for each gradient; "example", for each example; "value", each element
    limit: Hashable = None  #: a number, or the identity of what holds it; None if it is unknown
    setting: str = ""  #: the name of what holds the limit, as far as it is known
    order: object = None  #: of the norm, as the program gives it; None if it is unknown
    is_loop: bool = False  #: one call for each parameter of a loop
    is_first: bool = False  #: the loop over its parameters ends after the first one
    only_measures: bool = False  #: the limit is infinite
    wants_norm: bool = False  #: the program takes the norm that it returns
    is_dropped: bool = False  #: it returns clipped gradients that nothing takes
    returns: bool = False  #: it returns new gradients
    has_norm: bool = False  #: the call is given the norm, which may be of more gradients
    as_all: str = ""  #: what says that its limit is one of the norm of all gradients
    is_unread: bool = False  #: nothing calls it
    unread: str = ""  #: why nothing takes it, if that is another reason than Lightning's
    lost: str = ""  #: why it changes no gradient that a step takes
    is_pair: bool = False  #: it returns the gradients and their norm, and the step takes these for gradients
    is_copy: bool = False  #: it changes copies of the gradients
    is_stale: bool = False  #: it takes the norm of other gradients
    is_off: bool = False  #: a limit of 0 is the setting for "off", and reaches it
    other: str = ""  #: why its limit is that of another thing
    is_unset: bool = False  #: it clips only where its limit is 0 or None
    is_late: bool = False  #: it clips the optimizer's update, not the gradients
    is_local: bool = False  #: the norm that it is given is one of the shards that this process holds
    bound: str = ""  #: "min" or "max" if it bounds on this side only
    is_failed: bool = False  #: it raised an exception
    is_range: bool = False  #: its limit is the range of a ratio elsewhere, from 1 - x to 1 + x
    exchanged: str = ""  #: which names say that its limit and its order are exchanged
    is_of_weights: bool = False  #: it divides by the norm of the parameters
    is_scaled: bool = False  #: its limit is one of scaled gradients: multiplied by the loss scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Event):
    """An optimizer takes gradients."""

    optimizer: Hashable = None  #: its identity
    scaler: str = ""  #: what makes the step and unscales the gradients before it; "" if nothing does
    is_skipped: bool = False
    is_sparse: bool = False  #: it takes sparse gradients only
    is_shifted: bool = False  #: each of the gradients is paired with the variable of another one
    paired: Params = NO_PARAMS  #: the variables with which the gradients are paired, if they are others than theirs
    exempt: Params = NO_PARAMS  #: those that are marked as not to be clipped
    late: Params = NO_PARAMS  #: what was put into its modules after it was made
    is_reordered: bool = False  #: the gradients are paired with their variables in another order
    clip: str = ""  #: the optimizer's own clip, as it is shown; "" if it has none
