"""TensorFlow 2 and 1: ``tf.clip_by_*`` and the functions of ``tf.contrib``."""

from __future__ import annotations

from gradclip.migrate.apis import forms
from gradclip.migrate.apis.model import Api, Kind, Target, signature

__all__ = ["APIS"]

_DOCS = "https://www.tensorflow.org/api_docs/python/tf/"
_CONTRIB = "https://github.com/tensorflow/tensorflow/blob/v1.15.5/tensorflow/contrib/"
_SOURCE = "tensorflow 2.21.0, tensorflow/python/ops/clip_ops.py"
_NAME = frozenset({"name"})
_MODULES = ("tensorflow.", "tensorflow.compat.v1.", "tensorflow.compat.v2.", "tensorflow.python.ops.clip_ops.")


def _names(name: str, modules: tuple[str, ...] = _MODULES) -> tuple[str, ...]:
    return tuple(module + name for module in modules)


_FUNCTIONS: tuple[Api, ...] = (
    Api(
        code="GF201",
        framework="tensorflow",
        names=_names("clip_by_norm"),
        signature=signature("(t, clip_norm, axes=None, name=None)"),
        kind=Kind.RETURNED,
        returns="a new tensor",
        nones="an error: it takes one tensor",
        dialect="tensorflow.clip_by_norm",
        targets={
            "gradclip": Target("gradclip.clip_by_norm", exact=False),
            **forms.tensor_norm("clip_norm", without="tensorflow"),
        },
        since=_SOURCE,
        note="One tensor by its own norm, or its slices over axes; the result is a new tensor.",
        link=_DOCS + "clip_by_norm",
    ),
    Api(
        code="GF202",
        framework="tensorflow",
        names=_names("clip_by_global_norm"),
        signature=signature("(t_list, clip_norm, use_norm=None, name=None)"),
        kind=Kind.RETURNED,
        returns="a list of new tensors, and the norm before clipping",
        nones="it stays None",
        dialect="tensorflow.clip_by_global_norm",
        targets={
            "gradclip": Target("gradclip.clip_by_global_norm", exact=False),
            **forms.global_norm("clip_norm", without="tensorflow", nan_if_infinite=True),
        },
        since=_SOURCE,
        note="One norm over all tensors; the result is a new list and the norm before clipping.",
        link=_DOCS + "clip_by_global_norm",
    ),
    Api(
        code="GF203",
        framework="tensorflow",
        names=_names("clip_by_value"),
        signature=signature("(t, clip_value_min, clip_value_max, name=None)"),
        kind=Kind.RETURNED,
        returns="a new tensor",
        nones="an error: it takes one tensor",
        dialect="tensorflow.clip_by_value",
        targets={
            "gradclip": Target("gradclip.clip_by_value"),
            **forms.bounds("clip_value_min", "clip_value_max", without="tensorflow"),
        },
        since=_SOURCE,
        note="Each element between two bounds, the lower one first; the result is a new tensor.",
        link=_DOCS + "clip_by_value",
    ),
    Api(
        code="GF204",
        framework="tensorflow",
        names=(
            *_names("linalg.global_norm", ("tensorflow.", "tensorflow.compat.v1.", "tensorflow.compat.v2.")),
            "tensorflow.python.ops.clip_ops.global_norm",
        ),
        signature=signature("(t_list, name=None)"),
        kind=Kind.MEASURE,
        returns="the norm",
        nones="it counts for nothing",
        dialect="tensorflow.clip_by_global_norm",
        targets={
            "gradclip": Target("gradclip.global_norm", exact=False),
            **forms.measured("t_list", without="tensorflow", dropped="name"),
        },
        since=_SOURCE,
        note="The norm over all tensors, None left out.",
        link=_DOCS + "linalg/global_norm",
    ),
    Api(
        code="GF205",
        framework="tensorflow",
        names=("tensorflow.global_norm", "tensorflow.compat.v1.global_norm"),
        signature=signature("(t_list, name=None)"),
        kind=Kind.MEASURE,
        returns="the norm",
        nones="it counts for nothing",
        dialect="tensorflow.clip_by_global_norm",
        targets={
            "gradclip": Target("gradclip.global_norm", exact=False),
            "tensorflow": Target("tensorflow.linalg.global_norm", note="It is the same function under its present name."),
            **forms.measured("t_list", without="tensorflow", dropped="name"),
        },
        status="removed",
        since=f"2.0, where only tf.compat.v1 keeps it; {_SOURCE}",
        note="TensorFlow 2 has it as tf.linalg.global_norm.",
        link=_DOCS + "linalg/global_norm",
    ),
    Api(
        code="GF206",
        framework="tensorflow",
        names=_names("clip_by_average_norm", ("tensorflow.", "tensorflow.compat.v1.", "tensorflow.python.ops.clip_ops.")),
        signature=signature("(t, clip_norm, name=None)"),
        kind=Kind.RETURNED,
        returns="a new tensor",
        nones="an error: it takes one tensor",
        dialect="",
        targets={},
        status="removed",
        since=f"2.0, where only tf.compat.v1 keeps it; {_SOURCE}",
        note="It clips by clip_norm times the number of elements: "
        "tf.clip_by_norm(t, clip_norm * tf.cast(tf.size(t), t.dtype)) does the same.",
        link=_DOCS + "compat/v1/clip_by_average_norm",
    ),
)

