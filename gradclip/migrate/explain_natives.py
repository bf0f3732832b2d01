"""The natives' behaviour, in a few words, in the cases where gradclip departs from them (:mod:`gradclip.departures`)."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["NATIVELY"]

_NAN = "every gradient becomes NaN"
_NAN_IF = "every gradient becomes NaN if one is infinite"
_NAN_OF_ZEROS = "zero gradients become NaN"
_ROUND = "the gradients change their sign"
_UNCLIPPED = "nothing is clipped"
_BOUND = "every element becomes the bound"
_ERROR = "an error"
_SEPARATE = "they count separately"
_ON_TENSORFLOW = f"{_SEPARATE}, on TensorFlow"
_TWICE = "it counts twice"
_SCALED_TWICE = "it counts twice, and is scaled twice"

#: dialect -> edge case -> the native's behaviour, which differs from gradclip's
NATIVELY: Mapping[str, Mapping[str, str]] = {
    "torch.clip_grad_norm": {
        "limit inf": _NAN_IF,
        "limit < 0": _ROUND,
        "sparse": _ERROR,
        "listed twice": _SCALED_TWICE,
    },
    "torch.clip_grad_value": {"limit < 0": _BOUND, "no gradients": _ERROR},
    "tensorflow.clip_by_norm": {"limit 0": _NAN_OF_ZEROS, "limit inf": _NAN, "limit < 0": _NAN_OF_ZEROS, "sparse": _SEPARATE},
    "tensorflow.clip_by_global_norm": {
        "limit 0": _NAN_OF_ZEROS,
        "limit inf": _NAN,
        "limit < 0": _UNCLIPPED,
        "sparse": _SEPARATE,
        "listed twice": _TWICE,
        "an iterator": _ERROR,
    },
    "keras.clipnorm": {"limit inf": _NAN, "limit < 0": _UNCLIPPED, "sparse": _ON_TENSORFLOW},
    "keras.global_clipnorm": {
        "limit inf": _NAN,
        "limit < 0": _UNCLIPPED,
        "no gradients": f"{_ERROR}, on torch and JAX",
        "sparse": _ON_TENSORFLOW,
        "listed twice": _TWICE,
    },
    "keras.clipvalue": {"limit < 0": _UNCLIPPED, "sparse": _ON_TENSORFLOW},
    "paddle.clip_grad_by_norm": {"limit inf": _NAN},
    "paddle.clip_grad_by_global_norm": {
        "limit 0": _NAN_OF_ZEROS,
        "limit inf": _NAN,
        "limit < 0": _ROUND,
        "sparse": "the returned gradient is not merged",
        "listed twice": _TWICE,
        "an iterator": _ERROR,
    },
    "paddle.clip_grad_norm": {
        "limit inf": _NAN_IF,
        "limit < 0": _ROUND,
        "listed twice": _SCALED_TWICE,
        "an iterator": "it returns the norm, and clips nothing",
    },
    "optax.clip_by_global_norm": {
        "limit 0": _NAN_OF_ZEROS,
        "limit inf": _NAN_IF,
        "limit < 0": _ROUND,
        "listed twice": _TWICE,
    },
    "optax.clip": {"limit < 0": _BOUND},
    "optax.clip_by_block_rms": {
        "limit 0": _NAN_OF_ZEROS,
        "limit inf": "a gradient that is not finite becomes NaN",
        "limit < 0": _UNCLIPPED,
    },
    "optax.adaptive_grad_clip": {"limit inf": "a gradient that is not finite becomes NaN", "limit < 0": _ROUND},
    "optax.per_example_global_norm_clip": {"limit < 0": _ROUND},
}
