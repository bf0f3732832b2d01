"""The table of the frameworks' clipping functions, classes and keywords: one file per framework.

The prefix of a code names the framework: ``GT1xx`` torch, ``GF2xx`` TensorFlow, ``GK3xx`` Keras, ``GP40x`` Paddle, ``GL45x``
and ``GL46x`` ``paddle.fluid``, ``GO5xx`` optax and JAX. The name of a keyword is the name of its call with the keyword in
parentheses: ``keras.optimizers.SGD(clipnorm=)``.
"""

from __future__ import annotations

from collections.abc import Mapping

from gradclip.migrate.apis import fluid, keras, optax, paddle, tensorflow, torch
from gradclip.migrate.apis.model import Api

__all__ = ["APIS", "BY_CODE", "BY_NAME", "KEYWORDS"]

APIS: tuple[Api, ...] = (*torch.APIS, *tensorflow.APIS, *keras.APIS, *paddle.APIS, *fluid.APIS, *optax.APIS)
BY_NAME: Mapping[str, Api] = {name: api for api in APIS for name in api.names}
BY_CODE: Mapping[str, Api] = {api.code: api for api in APIS}


def _keywords() -> dict[str, tuple[Api, ...]]:
    calls: dict[str, tuple[Api, ...]] = {}
    for name, api in BY_NAME.items():
        call, bracket, _ = name.partition("(")
        if bracket:
            calls[call] = (*calls.get(call, ()), api)
    return calls


KEYWORDS: Mapping[str, tuple[Api, ...]] = _keywords()  #: qualified name of a call -> its keywords that clip
