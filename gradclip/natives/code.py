"""A native as a line of code in place of another call, and what its user must know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradclip.natives.model import LOWER, Applied
from gradclip.natives.nearest import Match

__all__ = ["code", "is_exact", "notes", "replaces_only_the_call"]

#: how a program applies a native
_FORMS: Mapping[Applied, str] = {
    Applied.PARAMETERS: "{name}(parameters, {arguments})",
    Applied.TENSOR: "[None if g is None else {name}(g, {arguments}) for g in grads]",
    Applied.TENSORS: "grads, norm = {name}(grads, {arguments})",
    Applied.SLOT: "paddle.optimizer.Adam(parameters=parameters, grad_clip={name}({arguments}))",
    Applied.CHAIN: "optax.chain({name}({arguments}), optimizer)",
    Applied.KEYWORD: "keras.optimizers.Adam({arguments})",
}


def replaces_only_the_call(match: Match) -> bool:
    """Whether the native replaces only the call, and the code around it stays."""
    here, there = match.wanted.native, match.native
    moves = here.applied in (Applied.PARAMETERS, Applied.SLOT, Applied.NORM)
    return here.applied is there.applied and (moves or (match.is_within and not there.keyword))


def is_exact(match: Match) -> bool:
    """Whether a native that clips alike gives the same to the last bit."""
    here, there = match.wanted.native, match.native
    is_same = here.now == there.code or (here.is_of_library and match.is_within and here.dialect == there.dialect)
    return is_same or here.is_exact


def code(match: Match, tensors: str) -> str:
    """The native as a line of code; ``tensors`` is the source of the call's gradients or parameters."""
    native = match.native
    natively = {dialect: name for name, dialect in native.called.items()}
    upper_first = bool(LOWER.intersection(match.written)) and not LOWER.intersection(native.needed)
    in_place = () if native.keyword or upper_first else native.needed
    arguments = ", ".join(
        source if name in in_place else f"{natively.get(name, name)}={source}" for name, source in match.written.items()
    )
    if not replaces_only_the_call(match):
        return _FORMS[native.applied].format(name=native.shown, arguments=arguments)
    given = [tensors] if match.wanted.native.takes_tensors else []
    return f"{native.shown}({', '.join([*given, arguments] if arguments else given)})"


def notes(match: Match) -> Iterator[str]:
    """What a caller must know beside the numbers."""
    here, there = match.wanted.native, match.native
    if here.now == there.code:
        yield "It is the same function under its present name."
    if there.nones.startswith("an error") and not (here.nones == there.nones and match.is_within):
        yield "It accepts no None."
    if there.at_zero == "off" and there.applied is not Applied.NORM:
        yield "A limit of 0 is off in Keras, and gives zeros elsewhere."
    if there.at_zero == "error" and len(match.written) == 1 and not match.is_within:
        yield "Paddle refuses a limit of 0."
    elif there.caution and not match.is_within:
        yield there.caution
    if match.is_within and here.advice:
        yield here.advice
