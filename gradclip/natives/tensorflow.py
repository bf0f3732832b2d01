"""TensorFlow 2 and 1: ``tf.clip_by_*`` and the functions of ``tf.contrib``."""

from __future__ import annotations

from functools import partial

from gradclip.natives.model import Applied, Native

__all__ = ["NATIVES"]

_native = partial(Native, source="tensorflow 2.21.0, tensorflow/python/ops/clip_ops.py")
_contrib = partial(Native, status="removed", since="2.0", none="it stays None")
_DOCS = "https://www.tensorflow.org/api_docs/python/tf/"
_CONTRIB = "https://github.com/tensorflow/tensorflow/blob/v1.15.5/tensorflow/contrib/"
_TRAINING = "tensorflow 1.15.5, tensorflow/contrib/training/python/training/training.py"
_LAYERS = "tensorflow 1.15.5, tensorflow/contrib/layers/python/layers/optimizers.py"
_MODULES = ("tensorflow.", "tensorflow.compat.v1.", "tensorflow.compat.v2.", "tensorflow.python.ops.clip_ops.")
_ALL_ZERO = "gradients become NaN if all are zero"
_GLOBAL, _EACH = "tensorflow.clip_by_global_norm", "tensorflow.clip_by_norm"
_ZEROS, _ALL, _SEPARATE = "zero gradients become NaN", "every gradient becomes NaN", "they count separately"


def _names(name: str, modules: tuple[str, ...] = _MODULES) -> tuple[str, ...]:
    return tuple(module + name for module in modules)


