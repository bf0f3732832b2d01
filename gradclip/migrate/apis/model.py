"""What the table says of one native function, class or keyword."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Api", "Kind", "Target", "signature"]


class Kind(enum.Enum):
    """How a call has its effect, and so what a rewrite must keep."""

    IN_PLACE = "in place"  #: writes the gradients of parameters; the result is a norm or None
    RETURNED = "returned"  #: returns new tensors; ignoring the result clips nothing
    MEASURE = "measure"  #: returns a norm only
    OBJECT = "object"  #: makes an object for an optimizer's slot, or a transformation for a chain
    KEYWORD = "keyword"  #: a keyword of an optimizer's constructor
    GLOBAL_STATE = "global state"  #: changes what later optimizers do


@dataclass(frozen=True, slots=True)
class Target:
    """The form that a call takes in another place."""

    name: str  #: "gradclip.clip_grad_norm_": qualified; its module is what must be imported
    arguments: Mapping[str, str] = field(default_factory=dict)  #: native parameter -> the target's; the same names if empty
    dropped: frozenset[str] = (
        frozenset()
    )  #: parameters that the target lacks and that may be left out where they have their default
    exact: bool = True  #: else equal within rounding
    note: str = ""  #: one sentence on what to know
    wrapper: str = (
        ""  #: what the target's result is handed to: an OBJECT as ``wrapper(name(...))``, a KEYWORD, which leaves its
    )
    #: call, as ``wrapper(call, name(value))``; qualified
    by_hand: bool = False  #: the code around the call changes too, so that no rewrite of the call alone is right
    form: str = ""  #: of ``by_hand``: that code, with ``{clip_norm}`` for native parameters: "g = optax.clip({clip_value})"
    ordinary_limit: bool = False  #: equal only for a limit above 0 and below infinity
    symmetric_bounds: bool = False  #: equal only where the lower bound is the upper one negated


@dataclass(frozen=True, slots=True)
class Api:
    """One native function, class or keyword that clips gradients."""

    code: str  #: stable: "GT101"
    framework: str  #: "torch"
    names: tuple[str, ...]  #: every qualified name it is reached by, the canonical one first
    signature: inspect.Signature
    kind: Kind
    dialect: str  #: "torch.clip_grad_norm": the function in ``gradclip.dialects`` that says what it means; "" for none
    targets: Mapping[str, Target]  #: "gradclip" and frameworks -> the equivalent there; what is not here has none
    status: str = "current"  #: "current", "deprecated" or "removed"
    since: str = ""  #: the version that the status dates from, and the source it was read from
    note: str = ""  #: one sentence for messages
    link: str = ""  #: the upstream documentation
    keyword: str = ""  #: of KEYWORD: which of the signature's parameters it is about; the names end in ``(keyword=)``
    dialect_arguments: Mapping[str, str] = field(default_factory=dict)  #: native parameter -> the dialect's; the same names if
    #: empty; what the dialect has not, such as the tensors, is no part of the rule
    returns: str = ""  #: what the caller gets: "the norm before clipping"
    nones: str = ""  #: what becomes of a gradient that is None


def signature(text: str) -> inspect.Signature:
    """A signature from its text, defaults being literals: ``"(t, clip_norm, axes=None, name=None)"``."""
    scope: dict[str, object] = {}
    exec(f"def f{text}: ...", scope)
    function = scope["f"]
    assert callable(function)
    return inspect.signature(function)
