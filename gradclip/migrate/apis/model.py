"""The table's entry for one native function, class or keyword."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Api", "Kind", "Target", "signature"]


class Kind(enum.Enum):
    """How a call takes effect, and so what a rewrite must preserve."""

    IN_PLACE = "in place"  #: writes the parameters' gradients; the result is a norm or None
    RETURNED = "returned"  #: returns new tensors; a call whose result is ignored clips nothing
    MEASURE = "measure"  #: returns only a norm
    OBJECT = "object"  #: makes an object for an optimizer's slot or a transformation for a chain
    KEYWORD = "keyword"  #: a keyword of an optimizer's constructor
    GLOBAL_STATE = "global state"  #: changes what later optimizers do


@dataclass(frozen=True, slots=True)
class Target:
    """The form of a call in gradclip or in another framework."""

    name: str  #: "gradclip.clip_grad_norm_": qualified; a rewrite imports its module
    arguments: Mapping[str, str] = field(default_factory=dict)  #: native parameter -> the target's; empty: the same names
    dropped: frozenset[str] = frozenset()  #: parameters that the target lacks; a call may omit them if they have their default
    exact: bool = True  #: if False, equal up to rounding
    note: str = ""  #: one sentence of advice
    wrapper: str = ""  #: qualified name of a function that takes the target's result: ``wrapper(name(...))`` for an OBJECT,
    #: ``wrapper(call, name(value))`` for a KEYWORD, which leaves its call
    by_hand: bool = False  #: the code around the call changes too, so rewriting the call alone is wrong
    form: str = ""  #: the code for ``by_hand``, with ``{clip_norm}`` for native parameters: "g = optax.clip({clip_value})"
    ordinary_limit: bool = False  #: equal only for a limit above 0 and below infinity
    symmetric_bounds: bool = False  #: equal only if the lower bound is the upper bound negated


@dataclass(frozen=True, slots=True)
class Api:
    """One native function, class or keyword that clips gradients."""

    code: str  #: stable: "GT101"
    framework: str  #: "torch"
    names: tuple[str, ...]  #: every qualified name of the API, the canonical one first
    signature: inspect.Signature
    kind: Kind
    dialect: str  #: "torch.clip_grad_norm": the function in ``gradclip.dialects`` that defines the meaning; "" if none
    targets: Mapping[str, Target]  #: "gradclip" or a framework -> the equivalent there; a missing key means no equivalent
    status: str = "current"  #: "current", "deprecated" or "removed"
    since: str = ""  #: the version since which the status applies, and the source of that fact
    note: str = ""  #: one sentence for messages
    link: str = ""  #: the upstream documentation
    keyword: str = ""  #: for KEYWORD: the parameter of the signature that clips; the names end in ``(keyword=)``
    dialect_arguments: Mapping[str, str] = field(default_factory=dict)  #: native parameter -> the dialect's; empty: the
    #: same names; parameters that the dialect lacks, such as the tensors, are not part of the rule
    returns: str = ""  #: what the call returns: "the norm before clipping"
    nones: str = ""  #: how the call treats a gradient that is None


def signature(text: str) -> inspect.Signature:
    """A signature from its text; defaults are literals: ``"(t, clip_norm, axes=None, name=None)"``."""
    scope: dict[str, object] = {}
    exec(f"def f{text}: ...", scope)
    function = scope["f"]
    assert callable(function)
    return inspect.signature(function)
