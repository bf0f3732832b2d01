"""The catalogue of the frameworks' own clips: one record a native, one file a framework.

The prefix of a code names the framework: ``GT1xx`` torch, ``GF2xx`` TensorFlow, ``GK3xx`` Keras, ``GP40x`` Paddle, ``GL45x``
and ``GL46x`` ``paddle.fluid``, ``GO5xx`` optax and JAX. The name of a keyword is the name of its call with the keyword in
parentheses: ``keras.optimizers.SGD(clipnorm=)``.
"""

from __future__ import annotations

from collections.abc import Mapping

from gradclip.natives import fluid, keras, optax, paddle, tensorflow, torch
from gradclip.natives.model import DIALECTS, Applied, Kind, Native

__all__ = [
    "BY_CODE",
    "BY_DIALECT",
    "BY_NAME",
    "DIALECTS",
    "KEYWORDS",
    "NATIVES",
    "OPERATIONS",
    "Applied",
    "Kind",
    "Native",
    "departing",
]

NATIVES: tuple[Native, ...] = (
    *torch.NATIVES,
    *tensorflow.NATIVES,
    *keras.NATIVES,
    *paddle.NATIVES,
    *fluid.NATIVES,
    *optax.NATIVES,
)
BY_NAME: Mapping[str, Native] = {name: native for native in NATIVES for name in native.names}
BY_CODE: Mapping[str, Native] = {native.code: native for native in NATIVES}
#: a dialect's function -> the native that it is named after
BY_DIALECT: Mapping[str, Native] = {native.dialect: native for native in NATIVES if native.is_own}
#: an operation of the conformance suite -> the native that it is
OPERATIONS: Mapping[str, Native] = {native.operation: native for native in NATIVES if native.is_own}


def departing(key: str) -> tuple[str, ...]:
    """The natives from which gradclip departs for a reason, as their users name them."""
    return tuple(name for native in NATIVES for name in native.departing(key))


def _keywords() -> dict[str, tuple[Native, ...]]:
    calls: dict[str, tuple[Native, ...]] = {}
    for name, native in BY_NAME.items():
        call, bracket, _ = name.partition("(")
        if bracket:
            calls[call] = (*calls.get(call, ()), native)
    return calls


KEYWORDS: Mapping[str, tuple[Native, ...]] = _keywords()  #: qualified name of a call -> its keywords that clip
