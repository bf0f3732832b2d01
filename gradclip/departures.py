"""Where gradclip departs from a native, on purpose: the one table that the code, the tests and the README share.

Everywhere else gradclip does what the native does, NaN for NaN. The tests replay every recorded case of every native against
the native itself, and fail for a difference that is not listed here and for a case listed here in which the two agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DEPARTURES", "Departure", "markdown"]

Cases = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Departure:
    """One thing in which gradclip differs from natives."""

    key: str
    native: str  #: what the natives do
    gradclip: str  #: what gradclip does
    why: str
    link: str  #: the upstream thread; where there is none, the native's line
    cases: Cases  #: native function -> the names of its recorded cases in which the two differ for this reason

    @property
    def functions(self) -> tuple[str, ...]:
        """The native functions that it is about."""
        return tuple(self.cases)


def _these(names: str, *behaviours: str) -> tuple[str, ...]:
    """Case names in one text, and further behaviours, whose names have spaces."""
    return (*names.split(), *behaviours)


def _keras(argument: str, cases: tuple[str, ...], backends: str = "tensorflow torch jax") -> Cases:
    """The same cases on several of Keras's backends, each of which clips with its own arithmetic."""
    return {f"keras[{backend}] {argument}": cases for backend in backends.split()}


_NORM, _VALUE = "torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"
_TF_NORM, _TF_GLOBAL, _TF_VALUE = "tf.clip_by_norm", "tf.clip_by_global_norm", "tf.clip_by_value"
_PADDLE_NORM, _PADDLE_VALUE = "paddle.nn.utils.clip_grad_norm_", "paddle.nn.utils.clip_grad_value_"
_BY_NORM, _BY_GLOBAL, _BY_VALUE = "paddle.nn.ClipGradByNorm", "paddle.nn.ClipGradByGlobalNorm", "paddle.nn.ClipGradByValue"
_OPTAX = "optax.clip_by_global_norm"

_INFINITE = _these("C4 D7 D8 E4")
_NEGATIVE = _these("C3 C5 E2 E3 E5 E6 E9")
_HALF = _these("F11 F12 F13 F14 F15 F17")
_EXTREME = _these("H1 H2 H3 H5 H6 H7 H8 H9 H10 H12 H14")
_COMPLEX = _these("F3 F4 F5 I5")
_NO_HALF = _these("F1-float16 F1-bfloat16 F2-float16 F2-bfloat16 F11 F12 F13 F14 F15 F16 F17 F18 F19 I2 I3 I4")
_INTEGERS = _these("F6 F7 F8 F9 F10 I6")
_DUPLICATES = ("IndexedSlices with duplicate rows",)

