"""gradclip's own functions, as natives: a drop-in is the native that it reproduces; every other function clips by a rule."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache

from gradclip.natives import BY_DIALECT, BY_NAME, DIALECTS, NATIVES
from gradclip.natives.model import KNOWN_NORM, Applied, Native
from gradclip.natives.targets import DROP_INS, drop_in

__all__ = ["BY_RULE", "CODE", "alike", "by_rule", "dialect_of", "is_clipped", "native_of", "parameters_of", "reproduced"]

CODE = "GM002"  #: of a call that is gradclip's already
_DIALECTS = "gradclip.dialects."
#: gradclip's functions that take a rule -> how a program applies them
BY_RULE: Mapping[str, Applied] = {
    "gradclip.clip": Applied.TENSORS,
    "gradclip.clip_": Applied.PARAMETERS,
    "gradclip.norm": Applied.NORM,
    "gradclip.scale_by_norm": Applied.TENSORS,
    "gradclip.scale_by_norm_": Applied.PARAMETERS,
    "gradclip.clipped": Applied.OPTIMIZER,
    "gradclip.backends.keras.clipped": Applied.OPTIMIZER,
    "gradclip.backends.torch.step_pre_hook": Applied.SLOT,
    "gradclip.backends.paddle.grad_clip": Applied.SLOT,
    "gradclip.backends.jax.gradient_transformation": Applied.CHAIN,
}
_FIRST: Mapping[Applied, tuple[str, ...]] = {Applied.OPTIMIZER: ("optimizer",), Applied.SLOT: (), Applied.CHAIN: ()}
#: the natives that are applied alike, where it is not the same
_PLACES: Mapping[Applied, frozenset[Applied]] = {
    Applied.TENSORS: frozenset({Applied.TENSOR, Applied.TENSORS}),
    Applied.OPTIMIZER: frozenset({Applied.KEYWORD, Applied.SLOT, Applied.CHAIN}),
}
_CHANGED_IN_PLACE = frozenset({"torch", "keras", "tensorflow", "paddle"})  #: the frameworks whose optimizers `clipped` changes


@cache
def reproduced(name: str, framework: str = "") -> Native | None:
    """The native that a function of gradclip reproduces: the one of ``framework``, or the usual one; None for any other name.

    >>> reproduced("gradclip.clip_grad_norm_").shown, reproduced("gradclip.clip_grad_norm_", "paddle").shown
    ('torch.nn.utils.clip_grad_norm_', 'paddle.nn.utils.clip_grad_norm_')
    """
    last = name.rpartition(".")[2]
    if not name.startswith("gradclip.") or name.startswith(_DIALECTS) or last not in DROP_INS:
        return None
    known = [(x, drop_in(x)) for x in NATIVES if x.dialect and not x.ours]
    alike = [x for x, made in known if made is not None and made.name == f"gradclip.{last}"]
    return min(alike, key=lambda x: (x.status != "current", x.framework != framework), default=None)


def native_of(name: str) -> Native | None:
    """The native of a qualified name, also of gradclip's function or class that reproduces it."""
    return BY_NAME.get(name) or reproduced(name)


@cache
def by_rule(name: str, dialect: str = "", framework: str = "") -> Native | None:
    """The record of a function of gradclip that takes a rule; ``dialect`` is what makes the rule, "" if nobody knows.

    >>> by_rule("gradclip.clip_", "keras.clipvalue").is_exact
    True
    """
    applied = BY_RULE.get(name)
    if applied is None:
        return None
    of = BY_DIALECT.get(dialect)
    return Native(
        code=CODE,
        names=(name,),
        applied=applied,
        dialect_name=dialect,
        tensors="" if applied in _FIRST else "grads",
        signature_text="" if dialect else f"({', '.join(parameters_of(name))})",
        writes=applied is Applied.OPTIMIZER and framework in _CHANGED_IN_PLACE,
        returned="a ClipResult" if applied in (Applied.TENSORS, Applied.PARAMETERS) else "",
        note="It does what its rule says.",
        link="" if of is None else of.link,
        source="gradclip",
    )


def is_clipped(name: str) -> bool:
    """Whether it is the qualified name of ``gradclip.clipped``, or of Keras's."""
    return BY_RULE.get(name) is Applied.OPTIMIZER


def alike(name: str) -> tuple[Native, ...]:
    """The natives that a program applies as it applies a function of gradclip that takes a rule.

    >>> [native.shown for native in alike("gradclip.scale_by_norm_")]
    ['torch.nn.utils.clip_grads_with_norm_']
    """
    applied, (_, package, *inner) = BY_RULE[name], name.split(".")
    places = _PLACES.get(applied, {applied})
    found = [x for x in NATIVES if x.applied in places and x.status == "current" and x.dialect and not x.is_of_library]
    if package == "backends":
        found = [x for x in found if x.family == inner[0]]
    takes_norm = name.rpartition(".")[2].startswith("scale_by_norm")
    return tuple(x for x in found if takes_norm <= (not x.signature.parameters.keys().isdisjoint(KNOWN_NORM)))


def parameters_of(name: str) -> tuple[str, ...]:
    """The first parameters of a function of gradclip."""
    if name in BY_RULE:
        return (*_FIRST.get(BY_RULE[name], ("grads",)), "rule")
    return tuple(inspect.signature(DROP_INS[name.rpartition(".")[2]]).parameters)


def dialect_of(name: str) -> str:
    """The dialect's function of a qualified name of gradclip: "torch.clip_grad_norm"; "" if it is none."""
    dialect = name.removeprefix(_DIALECTS)
    return dialect if dialect != name and dialect in DIALECTS else ""
