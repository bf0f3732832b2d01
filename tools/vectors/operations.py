"""The 17 operations: each with its formula, its documentation, and its names in the departures."""

from __future__ import annotations

from vectors import bounds, formulas, slices
from vectors.spec import Operation

_TORCH = "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils."
_TF = "https://www.tensorflow.org/api_docs/python/tf/"
_PADDLE = "https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/"
_OPTAX = "https://optax.readthedocs.io/en/latest/api/transformations.html#optax."
_KERAS = "https://keras.io/api/optimizers/"
_KERAS_BACKENDS = ("tensorflow", "torch", "jax")
_ON_KERAS = tuple(f"keras@{backend}" for backend in _KERAS_BACKENDS)

_ORDERED = "g * min(1, max_norm / (n + 1e-6)), n = the norm_type norm of the norm_type norms of all gradients"
_OWN = "g * {0} / max(||g||, {0})"
_GLOBAL = "g * {0} / max(n, {0}), n = sqrt(sum of ||g||**2 over all gradients)"


def _keras(argument: str) -> tuple[str, ...]:
    return tuple(f"keras[{backend}] {argument}" for backend in _KERAS_BACKENDS)


OPERATIONS = (
    Operation(
        "torch.clip_grad_norm_",
        formulas.by_order,
        _ORDERED,
        f"{_TORCH}clip_grad_norm_.html",
        ("torch.nn.utils.clip_grad_norm_",),
        ("torch",),
        limit="max_norm",
        in_place=True,
        version="1.1.0",
    ),
    Operation(
        "torch.clip_grad_value_",
        bounds.symmetric("clip_value", text=True),
        "max(min(g, clip_value), -clip_value)",
        f"{_TORCH}clip_grad_value_.html",
        ("torch.nn.utils.clip_grad_value_",),
        ("torch",),
        limit="clip_value",
        by_value=True,
        in_place=True,
    ),
    Operation(
        "tensorflow.clip_by_norm",
        slices.by_axes,
        _OWN.format("clip_norm") + ", ||g|| over axes, which are kept",
        f"{_TF}clip_by_norm",
        ("tf.clip_by_norm",),
        ("tensorflow",),
        limit="clip_norm",
    ),
    Operation(
        "tensorflow.clip_by_global_norm",
        formulas.global_norm("clip_norm", nan_if_infinite=True),
        _GLOBAL.format("clip_norm") + ", or use_norm; all NaN where n is infinite",
        f"{_TF}clip_by_global_norm",
        ("tf.clip_by_global_norm",),
        ("tensorflow",),
        limit="clip_norm",
    ),
    Operation(
        "tensorflow.clip_by_value",
        bounds.between,
        "max(min(g, clip_value_max), clip_value_min)",
        f"{_TF}clip_by_value",
        ("tf.clip_by_value",),
        ("tensorflow",),
        by_value=True,
    ),
    Operation(
        "paddle.ClipGradByNorm",
        formulas.own_norm("clip_norm", text=True, zero="error"),
        _OWN.format("clip_norm"),
        f"{_PADDLE}ClipGradByNorm_en.html",
        ("paddle.nn.ClipGradByNorm",),
        ("paddle",),
        limit="clip_norm",
    ),
    Operation(
        "paddle.ClipGradByGlobalNorm",
        formulas.global_norm("clip_norm", text=True),
        _GLOBAL.format("clip_norm"),
        f"{_PADDLE}ClipGradByGlobalNorm_en.html",
        ("paddle.nn.ClipGradByGlobalNorm",),
        ("paddle",),
        limit="clip_norm",
        in_place=True,
    ),
    Operation(
        "paddle.ClipGradByValue",
        bounds.max_first,
        "max(min(g, max), min), min = -max unless it is given",
        f"{_PADDLE}ClipGradByValue_en.html",
        ("paddle.nn.ClipGradByValue",),
        ("paddle",),
        limit="max",
        by_value=True,
    ),
    Operation(
        "paddle.clip_grad_norm_",
        formulas.paddle_by_order,
        _ORDERED + ", norm_type one of 0, 1, 2 and inf",
        f"{_PADDLE}utils/clip_grad_norm__en.html",
        ("paddle.nn.utils.clip_grad_norm_",),
        ("paddle",),
        limit="max_norm",
        in_place=True,
        version="1.1.0",
    ),
    Operation(
        "optax.clip_by_global_norm",
        formulas.global_norm("max_norm"),
        "g if n < max_norm else g / n * max_norm, n = sqrt(sum of ||g||**2 over all gradients)",
        f"{_OPTAX}clip_by_global_norm",
        ("optax.clip_by_global_norm",),
        ("optax",),
        limit="max_norm",
    ),
    Operation(
        "optax.clip",
        bounds.symmetric("max_delta"),
        "max(min(g, max_delta), -max_delta)",
        f"{_OPTAX}clip",
        ("optax.clip",),
        ("optax",),
        limit="max_delta",
        by_value=True,
    ),
    Operation(
        "optax.clip_by_block_rms",
        formulas.own_norm("threshold", mean=True),
        "g / max(1, rms(g) / threshold), rms(g) = ||g|| / sqrt(size of g)",
        f"{_OPTAX}clip_by_block_rms",
        ("optax.clip_by_block_rms",),
        ("optax",),
        limit="threshold",
    ),
    Operation(
        "optax.adaptive_grad_clip",
        slices.by_units,
        "for each unit u: g_u if ||g_u|| < L_u else g_u * L_u / max(||g_u||, 1e-6), L_u = clipping * max(||w_u||, eps)",
        f"{_OPTAX}adaptive_grad_clip",
        ("optax.adaptive_grad_clip",),
        ("optax",),
        limit="clipping",
    ),
    Operation(
        "optax.per_example_global_norm_clip",
        slices.by_examples,
        "sum over b of g_b * min(1, l2_norm_clip / n_b), n_b = sqrt(sum of ||g_b||**2 over all gradients)",
        f"{_OPTAX}per_example_global_norm_clip",
        ("optax.per_example_global_norm_clip",),
        ("optax",),
        limit="l2_norm_clip",
    ),
    Operation(
        "keras.clipnorm",
        formulas.own_norm("clipnorm", zero="off"),
        _OWN.format("clipnorm") + "; 0 is off",
        _KERAS,
        _keras("clipnorm"),
        _ON_KERAS,
        limit="clipnorm",
    ),
    Operation(
        "keras.global_clipnorm",
        formulas.global_norm("global_clipnorm", off_at_zero=True, nan_if_infinite=True),
        _GLOBAL.format("global_clipnorm") + "; all NaN where n is infinite; 0 is off",
        _KERAS,
        _keras("global_clipnorm"),
        _ON_KERAS,
        limit="global_clipnorm",
    ),
    Operation(
        "keras.clipvalue",
        bounds.symmetric("clipvalue", off_at_zero=True),
        "max(min(g, clipvalue), -clipvalue); 0 is off",
        _KERAS,
        _keras("clipvalue"),
        _ON_KERAS,
        limit="clipvalue",
        by_value=True,
    ),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
