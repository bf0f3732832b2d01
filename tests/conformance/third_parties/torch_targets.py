"""Targets on PyTorch's arrays, for what a package's clip takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from conformance.third_parties.clips import ADAPTIVE

from gradclip.conformance import Target, function_target
from gradclip.conformance.target import DEFAULT_CLAIMS, ComposedTarget, load_arrays

__all__ = ["EACH", "NORM", "VALUE", "Model", "adaptive", "of_parameters"]

NORM, VALUE = "torch.clip_grad_norm_", "torch.clip_grad_value_"
EACH = "tensorflow.clip_by_norm"  #: torch has no function for it


def of_parameters(call: Callable[..., Any], operation: str, name: str) -> Target:
    return function_target(call, operation, "torch", name=name, takes="parameters")


class Model(torch.nn.Module):
    """A module with the parameters, for packages that require one."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        super().__init__()
        self.params = list(parameters)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return iter(self.params)


def adaptive(clip: Callable[[list[Any], float, float], Any], name: str, how: str = "in place") -> Target:
    """A clip relative to the parameters; these hold their gradients. ``how``: "in place", or "functional"."""

    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        params = []
        for gradient, parameter in zip(gradients, arguments["parameters"], strict=True):
            one = torch.nn.Parameter(parameter.detach().clone())
            one.grad = gradient
            params.append(one)
        clip(params, arguments["clipping"], arguments.get("eps", 1e-3))
        return [one.grad for one in params], None

    claims = {ADAPTIVE: DEFAULT_CLAIMS | {how, "eps", "scalar"}}
    return ComposedTarget(name, load_arrays("torch"), claims, {ADAPTIVE: run})
