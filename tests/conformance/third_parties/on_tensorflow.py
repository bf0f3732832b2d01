"""The clips of packages for TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from conformance.third_parties.clips import ADAPTIVE, Clip, alone, imported

from gradclip.conformance import Target, function_target
from gradclip.conformance.target import DEFAULT_CLAIMS, ComposedTarget, load_arrays

__all__ = ["CLIPS"]

NORM, GLOBAL_NORM = "tensorflow.clip_by_norm", "tensorflow.clip_by_global_norm"


def _of_pairs(make: Callable[[Any], Callable[[list[Any]], Any]], operation: str, name: str) -> Target:
    """A clip of pairs of a gradient and a variable."""

    def run(grads: Sequence[Any], clip_norm: Any) -> list[Any]:
        pairs = [(one, f"variable {number}") for number, one in enumerate(grads)]
        return [one for one, _ in make(clip_norm)(pairs)]

    return function_target(run, operation, "tensorflow", name=name, takes="gradients", in_place=False)


def _tf_slim() -> Target:
    return _of_pairs(imported("tf_slim.training.training", "clip_gradient_norms_fn"), NORM, "tf-slim")


def _tf_agents() -> Target:
    return _of_pairs(alone("tf_agents.utils.eager_utils", "clip_gradient_norms_fn"), NORM, "tf-agents")


def _tensorpack() -> Target:
    kind = alone("tensorpack.tfutils.gradproc", "GlobalNormClip")
    return _of_pairs(lambda norm: kind(norm).process, GLOBAL_NORM, "tensorpack")


def _gradient_accumulator() -> Target:
    clip = imported("gradient_accumulator.agc", "adaptive_clip_grad")

    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        parameters, eps = arguments["parameters"], arguments.get("eps", 1e-3)
        return clip(parameters, list(gradients), clip_factor=arguments["clipping"], eps=eps), None

    claims = {ADAPTIVE: DEFAULT_CLAIMS | {"functional", "eps", "scalar"}}
    return ComposedTarget("gradient-accumulator", load_arrays("tensorflow"), claims, {ADAPTIVE: run})


CLIPS: tuple[Clip, ...] = (
    Clip("tf-slim", "tf_slim.training.training.clip_gradient_norms_fn", NORM, _tf_slim),
    Clip("tf-agents", "tf_agents.utils.eager_utils.clip_gradient_norms_fn", NORM, _tf_agents),
    Clip("tensorpack", "tensorpack.tfutils.gradproc.GlobalNormClip", GLOBAL_NORM, _tensorpack),
    Clip("gradient-accumulator", "gradient_accumulator.agc.adaptive_clip_grad", ADAPTIVE, _gradient_accumulator),
)
