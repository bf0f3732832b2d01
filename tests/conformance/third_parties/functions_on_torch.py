"""The clips of other packages as targets of the suite; a package is imported when its target is requested."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gradclip.conformance import Target, function_target
from gradclip.conformance.target import DEFAULT_CLAIMS, ComposedTarget, load_arrays

__all__ = ["CLIPS", "Clip"]

NORM, VALUE, ADAPTIVE = "torch.clip_grad_norm_", "torch.clip_grad_value_", "optax.adaptive_grad_clip"
PER_EXAMPLE = "optax.per_example_global_norm_clip"


@dataclass(frozen=True)
class Clip:
    """One clip of a package."""

    package: str  #: the name of the distribution on PyPI
    name: str  #: the name that its users write
    operation: str  #: the operation that it documents, or the nearest one
    make: Callable[[], Target]


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _alone(module: str, name: str) -> Any:
    """Import without running the package's ``__init__``: torchvision's, or a trainer's, imports more than the clip needs."""
    parents = module.split(".")[:-1]
    made = [
        ".".join(parents[: number + 1]) for number in range(len(parents)) if ".".join(parents[: number + 1]) not in sys.modules
    ]
    try:
        for package in made:
            found = importlib.machinery.PathFinder.find_spec(package.rpartition(".")[2], _path(package))
            assert found is not None, f"{package} is not installed"
            assert found.submodule_search_locations is not None
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = list(found.submodule_search_locations)
        return _imported(module, name)
    finally:
        for package in made:
            sys.modules.pop(package, None)


def _path(package: str) -> list[str] | None:
    above = package.rpartition(".")[0]
    return list(sys.modules[above].__path__) if above else None


def _of_parameters(call: Callable[..., Any], operation: str, name: str) -> Target:
    return function_target(call, operation, "torch", name=name, takes="parameters")


def _timm(mode: str, operation: str) -> Target:
    clip = _alone("timm.utils.clip_grad", "dispatch_clip_grad")
    if mode == "norm":

        def by_norm(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> None:
            clip(parameters, max_norm, mode="norm", norm_type=norm_type)

        return _of_parameters(by_norm, operation, "timm")

    def by_value(parameters: Any, clip_value: Any) -> None:
        clip(parameters, clip_value, mode="value")

    return _of_parameters(by_value, operation, "timm")


def _pytorch_optimizer() -> Target:
    clip = _imported("pytorch_optimizer.optimizer.utils", "clip_grad_norm")
    return _of_parameters(lambda parameters, max_norm: clip(parameters, max_norm), NORM, "pytorch_optimizer")


def _torchopt() -> Target:
    make = _imported("torchopt.clip", "clip_grad_norm")

    def clip(grads: Sequence[Any], max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
        transformation = make(max_norm, norm_type, error_if_nonfinite)
        clipped, _ = transformation.update(list(grads), transformation.init(list(grads)), inplace=False)
        return list(clipped)

    return function_target(clip, NORM, "torch", name="torchopt", takes="gradients", in_place=False)


class _Model(torch.nn.Module):
    """A module with the parameters, for packages that require one."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        super().__init__()
        self.held = list(parameters)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return iter(self.held)


def _zclip() -> Target:
    made = _imported("zclip.zclip", "ZClip")()

    def clip(parameters: Iterable[Any], max_norm: Any) -> Any:
        model = _Model(parameters)
        norm = made._compute_grad_norm(model) if model.held else 0.0
        made.apply_in_place_clipping(model, norm, max_norm)
        return norm

    return _of_parameters(clip, NORM, "zclip")


def _accelerate() -> Target:
    accelerator = _imported("accelerate", "Accelerator")(cpu=True)

    def clip(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> Any:
        return accelerator.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    return _of_parameters(clip, NORM, "accelerate")


def _adaptive(clip: Callable[[list[Any], float, float], Any], name: str) -> Target:
    """A clip relative to the parameters; these hold their gradients."""

    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        held = []
        for gradient, parameter in zip(gradients, arguments["parameters"], strict=True):
            one = torch.nn.Parameter(parameter.detach().clone())
            one.grad = gradient
            held.append(one)
        clip(held, arguments["clipping"], arguments.get("eps", 1e-3))
        return [one.grad for one in held], None

    claims = {ADAPTIVE: DEFAULT_CLAIMS | {"functional", "eps", "scalar"}}
    return ComposedTarget(name, load_arrays("torch"), claims, {ADAPTIVE: run})


def _timm_agc() -> Target:
    clip = _alone("timm.utils.agc", "adaptive_clip_grad")
    return _adaptive(lambda held, clipping, eps: clip(held, clipping, eps), "timm agc")


def _agc_optims() -> Target:
    clip = _imported("agc_optims.utils", "agc")
    return _adaptive(lambda held, clipping, eps: [clip(one, clipping, eps) for one in held], "agc-optims")


def _opacus() -> Target:
    optimizer = _imported("opacus.optimizers.optimizer", "DPOptimizer")

    def run(gradients: Iterable[Any], arguments: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
        held = []
        for gradient in gradients:
            one = torch.nn.Parameter(torch.zeros(gradient.shape[1:], dtype=gradient.dtype))
            one.grad_sample = gradient  # type: ignore[attr-defined]
            held.append(one)
        made = optimizer(
            torch.optim.SGD(held, 0.1),
            noise_multiplier=0.0,
            max_grad_norm=arguments["l2_norm_clip"],
            expected_batch_size=1,
        )
        made.clip_and_accumulate()
        return [one.summed_grad for one in held], None  # type: ignore[attr-defined]

    claims = {PER_EXAMPLE: DEFAULT_CLAIMS | {"functional"}}
    return ComposedTarget("opacus", load_arrays("torch"), claims, {PER_EXAMPLE: run})


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
)
