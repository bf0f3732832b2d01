"""What replaces a native's call: gradclip's own form of it, and the natives of other frameworks that clip alike."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from gradclip.core.clip import __all__ as _general
from gradclip.dialects import parameters
from gradclip.dropins import paddle, tensorflow, torch
from gradclip.natives import BY_DIALECT
from gradclip.natives.code import code, is_exact, notes, replaces_only_the_call
from gradclip.natives.model import LOWER, Applied, Native
from gradclip.natives.nearest import FRAMEWORKS, Match, Wanted, nearest

__all__ = ["DROP_INS", "OWN_NAMES", "Target", "drop_in", "placeholders", "targets"]

#: gradclip's functions that have the name of a native
DROP_INS = {name: getattr(module, name) for module in (torch, tensorflow, paddle) for name in module.__all__}
#: gradclip's names that clip or measure
OWN_NAMES = frozenset({*DROP_INS, *_general, "clipped", "ClipResult"})
#: what applies a rule in a framework's own place, and what its user must know
_WRAPPERS: Mapping[Applied, tuple[str, str]] = {
    Applied.CHAIN: (
        "gradclip.backends.jax.gradient_transformation",
        "Like optax's, it has no state, so checkpoints keep their shape.",
    ),
    Applied.KEYWORD: (
        "gradclip.backends.keras.clipped",
        "clipped() wraps the optimizers of Keras 3, not those of tf.keras before 2.16 or of a legacy module.",
    ),
}
#: how a program applies a rule if gradclip has no function of the native's name
_BY_RULE: Mapping[Applied, str] = {
    Applied.PARAMETERS: "gradclip.clip_({tensors}, {{rule}})",
    Applied.SLOT: "gradclip.backends.paddle.grad_clip({{rule}})",
    Applied.NORM: "gradclip.norm({tensors}, {{rule}})",
}


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
    form: str = ""  #: the code for ``by_hand``: ``{clip_norm}`` is a native parameter, ``{rule}`` the dialect's call
    ordinary_limit: bool = False  #: equal only for a limit above 0 and below infinity
    symmetric_bounds: bool = False  #: equal only if the lower bound is the upper bound negated


@cache
def targets(native: Native) -> Mapping[str, Target]:
    """The form in gradclip, and in each framework that has a native of the same meaning; a missing key means none.

    >>> from gradclip.natives import BY_NAME
    >>> targets(BY_NAME["optax.clip"])["torch"].form
    'torch.nn.utils.clip_grad_value_(parameters, {max_delta})'
    """
    ours = _in_gradclip(native)
    found = {} if ours is None else {"gradclip": ours}
    if not native.dialect or native.does_more:
        return found
    wanted = placeholders(native)
    for framework in FRAMEWORKS:
        if framework == native.family and native.stays:
            continue
        match = nearest(wanted, framework)
        if match is not None and not match.fields:
            found[framework] = _target(match)
    return found


def placeholders(native: Native) -> Wanted:
    """A call of a native with placeholders for its arguments."""
    *lower, upper = (f"{{{name}}}" for name in native.bounds or ("",))
    written = {"limit": upper, "lower": lower[0] if lower else f"-{upper}"}
    return Wanted(native=native, rule=native.rule(), written=written, is_symmetric=not lower)


def _target(match: Match) -> Target:
    here, there = match.wanted.native, match.native
    names, takes = list(here.signature.parameters), there.signature.parameters
    name, note, exact = there.names[0], " ".join(notes(match)), is_exact(match)
    if here.applied is Applied.NORM:
        is_same = here.now == there.code
        renamed = {} if is_same else {names[0]: next(iter(takes))}
        return Target(name, renamed, frozenset() if is_same else frozenset(names[1:]), exact, note)
    if replaces_only_the_call(match):
        given = {p: p if p in takes else here.called.get(p, p) for p in names}
        renamed = {p: there for p, there in given.items() if there in takes}
        is_same = all(p == there for p, there in renamed.items())
        return Target(name, {} if is_same else renamed, frozenset(given.keys() - renamed.keys()), exact, note)
    symmetric = not match.wanted.is_symmetric and not LOWER & parameters(there.function).keys()
    return Target(
        name,
        exact=exact,
        note=note,
        by_hand=True,
        form=code(match, ""),
        ordinary_limit=_needs_an_ordinary_limit(match),
        symmetric_bounds=symmetric,
    )


def _needs_an_ordinary_limit(match: Match) -> bool:
    """Whether the natives differ at a limit of 0 or infinity."""
    here, there = match.wanted.native, match.native
    if not here.is_exact or here.at_zero == "off":
        return True
    has_one = not LOWER & parameters(there.function).keys()
    return there.at_zero != here.at_zero if match.wanted.is_symmetric else has_one and there.at_zero != "zeros"


def _in_gradclip(native: Native) -> Target | None:
    if not native.dialect or (native.does_more and native.applied is not Applied.PARAMETERS):
        return None
    if native.applied in _WRAPPERS and not native.ours:
        wrapper, note = _WRAPPERS[native.applied]
        renamed = {native.keyword: native.keyword} if native.keyword else {}
        return Target(f"gradclip.dialects.{native.dialect}", renamed, exact=native.is_exact, wrapper=wrapper, note=note)
    replaced = drop_in(native)
    if replaced is not None and not native.ours:
        return replaced
    form = native.ours or _by_rule(native)
    name = "gradclip." + form.partition("gradclip.")[2].partition("(")[0]
    is_off = native.at_zero == "off"
    return Target(name, exact=False, note=native.advice, by_hand=True, form=form, ordinary_limit=is_off)


@cache
def drop_in(native: Native) -> Target | None:
    """The function of gradclip that replaces a native, if it has one: optax's clips are links of a chain, and have none."""
    names = (*(name.rpartition(".")[2] for name in native.names), BY_DIALECT[native.dialect].last)
    name = next((name for name in names if name in DROP_INS and native.family != "jax"), None)
    if name is None:
        return None
    takes, (first, *others) = inspect.signature(DROP_INS[name]).parameters, native.signature.parameters
    dropped = frozenset(p for p in others if native.called.get(p, p) not in takes)
    renamed = {p: native.called.get(p, p) for p in (first, *others) if p not in dropped}
    if native.takes_tensors:
        renamed[first] = next(iter(takes))
    is_same = all(here == there for here, there in renamed.items())
    return Target(f"gradclip.{name}", {} if is_same else renamed, dropped, native.is_exact, native.advice)


def _by_rule(native: Native) -> str:
    """The form of a native that no function of gradclip replaces."""
    tensors = f"{{{next(iter(native.signature.parameters))}}}" if native.takes_tensors else "grads"
    usual = "result = gradclip.clip({tensors}, {{rule}})" if native.returns_pair else "gradclip.clip({tensors}, {{rule}}).grads"
    return _BY_RULE.get(native.applied, usual).format(tensors=tensors)
