"""The clips of packages for PyTorch that are functions; ``steps_on_torch`` has those that are part of a step."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import torch
from conformance.third_parties.clips import ADAPTIVE, Clip, alone, function_alone, imported
from conformance.third_parties.torch_targets import EACH, NORM, VALUE, Model, adaptive, of_parameters

from gradclip.conformance import Target, function_target
from gradclip.conformance.target import DEFAULT_CLAIMS, ComposedTarget, load_arrays

__all__ = ["CLIPS"]

PER_EXAMPLE = "optax.per_example_global_norm_clip"


def _timm(mode: str, operation: str) -> Target:
    clip = alone("timm.utils.clip_grad", "dispatch_clip_grad")
    if mode == "norm":

        def by_norm(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> None:
            clip(parameters, max_norm, mode="norm", norm_type=norm_type)

        return of_parameters(by_norm, operation, "timm")

    def by_value(parameters: Any, clip_value: Any) -> None:
        clip(parameters, clip_value, mode="value")

    return of_parameters(by_value, operation, "timm")


def _pytorch_optimizer() -> Target:
    clip = imported("pytorch_optimizer.optimizer.utils", "clip_grad_norm")
    return of_parameters(lambda parameters, max_norm: clip(parameters, max_norm), NORM, "pytorch_optimizer")


def _torchopt() -> Target:
    make = imported("torchopt.clip", "clip_grad_norm")

    def clip(grads: Sequence[Any], max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
        transformation = make(max_norm, norm_type, error_if_nonfinite)
        clipped, _ = transformation.update(list(grads), transformation.init(list(grads)), inplace=False)
        return list(clipped)

    return function_target(clip, NORM, "torch", name="torchopt", takes="gradients", in_place=False)


def _zclip() -> Target:
    made = imported("zclip.zclip", "ZClip")()

    def clip(parameters: Iterable[Any], max_norm: Any) -> Any:
        model = Model(parameters)
        norm = made._compute_grad_norm(model) if model.params else 0.0
        made.apply_in_place_clipping(model, norm, max_norm)
        return norm

    return of_parameters(clip, NORM, "zclip")


def _accelerate() -> Target:
    accelerator = imported("accelerate", "Accelerator")(cpu=True)

    def clip(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> Any:
        return accelerator.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    return of_parameters(clip, NORM, "accelerate")


def _timm_agc() -> Target:
    clip = alone("timm.utils.agc", "adaptive_clip_grad")
    return adaptive(lambda params, clipping, eps: clip(params, clipping, eps), "timm agc")


def _agc_optims() -> Target:
    clip = imported("agc_optims.utils", "agc")
    return adaptive(lambda params, clipping, eps: [clip(one, clipping, eps) for one in params], "agc-optims")


def _opacus() -> Target:
    optimizer = imported("opacus.optimizers.optimizer", "DPOptimizer")

    def run(gradients: Iterable[Any], arguments: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
        params = []
        for gradient in gradients:
            one = torch.nn.Parameter(torch.zeros(gradient.shape[1:], dtype=gradient.dtype))
            one.grad_sample = gradient  # type: ignore[attr-defined]
            params.append(one)
        made = optimizer(
            torch.optim.SGD(params, 0.1),
            noise_multiplier=0.0,
            max_grad_norm=arguments["l2_norm_clip"],
            expected_batch_size=1,
        )
        made.clip_and_accumulate()
        return [one.summed_grad for one in params], None  # type: ignore[attr-defined]

    claims = {PER_EXAMPLE: DEFAULT_CLAIMS | {"functional"}}
    return ComposedTarget("opacus", load_arrays("torch"), claims, {PER_EXAMPLE: run})


def _pytorch_optimizer_agc() -> Target:
    clip = imported("pytorch_optimizer.optimizer.agc", "agc")

    def run(params: Sequence[Any], clipping: float, eps: float) -> None:
        for one in params:
            one.grad = clip(one.detach(), one.grad, agc_eps=eps, agc_clip_val=clipping)

    return adaptive(run, "pytorch_optimizer agc", "functional")


def _pfrl() -> Target:
    return of_parameters(alone("pfrl.utils.clip_l2_grad_norm", "clip_l2_grad_norm_"), NORM, "pfrl")


def _heavyball() -> Target:
    utils = importlib.import_module("heavyball.utils")
    utils.compile_mode = None  # the same function, without a compilation for each shape

    def run(grads: Sequence[Any], clip_norm: Any) -> Any:
        return utils.l2_clip_(list(grads), clip_norm)

    return function_target(run, EACH, "torch", name="heavyball", takes="gradients", in_place=True)


def _rllib(mode: str, operation: str) -> Target:
    known = {"torch": torch, "Optional": Optional, "TensorType": Any, "PublicAPI": lambda function: function}
    names = ("clip_gradients", "compute_global_norm")
    clip = function_alone("ray", "ray/rllib/utils/torch_utils.py", names, known)["clip_gradients"]

    def run(grads: Sequence[Any], limit: Any) -> Any:
        params = dict(enumerate(grads))
        norm = clip(params, grad_clip=limit, grad_clip_by=mode)
        return list(params.values()), norm

    return function_target(run, operation, "torch", name="rllib", takes="gradients", in_place=mode != "value")


def _smartclip_agc() -> Target:
    apply, kind = imported("smartclip.backends.torch", "apply"), imported("smartclip", "AGC")

    def run(params: Sequence[Any], clipping: float, eps: float) -> None:
        apply(Model(params), kind(clipping=clipping, exclude_bias_bn=False, scope="per_param"))

    return adaptive(run, "smartclip AGC")


CLIPS: tuple[Clip, ...] = (
    Clip("timm", "timm.utils.dispatch_clip_grad(mode='norm')", NORM, lambda: _timm("norm", NORM)),
    Clip("timm", "timm.utils.dispatch_clip_grad(mode='value')", VALUE, lambda: _timm("value", VALUE)),
    Clip("timm", "timm.utils.adaptive_clip_grad", ADAPTIVE, _timm_agc),
    Clip("pytorch-optimizer", "pytorch_optimizer.optimizer.utils.clip_grad_norm", NORM, _pytorch_optimizer),
    Clip("torchopt", "torchopt.clip.clip_grad_norm", NORM, _torchopt),
    Clip("zclip", "ZClip.apply_in_place_clipping", NORM, _zclip),
    Clip("accelerate", "Accelerator.clip_grad_norm_", NORM, _accelerate),
    Clip("agc-optims", "agc_optims.utils.agc", ADAPTIVE, _agc_optims),
    Clip("opacus", "DPOptimizer.clip_and_accumulate", PER_EXAMPLE, _opacus),
    Clip("pytorch-optimizer", "pytorch_optimizer.optimizer.agc.agc", ADAPTIVE, _pytorch_optimizer_agc),
    Clip("pfrl", "pfrl.utils.clip_l2_grad_norm_", NORM, _pfrl),
    Clip("heavyball", "heavyball.utils.l2_clip_", EACH, _heavyball),
    Clip("ray", "rllib clip_gradients(grad_clip_by='global_norm')", NORM, lambda: _rllib("global_norm", NORM)),
    Clip("ray", "rllib clip_gradients(grad_clip_by='norm')", EACH, lambda: _rllib("norm", EACH)),
    Clip("ray", "rllib clip_gradients(grad_clip_by='value')", VALUE, lambda: _rllib("value", VALUE)),
    Clip("smartclip", "smartclip.AGC", ADAPTIVE, _smartclip_agc),
)
