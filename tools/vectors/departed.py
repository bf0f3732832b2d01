"""The recorded cases in which gradclip and a native differ, by the departure that is the reason.

:mod:`gradclip.natives.departures` has the differences and reasons. The tests replay every recorded case of each native
against the native itself. They fail for a difference that is not listed here, and for a listed case in which the two agree.
Some flags of the vectors come from here too.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CASES", "departure_of"]

Cases = Mapping[str, tuple[str, ...]]  #: native function -> names of its recorded cases


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
_HALF_NORM = _these("F1-float16 F1-bfloat16 F2-float16 F2-bfloat16 F16 F18")
_EXTREME = _these("H1 H2 H3 H5 H6 H7 H8 H9 H10 H12 H14")
_COMPLEX = _these("F3 F4 F5 I5")
_NO_HALF = _these("F1-float16 F1-bfloat16 F2-float16 F2-bfloat16 F11 F12 F13 F14 F15 F16 F17 F18 F19 I2 I3 I4")
_INTEGERS = _these("F6 F7 F8 F9 F10 I6")
_DUPLICATES = ("IndexedSlices with duplicate rows",)

#: the key of a departure -> its cases
CASES: dict[str, Cases] = {
    "infinite-limit": {
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
    "zero-limit": {
        _TF_NORM: _these("C2 C3"),
        **dict.fromkeys((_TF_GLOBAL, _BY_GLOBAL, _OPTAX), _these("C2")),
        "optax.clip_by_block_rms": ("threshold 0, zeros",),
    },
    "negative-limit": {
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
        "optax.adaptive_grad_clip": ("clipping -1", "clipping nan"),
        "optax.per_example_global_norm_clip": ("limit -1", "limit nan"),
        **_keras("clipnorm", _NEGATIVE),
        **_keras("global_clipnorm", _NEGATIVE),
        **_keras("clipvalue", ("-1",)),
    },
    "finite-norm": {
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
    "wide-norm": {
        _NORM: (*_HALF_NORM, *_these("F11 F12 F13 F14 F17 F19")),
        "torch.nn.utils.get_total_norm": ("float16", "bfloat16"),
        "torch.nn.utils.clip_grads_with_norm_": ("both stages in float16",),
        _TF_GLOBAL: (*_HALF_NORM, "use_norm in float16"),
        "tf.linalg.global_norm": ("float16", "bfloat16", "both stages in float16"),
    },
    "wide-arithmetic": {
        _TF_NORM: _these("B6 E12 F19"),
        _TF_GLOBAL: _these("B6 E12 F19"),
        _BY_NORM: _these("E12"),
        _BY_GLOBAL: _these("E12"),
        **_keras("clipnorm", _these("B6 E12 F19")),
        **_keras("global_clipnorm", _these("B6 E12 F19"), "tensorflow jax"),
        **_keras("global_clipnorm", _these("B6 E12 F1-float64"), "torch"),
    },
    "accurate-norm": {_PADDLE_NORM: _these("F20")},
    "unclipped": {
        _TF_NORM: _these("B4 B5 H11"),
        _TF_GLOBAL: _these("H11"),
        **_keras("clipnorm", _these("B4 B5 H11"), "tensorflow jax"),
        **_keras("clipnorm", _these("B4 B5"), "torch"),
        **_keras("global_clipnorm", _these("H11"), "tensorflow jax"),
    },
    "twice": {
        _NORM: _these("G11", "the same parameter twice", "two parameters that share a gradient"),
        _TF_GLOBAL: _these("G11"),
        _PADDLE_NORM: _these("G11", "the same parameter twice"),
        _BY_GLOBAL: _these("G11"),
        _OPTAX: _these("G11"),
        **_keras("global_clipnorm", _these("G11")),
    },
    "iterator": {
        _PADDLE_NORM: ("a generator",),
        _TF_GLOBAL: ("of a dict", "of a generator"),
        _BY_GLOBAL: ("a generator",),
    },
    "sparse": {
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
        _TF_VALUE: _DUPLICATES,
        "tf.linalg.global_norm": _DUPLICATES,
        _BY_GLOBAL: ("SelectedRows",),
        **_keras("clipnorm", _DUPLICATES, "tensorflow"),
        **_keras("global_clipnorm", _DUPLICATES, "tensorflow"),
        **_keras("clipvalue", _DUPLICATES, "tensorflow"),
    },
    "dtypes": {
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
    "any-number": {
        "torch.nn.utils.clip_grads_with_norm_": ("total_norm a Python float",),
        _TF_GLOBAL: ("clip_norm a float64 tensor", "clip_norm an int tensor", "use_norm a Python float"),
        _OPTAX: (
            "max_norm a NumPy float64 and a bfloat16 gradient",
            "max_norm a float32 array and a bfloat16 gradient",
        ),
        **_keras("global_clipnorm", _these("E13"), "tensorflow"),
    },
    "integers": {
        "optax.clip": ("integer leaves",),
        _PADDLE_VALUE: ("1.5 of int32", "1.5 of int64"),
        **_keras("clipnorm", _INTEGERS, "torch jax"),
        **_keras("global_clipnorm", _INTEGERS, "torch jax"),
        **_keras("global_clipnorm", _these("F10"), "tensorflow"),
    },
    "dtype-kept": _keras("global_clipnorm", _these("I1 I2 I3 I4 I7"), "jax"),
    "legacy-programs": dict.fromkeys((_BY_NORM, _BY_VALUE), ("in a program of the legacy representation",)),
    "shape-kept": {_BY_GLOBAL: _these("G3 G4")},
    "nothing-to-clip": {
        _VALUE: ("of nothing", "of parameters without gradients"),
        **_keras("global_clipnorm", _these("G5 G6"), "torch jax"),
    },
    "summed-first": {f"keras[tensorflow] {name}": ("two replicas",) for name in ("clipnorm", "global_clipnorm", "clipvalue")},
    "derivative": {
        _TF_NORM: ("derivative where the norm is the limit",),
        _TF_GLOBAL: ("derivative at zeros",),
        _OPTAX: ("derivative at zeros",),
    },
}


def departure_of(native: str, case: str) -> str | None:
    """The key of the departure that lists a native's case."""
    return next((key for key, cases in CASES.items() if case in cases.get(native, ())), None)