_PAIRS = signature("(gradients_to_variables, max_norm)")
_EACH = "[(None if g is None else gradclip.clip_by_norm(g, {max_norm}), v) for g, v in gradients_to_variables]"

_CONTRIB_APIS: tuple[Api, ...] = (
    Api(
        code="GF221",
        framework="tensorflow",
        names=(
            "tensorflow.contrib.layers.optimize_loss(clip_gradients=)",
            "tf_slim.optimize_loss(clip_gradients=)",
            "tf_slim.layers.optimize_loss(clip_gradients=)",
        ),
        signature=signature(
            "(loss, global_step, learning_rate, optimizer, gradient_noise_scale=None, gradient_multipliers=None, "
            "clip_gradients=None, learning_rate_decay_fn=None, update_ops=None, variables=None, name=None, summaries=None, "
            "colocate_gradients_with_ops=False, increment_global_step=True)"
        ),
        kind=Kind.KEYWORD,
        returns="a training operation, whose gradients are clipped",
        nones="it stays None",
        keyword="clip_gradients",
        dialect="tensorflow.clip_by_global_norm",
        dialect_arguments={"clip_gradients": "clip_norm"},
        targets={
            "gradclip": Target(
                "gradclip.clip_by_global_norm",
                by_hand=True,
                form="grads, norm = gradclip.clip_by_global_norm(grads, {clip_gradients})",
                exact=False,
            ),
            **forms.global_norm("clip_gradients", without="", nan_if_infinite=True),
        },
        status="removed",
        since="2.0; tensorflow 1.15.5, tensorflow/contrib/layers/python/layers/optimizers.py",
        note="A float clips by one norm over all gradients; a callable gets the (gradient, variable) pairs.",
        link=_CONTRIB + "layers/python/layers/optimizers.py",
    ),
    Api(
        code="GF222",
        framework="tensorflow",
        names=(
            "tensorflow.contrib.training.clip_gradient_norms",
            "tensorflow.contrib.slim.learning.clip_gradient_norms",
            "tf_slim.training.clip_gradient_norms",
            "tf_slim.learning.clip_gradient_norms",
        ),
        signature=_PAIRS,
        kind=Kind.RETURNED,
        returns="a list of new (gradient, variable) pairs",
        nones="it stays None",
        dialect="tensorflow.clip_by_norm",
        dialect_arguments={"max_norm": "clip_norm"},
        targets={
            "gradclip": Target("gradclip.clip_by_norm", by_hand=True, form=_EACH, exact=False),
            **forms.tensor_norm("max_norm", without=""),
        },
        status="removed",
        since="2.0; tensorflow 1.15.5, tensorflow/contrib/training/python/training/training.py",
        note="Each gradient of the (gradient, variable) pairs by its own norm; None stays; sparse rows are not merged.",
        link=_CONTRIB + "training/python/training/training.py",
    ),
    Api(
        code="GF223",
        framework="tensorflow",
        names=("tensorflow.contrib.training.clip_gradient_norms_fn", "tf_slim.training.clip_gradient_norms_fn"),
        signature=signature("(max_norm)"),
        kind=Kind.OBJECT,
        returns="a function from pairs to pairs",
        nones="it stays None",
        dialect="tensorflow.clip_by_norm",
        dialect_arguments={"max_norm": "clip_norm"},
        targets={
            "gradclip": Target(
                "gradclip.clip_by_norm",
                by_hand=True,
                form="lambda pairs: [(None if g is None else gradclip.clip_by_norm(g, {max_norm}), v) for g, v in pairs]",
                exact=False,
            ),
            **forms.tensor_norm("max_norm", without=""),
        },
        status="removed",
        since="2.0; tensorflow 1.15.5, tensorflow/contrib/training/python/training/training.py",
        note="A function that clips each gradient of (gradient, variable) pairs by its own norm.",
        link=_CONTRIB + "training/python/training/training.py",
    ),
    Api(
        code="GF224",
        framework="tensorflow",
        names=(
            "tensorflow.contrib.slim.learning.create_train_op(clip_gradient_norm=)",
            "tf_slim.learning.create_train_op(clip_gradient_norm=)",
        ),
        signature=signature(
            "(total_loss, optimizer, global_step=0, update_ops=None, variables_to_train=None, clip_gradient_norm=0, "
            "summarize_gradients=False, gate_gradients=1, aggregation_method=None, colocate_gradients_with_ops=False, "
            "gradient_multipliers=None, check_numerics=True)"
        ),
        kind=Kind.KEYWORD,
        returns="a training operation, whose gradients are clipped",
        nones="it stays None",
        keyword="clip_gradient_norm",
        dialect="keras.clipnorm",  # in this dialect 0 means no clipping
        dialect_arguments={"clip_gradient_norm": "clipnorm"},
        targets={
            "gradclip": Target(
                "gradclip.clip_by_norm",
                by_hand=True,
                form="[(None if g is None else gradclip.clip_by_norm(g, {clip_gradient_norm}), v) for g, v in pairs]",
                exact=False,
                ordinary_limit=True,
            ),
            **forms.tensor_norm("clip_gradient_norm", without=""),
        },
        status="removed",
        since="2.0; tensorflow 1.15.5, tensorflow/contrib/slim/python/slim/learning.py",
        note="Each gradient by its own norm; 0 is off.",
        link=_CONTRIB + "slim/python/slim/learning.py",
    ),
    Api(
        code="GF225",
        framework="tensorflow",
        names=("tensorflow.contrib.estimator.clip_gradients_by_norm",),
        signature=signature("(optimizer, clip_norm)"),
        kind=Kind.OBJECT,
        returns="an optimizer",
        nones="it stays None",
        dialect="tensorflow.clip_by_global_norm",
        targets={
            "gradclip": Target(
                "gradclip.clip_by_global_norm",
                by_hand=True,
                form="grads, norm = gradclip.clip_by_global_norm(grads, {clip_norm})",
                exact=False,
            ),
            **forms.global_norm("clip_norm", without="", nan_if_infinite=True),
        },
        status="removed",
        since="2.0; tensorflow 1.10.1, tensorflow/contrib/estimator/python/estimator/extenders.py",
        note="An optimizer that clips by one norm over all gradients, which its name does not say.",
        link="https://www.tensorflow.org/versions/r1.15/api_docs/python/tf/contrib/estimator/clip_gradients_by_norm",
    ),
    Api(
        code="GF226",
        framework="tensorflow",
        names=("tensorflow.contrib.layers.adaptive_clipping_fn",),
        signature=signature(
            "(std_factor=2.0, decay=0.95, static_max_norm=None, global_step=None, report_summary=False, epsilon=1e-8, "
            "name=None)"
        ),
        kind=Kind.OBJECT,
        returns="a function from pairs to pairs",
        nones="it stays None",
        dialect="",
        targets={},
        status="removed",
        since="2.0; tensorflow 1.15.5, tensorflow/contrib/layers/python/layers/optimizers.py",
        note="The limit follows a moving average of the norm: compute it, and pass it to gradclip.clip_by_global_norm.",
        link=_CONTRIB + "layers/python/layers/optimizers.py",
    ),
)

APIS: tuple[Api, ...] = (*_FUNCTIONS, *_CONTRIB_APIS)
