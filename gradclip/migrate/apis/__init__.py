"""The table of the frameworks' clipping functions, classes and keywords: one file a framework.

A code starts with a framework: ``GT1xx`` torch, ``GF2xx`` TensorFlow, ``GK3xx`` Keras, ``GP40x`` Paddle, ``GL45x`` and
``GL46x`` ``paddle.fluid``, ``GO5xx`` optax and JAX. A keyword's name is its call's with the keyword:
``keras.optimizers.SGD(clipnorm=)``.
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


KEYWORDS: Mapping[str, tuple[Api, ...]] = _keywords()  #: the qualified name of a call -> what its keywords clip