NATIVES = (
    _native(
        code="GF201",
        names=_names("clip_by_norm"),
        applied=Applied.TENSOR,
        tensors="t",
        note="One tensor by its own norm, or its slices over axes; the result is a new tensor.",
        link=_DOCS + "clip_by_norm",
        departs={
            "zero-limit": _ZEROS,
            "infinite-limit": _ALL,
            "negative-limit": _ZEROS,
            "sparse": _SEPARATE,
        },
        departs_also=("finite-norm", "wide-arithmetic", "unclipped", "dtypes", "derivative"),
    ),
    _native(
        code="GF202",
        names=_names("clip_by_global_norm"),
        applied=Applied.TENSORS,
        tensors="t_list",
        returns_norm=True,
        note="One norm over all tensors; the result is a new list and the norm before clipping.",
        link=_DOCS + "clip_by_global_norm",
        departs={
            "zero-limit": _ALL_ZERO,
            "infinite-limit": _ALL,
            "negative-limit": "nothing is clipped",
            "sparse": _SEPARATE,
            "twice": "it counts twice",
            "iterator": "an error",
        },
        departs_also=(*("finite-norm", "wide-norm", "wide-arithmetic", "unclipped", "dtypes", "any-number", "derivative"),),
    ),
    _native(
        code="GF203",
        names=_names("clip_by_value"),
        applied=Applied.TENSOR,
        tensors="t",
        note="Each element between two bounds, the lower one first; the result is a new tensor.",
        link=_DOCS + "clip_by_value",
        departs={"negative-limit": "a bound of NaN makes NaN of every element", "sparse": _SEPARATE},
        departs_also=("integers",),
    ),
    _native(
        code="GF204",
        names=(*_names("linalg.global_norm", _MODULES[:3]), "tensorflow.python.ops.clip_ops.global_norm"),
        applied=Applied.NORM,
        signature_text="(t_list, name=None)",
        dialect_name=_GLOBAL,
        note="The norm over all tensors, None left out.",
        link=_DOCS + "linalg/global_norm",
        departs_also=("wide-norm", "sparse"),
    ),
    _native(
        code="GF205",
        names=_names("global_norm", _MODULES[:2]),
        applied=Applied.NORM,
        signature_text="(t_list, name=None)",
        dialect_name=_GLOBAL,
        status="removed",
        since="2.0, where only tf.compat.v1 keeps it",
        now="GF204",
        note="TensorFlow 2 has it as tf.linalg.global_norm.",
        link=_DOCS + "linalg/global_norm",
    ),
    _native(
        code="GF206",
        names=_names("clip_by_average_norm", ("tensorflow.", "tensorflow.compat.v1.", "tensorflow.python.ops.clip_ops.")),
        applied=Applied.TENSOR,
        signature_text="(t, clip_norm, name=None)",
        dialect_name="",
        status="removed",
        since="2.0, where only tf.compat.v1 keeps it",
        note="It clips by clip_norm times the number of elements: "
        "tf.clip_by_norm(t, clip_norm * tf.cast(tf.size(t), t.dtype)) does the same.",
        link=_DOCS + "compat/v1/clip_by_average_norm",
    ),
    _contrib(
        code="GF221",
        ours="grads, norm = gradclip.clip_by_global_norm(grads, {clip_gradients})",
        names=_names("optimize_loss(clip_gradients=)", ("tensorflow.contrib.layers.", "tf_slim.", "tf_slim.layers.")),
        applied=Applied.KEYWORD,
        signature_text="(loss, global_step, learning_rate, optimizer, gradient_noise_scale=None, gradient_multipliers=None, "
        "clip_gradients=None, learning_rate_decay_fn=None, update_ops=None, variables=None, name=None, summaries=None, "
        "colocate_gradients_with_ops=False, increment_global_step=True)",
        dialect_name=_GLOBAL,
        called={"clip_gradients": "clip_norm"},
        returned="a training operation, whose gradients are clipped",
        source=_LAYERS,
        note="A float clips by one norm over all gradients; a callable gets the (gradient, variable) pairs.",
        link=_CONTRIB + "layers/python/layers/optimizers.py",
    ),
    _contrib(
        code="GF222",
        ours="[(None if g is None else gradclip.clip_by_norm(g, {max_norm}), v) for g, v in {gradients_to_variables}]",
        names=_names(
            "clip_gradient_norms",
            ("tensorflow.contrib.training.", "tensorflow.contrib.slim.learning.", "tf_slim.training.", "tf_slim.learning."),
        ),
        applied=Applied.PAIRS,
        signature_text="(gradients_to_variables, max_norm)",
        dialect_name=_EACH,
        called={"max_norm": "clip_norm"},
        source=_TRAINING,
        note="Each gradient of the (gradient, variable) pairs by its own norm; None stays; sparse rows are not merged.",
        link=_CONTRIB + "training/python/training/training.py",
    ),
    _contrib(
        code="GF223",
        ours="lambda pairs: [(None if g is None else gradclip.clip_by_norm(g, {max_norm}), v) for g, v in pairs]",
        names=_names("training.clip_gradient_norms_fn", ("tensorflow.contrib.", "tf_slim.")),
        applied=Applied.OPTIMIZER,
        signature_text="(max_norm)",
        dialect_name=_EACH,
        called={"max_norm": "clip_norm"},
        returned="a function from pairs to pairs",
        source=_TRAINING,
        note="A function that clips each gradient of (gradient, variable) pairs by its own norm.",
        link=_CONTRIB + "training/python/training/training.py",
    ),
    _contrib(
        code="GF224",
        ours="[(None if g is None else gradclip.clip_by_norm(g, {clip_gradient_norm}), v) for g, v in pairs]",
        names=_names("learning.create_train_op(clip_gradient_norm=)", ("tensorflow.contrib.slim.", "tf_slim.")),
        applied=Applied.KEYWORD,
        signature_text="(total_loss, optimizer, global_step=0, update_ops=None, variables_to_train=None, clip_gradient_norm=0, "
        "summarize_gradients=False, gate_gradients=1, aggregation_method=None, colocate_gradients_with_ops=False, "
        "gradient_multipliers=None, check_numerics=True)",
        dialect_name="keras.clipnorm",  # in this dialect 0 means no clipping
        called={"clip_gradient_norm": "clipnorm"},
        returned="a training operation, whose gradients are clipped",
        source="tensorflow 1.15.5, tensorflow/contrib/slim/python/slim/learning.py",
        note="Each gradient by its own norm; 0 is off.",
        link=_CONTRIB + "slim/python/slim/learning.py",
    ),
    _contrib(
        code="GF225",
        ours="grads, norm = gradclip.clip_by_global_norm(grads, {clip_norm})",
        names=("tensorflow.contrib.estimator.clip_gradients_by_norm",),
        applied=Applied.OPTIMIZER,
        signature_text="(optimizer, clip_norm)",
        dialect_name=_GLOBAL,
        source="tensorflow 1.10.1, tensorflow/contrib/estimator/python/estimator/extenders.py",
        note="An optimizer that clips by one norm over all gradients, which its name does not say.",
        link="https://www.tensorflow.org/versions/r1.15/api_docs/python/tf/contrib/estimator/clip_gradients_by_norm",
    ),
    _contrib(
        code="GF226",
        names=("tensorflow.contrib.layers.adaptive_clipping_fn",),
        applied=Applied.OPTIMIZER,
        signature_text="(std_factor=2.0, decay=0.95, static_max_norm=None, global_step=None, report_summary=False, "
        "epsilon=1e-8, name=None)",
        dialect_name="",
        returned="a function from pairs to pairs",
        source=_LAYERS,
        note="The limit follows a moving average of the norm: compute it, and pass it to gradclip.clip_by_global_norm.",
        link=_CONTRIB + "layers/python/layers/optimizers.py",
    ),
)