DEPARTURES: tuple[Departure, ...] = (
    Departure(
        key="infinite-limit",
        native="A limit of infinity makes NaN of every gradient (TensorFlow, Keras, Paddle's classes), or of those that are "
        "not finite (torch, optax).",
        gradclip="A limit of infinity only measures, whatever the gradients hold.",
        why="Logging the norm without clipping is the most common use of such a limit.",
        link="https://github.com/tensorflow/tensorflow/issues/109146",
        cases={
            _NORM: _these("D7 D8"),
            _TF_NORM: _INFINITE,
            _TF_GLOBAL: _INFINITE,
            _PADDLE_NORM: _these("D7 D8"),
            _BY_NORM: _INFINITE,
            _BY_GLOBAL: _INFINITE,
            _OPTAX: _these("D7 D8"),
            "optax.clip_by_block_rms": ("threshold inf, an infinite element",),
            "optax.adaptive_grad_clip": ("clipping inf, an infinite element",),
            **_keras("clipnorm", _INFINITE),
            **_keras("global_clipnorm", _INFINITE),
        },
    ),
    Departure(
        key="zero-limit",
        native="A limit of 0 makes NaN of zero gradients, by 0 / 0.",
        gradclip="A limit of 0 gives zeros, also for zero gradients (in Keras it is off, and an error in `ClipGradByNorm`, as "
        "there).",
        why="Zero gradients are ordinary, and a schedule may end at 0.",
        link="https://github.com/google-deepmind/optax/pull/1752",
        cases={
            _TF_NORM: _these("C2 C3"),
            **dict.fromkeys((_TF_GLOBAL, _BY_GLOBAL, _OPTAX), _these("C2")),
            "optax.clip_by_block_rms": ("threshold 0, zeros",),
        },
    ),
    Departure(
        key="negative-limit",
        native="A negative limit turns gradients round (torch, Paddle, optax), clips nothing (Keras, "
        "`tf.clip_by_global_norm`) or makes NaN; a NaN limit makes NaN, or clips nothing.",
        gradclip="A `ValueError`; a negative `clip_norm` of `tf.clip_by_norm` counts as 0, as there.",
        why="Nobody means it, and training against the gradient looks like training.",
        link="https://github.com/pytorch/pytorch/issues/31367",
        cases={
            _NORM: _NEGATIVE,
            _VALUE: ("-1", "nan", "-1, foreach=False", "nan, foreach=False"),
            _TF_NORM: _these("C5 E5", "clip_norm a NaN tensor"),
            _TF_GLOBAL: _NEGATIVE,
            _TF_VALUE: ("bounds of NaN",),
            _PADDLE_NORM: _NEGATIVE,
            _BY_GLOBAL: _NEGATIVE,
            _OPTAX: _NEGATIVE,
            "optax.clip": ("max_delta -1", "max_delta nan"),
            "optax.clip_by_block_rms": ("threshold -1", "threshold nan"),
            "optax.per_example_global_norm_clip": ("limit -1", "limit nan"),
            **_keras("clipnorm", _NEGATIVE),
            **_keras("global_clipnorm", _NEGATIVE),
            **_keras("clipvalue", ("-1",)),
        },
    ),
    Departure(
        key="finite-norm",
        native="Squares that overflow or vanish make the norm of finite gradients infinite, 0 or imprecise, and the gradients "
        "0, NaN or unclipped; in float16 a gradient of 300 is enough.",
        gradclip="Finite gradients have a finite norm, accurate to the last bits.",
        why="A healthy gradient is taken for an infinite one.",
        link="https://github.com/pytorch/pytorch/issues/193006",
        cases={
            _NORM: _these("F15 H1 H2 H3 H4 H5 H7 H8 H9 H10 H11 H14 K3"),
            _TF_NORM: _HALF + _EXTREME,
            _TF_GLOBAL: (*_HALF, *_EXTREME, "H4"),
            _PADDLE_NORM: _these("H1 H2 H3 H4 H5 H7 H8 H9 H10 H11 H12 H14 K3"),
            _BY_NORM: _these("H1 H2 H3 H5 H7 H10 H12 H14"),
            _BY_GLOBAL: _these("H1 H2 H3 H5 H7 H8 H9 H10 H12 H14"),
            _OPTAX: (*_HALF, *_EXTREME, "H4", "H11"),
            **_keras("clipnorm", _HALF + _EXTREME),
            **_keras("global_clipnorm", _HALF + _EXTREME, "tensorflow jax"),
            **_keras("global_clipnorm", _HALF + _these("H1 H2 H3 H5 H7 H8 H9 H10 H12 H14"), "torch"),
        },
    ),
    Departure(
        key="wide-arithmetic",
        native="`t * clip_norm` overflows, `1 / clip_norm` vanishes, and a limit beyond the dtype is infinite: gradients that "
        "need no clipping become infinite, NaN or 0. Keras on torch computes a float64 scale in float32.",
        gradclip="The arithmetic is at least float32 wide, and float64 for float64; a limit beyond the dtype only measures.",
        why="How large a limit may be should not depend on the dtype of the gradients.",
        link="https://github.com/tensorflow/tensorflow/pull/109327",
        cases={
            _TF_NORM: _these("B6 E12 F19"),
            _TF_GLOBAL: _these("B6 E12 F19"),
            _BY_NORM: _these("E12"),
            _BY_GLOBAL: _these("E12"),
            **_keras("clipnorm", _these("B6 E12 F19")),
            **_keras("global_clipnorm", _these("B6 E12 F19"), "tensorflow jax"),
            **_keras("global_clipnorm", _these("B6 E12 F1-float64"), "torch"),
        },
    ),
    Departure(
        key="accurate-norm",
        native="The norm is one running float32 sum, which stands still at 2**24: 4096 for the 5792.6 of 2**25 ones.",
        gradclip="The norm is right to a few units in the last place of float32, however many elements there are.",
        why="Large gradients are clipped too little.",
        link="https://github.com/PaddlePaddle/Paddle/issues/75212",
        cases={_PADDLE_NORM: _these("F20")},
    ),
    Departure(
        key="unclipped",
        native="Gradients below the limit are multiplied and divided by it, which rounds some of them, and turns subnormal "
        "ones to 0.",
        gradclip="Unclipped gradients are returned unchanged to the bit.",
        why="The documentation says unmodified.",
        link="https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/ops/clip_ops.py#L232",
        cases={
            _TF_NORM: _these("B4 B5 H11"),
            _TF_GLOBAL: _these("H11"),
            **_keras("clipnorm", _these("B4 B5 H11"), "tensorflow jax"),
            **_keras("clipnorm", _these("B4 B5"), "torch"),
            **_keras("global_clipnorm", _these("H11"), "tensorflow jax"),
        },
    ),
    Departure(
        key="twice",
        native="A parameter or gradient that is listed twice counts twice in the norm, and is scaled twice where that is done "
        "in place.",
        gradclip="It counts and is scaled once.",
        why="Tied weights, and overlapping parameter groups, have one gradient.",
        link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/utils/clip_grad.py#L229",
        cases={
            _NORM: _these("G11", "the same parameter twice", "two parameters that share a gradient"),
            _TF_GLOBAL: _these("G11"),
            _PADDLE_NORM: _these("G11", "the same parameter twice"),
            _BY_GLOBAL: _these("G11"),
            _OPTAX: _these("G11"),
            **_keras("global_clipnorm", _these("G11")),
        },
    ),
    Departure(
        key="iterator",
        native="`paddle.nn.utils.clip_grad_norm_` walks its argument twice: of a generator it returns the norm and clips "
        "nothing. `ClipGradByGlobalNorm` refuses one.",
        gradclip="An iterator is materialised, once.",
        why="Clipping silently does not happen.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/nn/utils/clip_grad_norm_.py#L115",
        cases={_PADDLE_NORM: ("a generator",), _BY_GLOBAL: ("a generator",)},
    ),
    Departure(
        key="sparse",
        native="Sparse gradients are an error (torch, Paddle in places), or their duplicate rows count separately "
        "(TensorFlow, Keras) or come back unmerged or dense.",
        gradclip="They are clipped as what they stand for: duplicate rows are merged before the norm, and the result is "
        "sparse.",
        why="The norm of rows that are added up later is not the norm of the gradient.",
        link="https://github.com/pytorch/pytorch/issues/4829",
        cases={
            _NORM: (
                "nn.Embedding(sparse=True)",
                *(
                    f"sparse, {kind}{foreach}"
                    for kind in ("coalesced", "uncoalesced")
                    for foreach in ("", ", foreach=True", ", foreach=False")
                ),
            ),
            _TF_NORM: (*_DUPLICATES, "IndexedSlices with duplicate rows, axes [0]"),
            _TF_GLOBAL: ("IndexedSlices, None and dense",),
            "tf.linalg.global_norm": _DUPLICATES,
            _BY_GLOBAL: ("SelectedRows",),
            **_keras("clipnorm", _DUPLICATES, "tensorflow"),
            **_keras("global_clipnorm", _DUPLICATES, "tensorflow"),
            **_keras("clipvalue", _DUPLICATES, "tensorflow"),
        },
    ),
    Departure(
        key="dtypes",
        native="No half precision on a CPU, no float64 and no complex in Paddle's clips, in places; no complex in TensorFlow "
        "and Keras (on JAX: wrong); no mixed dtypes in several; no `ClipGradByValue` under `to_static`.",
        gradclip="What a native lacks works where the framework has the arithmetic.",
        why="The mathematics is the same, and gradclip has it once.",
        link="https://github.com/tensorflow/tensorflow/issues/33622",
        cases={
            _TF_NORM: _COMPLEX,
            _TF_GLOBAL: (*_COMPLEX, *_these("I1 I2 I3 I4 I7")),
            _PADDLE_NORM: (*_NO_HALF, "I1", "I7"),
            _BY_NORM: (*_NO_HALF, *_COMPLEX, *_these("F1-float64 F2-float64 H8 H9 I1 I7")),
            _BY_GLOBAL: (*_NO_HALF, *_COMPLEX),
            _BY_VALUE: ("to static",),
            **_keras("clipnorm", _COMPLEX),
            **_keras("global_clipnorm", (*_COMPLEX, *_these("I1 I2 I3 I4 I7")), "tensorflow"),
            **_keras("global_clipnorm", _COMPLEX, "torch jax"),
        },
    ),
    Departure(
        key="any-number",
        native="A known norm must be a tensor, and a limit that is a tensor or a NumPy number must have the dtype of the "
        "gradients.",
        gradclip="Limits and known norms are Python numbers, or numbers and tensors of any real dtype.",
        why="A norm that has been reduced over processes, or read from a log, is a number.",
        link="https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/ops/clip_ops.py#L360",
        cases={
            "torch.nn.utils.clip_grads_with_norm_": ("total_norm a Python float",),
            _TF_GLOBAL: ("clip_norm a float64 tensor", "clip_norm an int tensor", "use_norm a Python float"),
            _OPTAX: (
                "max_norm a NumPy float64 and a bfloat16 gradient",
                "max_norm a float32 array and a bfloat16 gradient",
            ),
            **_keras("global_clipnorm", _these("E13"), "tensorflow"),
        },
    ),
    Departure(
        key="integers",
        native="Integer gradients become floats (optax's `clip`, Keras on torch and JAX), are clipped to bounds cut to "
        "integers (Paddle), or all become 0 (Keras on TensorFlow, bool).",
        gradclip="An error, except where whole bounds clip integers by value.",
        why="A clipped gradient has the dtype of the gradient, in which the result cannot be written.",
        link="https://github.com/keras-team/keras/blob/v3.15.1/keras/src/optimizers/base_optimizer.py#L1115",
        cases={
            "optax.clip": ("integer leaves",),
            _PADDLE_VALUE: ("1.5 of int32", "1.5 of int64"),
            **_keras("clipnorm", _INTEGERS, "torch jax"),
            **_keras("global_clipnorm", _INTEGERS, "torch jax"),
            **_keras("global_clipnorm", _these("F10"), "tensorflow"),
        },
    ),
    Departure(
        key="dtype-kept",
        native="Keras on JAX returns gradients of mixed dtypes all in the widest.",
        gradclip="Each clipped gradient has the dtype of the gradient.",
        why="The optimizer's state would change its dtype with the first step.",
        link="https://github.com/keras-team/keras/blob/v3.15.1/keras/src/optimizers/base_optimizer.py#L1197",
        cases=_keras("global_clipnorm", _these("I1 I2 I3 I4 I7"), "jax"),
    ),
    Departure(
        key="shape-kept",
        native="`ClipGradByGlobalNorm` returns a 0-d gradient as one of shape (1,).",
        gradclip="A clipped gradient has the shape of the gradient.",
        why="It is to be subtracted from a 0-d parameter.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/nn/clip.py#L845",
        cases={_BY_GLOBAL: _these("G3 G4")},
    ),
    Departure(
        key="nothing-to-clip",
        native="Without a single gradient `clip_grad_value_` of torch, and Keras's `global_clipnorm` on torch and JAX, are an "
        "error about an empty list.",
        gradclip="Nothing is clipped, with a warning where that looks like a mistake.",
        why="Some steps have no gradients, and torch's other functions and the other backends return.",
        link="https://github.com/pytorch/pytorch/pull/35753",
        cases={
            _VALUE: ("of nothing", "of parameters without gradients"),
            **_keras("global_clipnorm", _these("G5 G6"), "torch jax"),
        },
    ),
    Departure(
        key="summed-first",
        native="Under `tf.distribute` Keras clips the gradients of each replica, and then sums what is left.",
        gradclip="`gradclip.backends.keras.clipped` sums, then clips.",
        why="What is learned should not depend on the number of replicas.",
        link="https://github.com/tensorflow/tensorflow/issues/33929",
        cases={f"keras[tensorflow] {name}": ("two replicas",) for name in ("clipnorm", "global_clipnorm", "clipvalue")},
    ),
    Departure(
        key="derivative",
        native="The derivative of a clip by the global norm is NaN at zero gradients; that of `tf.clip_by_norm` is the "
        "clipped one where the norm is the limit.",
        gradclip="A clip that changes nothing has the derivative of the identity.",
        why="One zero gradient makes every derivative through it NaN.",
        link="https://github.com/tensorflow/tensorflow/issues/22048",
        cases={
            _TF_NORM: ("derivative where the norm is the limit",),
            _TF_GLOBAL: ("derivative at zeros",),
            _OPTAX: ("derivative at zeros",),
        },
    ),
)


def markdown() -> str:
    """The table for the README.

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
