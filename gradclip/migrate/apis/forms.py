"""The native equivalents that several frameworks share: one rule, written for the place where each framework clips.

A person applies them, because the code around the call changes with the framework.
"""

from __future__ import annotations

import dataclasses

from gradclip.migrate.apis.model import Target

__all__ = ["bounds", "elementwise", "global_norm", "measured", "ordinary", "tensor_norm"]

_ZERO = "A limit of 0 is off in Keras, and gives zeros elsewhere."
_NO_ZERO = "Paddle refuses a limit of 0."
_NONE = "It accepts no None."


def elementwise(limit: str, *, without: str) -> dict[str, Target]:
    """Clip each element to the range from -limit to limit."""
    value = "{" + limit + "}"
    targets = {
        "torch": Target("torch.nn.utils.clip_grad_value_", form=f"torch.nn.utils.clip_grad_value_(parameters, {value})"),
        "tensorflow": Target(
            "tensorflow.clip_by_value",
            form=f"[None if g is None else tf.clip_by_value(g, -{value}, {value}) for g in grads]",
            note=_NONE,
        ),
        "keras": Target(
            "keras.optimizers.Optimizer(clipvalue=)",
            form=f"keras.optimizers.Adam(clipvalue={value})",
            ordinary_limit=True,
            note=_ZERO,
        ),
        "paddle": Target(
            "paddle.nn.ClipGradByValue",
            form=f"paddle.optimizer.Adam(parameters=parameters, grad_clip=paddle.nn.ClipGradByValue({value}))",
            ordinary_limit=True,
            note=_NO_ZERO,
        ),
        "jax": Target("optax.clip", form=f"optax.chain(optax.clip({value}), optimizer)"),
    }
    return _by_hand(targets, without)


def bounds(lower: str, upper: str, *, without: str) -> dict[str, Target]:
    """Clip each element to the range between two bounds; a target with one bound serves if one bound is the other negated."""
    low, high = "{" + lower + "}", "{" + upper + "}"
    targets = {
        "tensorflow": Target(
            "tensorflow.clip_by_value",
            form=f"[None if g is None else tf.clip_by_value(g, {low}, {high}) for g in grads]",
            note=_NONE,
        ),
        "paddle": Target(
            "paddle.nn.ClipGradByValue",
            form=f"paddle.optimizer.Adam(parameters=parameters, grad_clip=paddle.nn.ClipGradByValue(max={high}, min={low}))",
            note="Paddle's order is max, min; it refuses bounds that cross.",
        ),
    }
    single = elementwise(upper, without="tensorflow paddle")
    symmetric = {name: dataclasses.replace(target, symmetric_bounds=True) for name, target in single.items()}
    return {**_by_hand(targets, without), **symmetric}


def tensor_norm(limit: str, *, without: str) -> dict[str, Target]:
    """Clip each gradient by its own Euclidean norm."""
    value = "{" + limit + "}"
    targets = {
        "tensorflow": Target(
            "tensorflow.clip_by_norm",
            form=f"[None if g is None else tf.clip_by_norm(g, {value}) for g in grads]",
            note=_NONE,
            exact=False,
            ordinary_limit=True,
        ),
        "keras": Target(
            "keras.optimizers.Optimizer(clipnorm=)",
            form=f"keras.optimizers.Adam(clipnorm={value})",
            note=_ZERO,
            exact=False,
            ordinary_limit=True,
        ),
        "paddle": Target(
            "paddle.nn.ClipGradByNorm",
            form=f"paddle.optimizer.Adam(parameters=parameters, grad_clip=paddle.nn.ClipGradByNorm({value}))",
            note=_NO_ZERO,
            exact=False,
            ordinary_limit=True,
        ),
    }
    return _by_hand(targets, without)


def global_norm(limit: str, *, without: str, nan_if_infinite: bool) -> dict[str, Target]:
    """Clip all gradients by one Euclidean norm; the natives form two groups, by their result for an infinite norm."""
    value = "{" + limit + "}"
    if nan_if_infinite:
        targets = {
            "tensorflow": Target(
                "tensorflow.clip_by_global_norm",
                form=f"grads, norm = tf.clip_by_global_norm(grads, {value})",
                exact=False,
                ordinary_limit=True,
            ),
            "keras": Target(
                "keras.optimizers.Optimizer(global_clipnorm=)",
                form=f"keras.optimizers.Adam(global_clipnorm={value})",
                note=_ZERO,
                exact=False,
                ordinary_limit=True,
            ),
        }
    else:
        targets = {
            "paddle": Target(
                "paddle.nn.ClipGradByGlobalNorm",
                form=f"paddle.optimizer.Adam(parameters=parameters, grad_clip=paddle.nn.ClipGradByGlobalNorm({value}))",
                exact=False,
                ordinary_limit=True,
            ),
            "jax": Target(
                "optax.clip_by_global_norm",
                form=f"optax.chain(optax.clip_by_global_norm({value}), optimizer)",
                exact=False,
                ordinary_limit=True,
            ),
        }
    return _by_hand(targets, without)


def measured(tensors: str, *, without: str, dropped: str = "") -> dict[str, Target]:
    """The Euclidean norm over tensors; one call replaces the other."""
    left_out = frozenset(dropped.split())
    targets = {
        "torch": Target("torch.nn.utils.get_total_norm", {tensors: "tensors"}, left_out, exact=False, note=_NONE),
        "tensorflow": Target("tensorflow.linalg.global_norm", {tensors: "t_list"}, left_out, exact=False),
        "jax": Target("optax.tree.norm", {tensors: "tree"}, left_out, exact=False),
    }
    return {framework: target for framework, target in targets.items() if framework not in without.split()}


def ordinary(target: Target) -> Target:
    """The same target, restricted to a limit above 0 and below infinity."""
    return dataclasses.replace(target, ordinary_limit=True)


def _by_hand(targets: dict[str, Target], without: str) -> dict[str, Target]:
    wanted = {framework: target for framework, target in targets.items() if framework not in without.split()}
    return {framework: dataclasses.replace(target, by_hand=True) for framework, target in wanted.items()}
