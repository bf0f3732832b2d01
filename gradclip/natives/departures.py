"""Where gradclip departs from a native, on purpose: the one table that the code, the tests and docs/departures.md share.

Everywhere else gradclip does what the native does, NaN for NaN. The record of each native lists its departures
(:mod:`gradclip.natives`). ``tools/vectors/departed.py`` lists the recorded cases in which it and gradclip differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["DEPARTURES", "Departure", "markdown"]


@dataclass(frozen=True, slots=True)
class Departure:
    """One thing in which gradclip differs from natives."""

    key: str
    native: str  #: what the natives do
    gradclip: str  #: what gradclip does
    why: str
    link: str  #: the upstream thread; where there is none, the native's line


DEPARTURES: tuple[Departure, ...] = (
    Departure(
        key="infinite-limit",
        native="A limit of infinity makes NaN of every gradient: always (TensorFlow, Keras, Paddle's classes), or where one is "
        "not finite (torch, optax).",
        gradclip="A limit of infinity only measures, whatever the gradients hold.",
        why="Logging the norm without clipping is the most common use of such a limit.",
        link="https://github.com/tensorflow/tensorflow/issues/109146",
    ),
    Departure(
        key="zero-limit",
        native="A limit of 0 makes NaN of zero gradients, by 0 / 0.",
        gradclip="A limit of 0 gives zeros, also for zero gradients. As in the natives, it turns Keras's clips off, and is an "
        "error in `ClipGradByNorm`.",
        why="Zero gradients are ordinary, and a schedule may end at 0.",
        link="https://github.com/google-deepmind/optax/pull/1752",
    ),
    Departure(
        key="negative-limit",
        native="A negative limit reverses gradients (torch, Paddle, optax), clips nothing (Keras, `tf.clip_by_global_norm`) "
        "or makes NaN. A NaN limit makes NaN, or clips nothing.",
        gradclip="A negative or NaN limit is a `ValueError`, except that a negative `clip_norm` of `tf.clip_by_norm` counts as "
        "0, as in TensorFlow.",
        why="Nobody wants it, and a training against the gradient looks like any other.",
        link="https://github.com/pytorch/pytorch/issues/31367",
    ),
    Departure(
        key="finite-norm",
        native="Squares that overflow or vanish make the norm of finite gradients infinite, 0 or imprecise, and the gradients "
        "0, NaN or unclipped; in float16 a gradient of 300 is enough.",
        gradclip="Finite gradients have a finite norm, accurate to the last bits, if it fits its dtype: three elements of 3e38 "
        "have none in float32. On accelerators sums in float32 overflow as "
        "the natives' do, [with exceptions](accelerators.md#what-accumulated-in-float32-means).",
        why="The native mistakes a healthy gradient for an infinite one; torch's own test of `error_if_nonfinite` expects it.",
        link="https://github.com/pytorch/pytorch/issues/193006",
    ),
    Departure(
        key="wide-norm",
        native="The norm of half-precision gradients is of their dtype: it has 11 or 8 bits, and above 65,504 in float16 it is "
        "infinite. A clip by it makes zeros or NaN of finite gradients.",
        gradclip="No function returns a norm narrower than float32. A known norm in half precision is widened.",
        why="A trainer that skips steps whose norm is not finite skips every step.",
        link="https://github.com/pytorch/pytorch/pull/194033",
    ),
    Departure(
        key="wide-arithmetic",
        native="`t * clip_norm` overflows, `1 / clip_norm` vanishes, and a limit beyond the dtype is infinite: gradients that "
        "need no clipping become infinite, NaN or 0. Keras on torch computes a float64 scale in float32.",
        gradclip="The arithmetic is at least float32 wide, and float64 for float64; a limit beyond the dtype only measures.",
        why="How large a limit may be should not depend on the dtype of the gradients.",
        link="https://github.com/tensorflow/tensorflow/pull/109327",
    ),
    Departure(
        key="accurate-norm",
        native="The norm is one running float32 sum, which stops growing at 2**24: the norm of 2**25 ones is 5792.6, and the "
        "native returns 4096.",
        gradclip="The norm is right to a few units in the last place of float32, however many elements there are.",
        why="The native clips large gradients too little.",
        link="https://github.com/PaddlePaddle/Paddle/issues/75212",
    ),
    Departure(
        key="unclipped",
        native="The native multiplies and divides gradients below the limit by it. That rounds some of them, and makes "
        "subnormal ones 0.",
        gradclip="Unclipped gradients come back unchanged to the bit.",
        why="The native's documentation says that they are unmodified.",
        link="https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/ops/clip_ops.py#L232",
    ),
    Departure(
        key="twice",
        native="A parameter or gradient that is listed twice counts twice in the norm. A clip in place also scales it twice.",
        gradclip="It counts once, and is scaled once.",
        why="Tied weights, and overlapping parameter groups, have one gradient.",
        link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/utils/clip_grad.py#L229",
    ),
    Departure(
        key="iterator",
        native="`paddle.nn.utils.clip_grad_norm_` reads its argument twice: given a generator, it returns the norm and clips "
        "nothing. `ClipGradByGlobalNorm` and `tf.clip_by_global_norm` refuse a generator; TensorFlow's refuses a dict too.",
        gradclip="gradclip reads an iterator once, and takes any container.",
        why="The native silently clips nothing.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/nn/utils/clip_grad_norm_.py#L115",
    ),
    Departure(
        key="sparse",
        native="Sparse gradients are an error (torch, Paddle in places). Or their duplicate rows count separately "
        "(TensorFlow, Keras), or come back unmerged or dense.",
        gradclip="gradclip merges duplicate rows before it clips, and the result is sparse.",
        why="The optimizer adds duplicate rows up: their separate norms are not the norm of the gradient.",
        link="https://github.com/pytorch/pytorch/issues/4829",
    ),
    Departure(
        key="dtypes",
        native="No half precision on a CPU, no float64 and no complex in Paddle's clips, in places; no complex in TensorFlow "
        "and Keras (on JAX: wrong); no mixed dtypes in several; no `ClipGradByValue` under `to_static`.",
        gradclip="All of these work where the framework has the arithmetic.",
        why="The mathematics is the same for all dtypes, and gradclip has it once.",
        link="https://github.com/tensorflow/tensorflow/issues/33622",
    ),
    Departure(
        key="legacy-programs",
        native="Paddle's clips also work in static programs of its legacy representation (`FLAGS_enable_pir_api=0`).",
        gradclip="An error: static programs are those of Paddle 3.",
        why="In legacy programs Paddle's own `sum` and `sqrt`, which the arithmetic needs, raise.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/pir_utils.py#L42",
    ),
    Departure(
        key="any-number",
        native="A known norm must be a tensor, and a limit that is a tensor or a NumPy number must have the dtype of the "
        "gradients.",
        gradclip="Limits and known norms are Python numbers, or numbers and tensors of any real dtype.",
        why="A norm that has been reduced over processes, or read from a log, is a number.",
        link="https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/ops/clip_ops.py#L360",
    ),
    Departure(
        key="integers",
        native="Integer gradients become floats (optax's `clip`, Keras on torch and JAX), are clipped to bounds cut to "
        "integers (Paddle), refused for whole bounds too (torch, TensorFlow), or all become 0 (Keras on TensorFlow, bool).",
        gradclip="An error, except where whole bounds clip integers by value, and in optax's sums over examples.",
        why="A clipped gradient keeps its dtype, and an integer dtype cannot hold the result.",
        link="https://github.com/keras-team/keras/blob/v3.15.1/keras/src/optimizers/base_optimizer.py#L1115",
    ),
    Departure(
        key="dtype-kept",
        native="Keras on JAX and optax return all gradients in the widest dtype of the call, the limit's included, in places.",
        gradclip="Each clipped gradient has the dtype of the gradient.",
        why="The optimizer's state would change its dtype with the first step.",
        link="https://github.com/keras-team/keras/blob/v3.15.1/keras/src/optimizers/base_optimizer.py#L1197",
    ),
    Departure(
        key="shape-kept",
        native="`ClipGradByGlobalNorm` returns a 0-d gradient as one of shape (1,).",
        gradclip="A clipped gradient has the shape of the gradient.",
        why="The optimizer subtracts it from a 0-d parameter.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/nn/clip.py#L845",
    ),
    Departure(
        key="nothing-to-clip",
        native="Without a single gradient `clip_grad_value_` of torch, Keras's `global_clipnorm` on torch and JAX, and optax's "
        "`per_example_global_norm_clip` are an error about an empty list.",
        gradclip="Nothing is clipped, with a warning where that looks like a mistake.",
        why="Some steps have no gradients, and torch's other functions and the other backends return.",
        link="https://github.com/pytorch/pytorch/pull/35753",
    ),
    Departure(
        key="summed-first",
        native="Under `tf.distribute` Keras clips the gradients of each replica, and then sums what is left.",
        gradclip="`gradclip.backends.keras.clipped` sums, then clips.",
        why="What is learned should not depend on the number of replicas.",
        link="https://github.com/tensorflow/tensorflow/issues/33929",
    ),
    Departure(
        key="derivative",
        native="The derivative of a clip by the global norm is NaN at zero gradients; that of `tf.clip_by_norm` is the "
        "clipped one where the norm is the limit.",
        gradclip="A clip that changes nothing has the derivative of the identity.",
        why="One zero gradient makes every derivative through it NaN.",
        link="https://github.com/tensorflow/tensorflow/issues/22048",
    ),
)


def markdown() -> str:
    """The table of docs/departures.md.

    >>> print(markdown().splitlines()[0])
    | The natives | gradclip | Why | Thread |
    """
    lines = ["| The natives | gradclip | Why | Thread |", "| --- | --- | --- | --- |"]
    for departure in DEPARTURES:
        link = f"[{_label(departure.link)}]({departure.link})"
        lines.append(f"| {departure.native} | {departure.gradclip} | {departure.why} | {link} |")
    return "\n".join(lines)


def _label(link: str) -> str:
    """``tensorflow#109146`` for a thread, and the file's name for a line of source."""
    repository, kind, rest = re.fullmatch(r"https://github\.com/[^/]+/([^/]+)/(issues|pull|blob)/(.+)", link).groups()  # type: ignore[union-attr]
    return rest.rpartition("/")[2].partition("#")[0] if kind == "blob" else f"{repository}#{rest}"
