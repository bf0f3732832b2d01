"""Limits of other packages that follow the run: each clips a parameter whose gradient is the norm of a step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from conformance.third_parties.clips import imported
from conformance.third_parties.torch_targets import Model

import gradclip.conformance

__all__ = ["FOLLOWERS", "Follower", "wrong_steps"]

FOLDER = Path(gradclip.conformance.__file__).parent / "vectors" / "v1" / "limits"
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Follower:
    """One limit of a package."""

    package: str  #: the name of the distribution on PyPI
    name: str  #: the name that its users write
    rule: str  #: the file of its vectors
    counts: str  #: for a percentile: whether it counts the step itself, "with" or "before"
    make: Callable[[Any, Parameters], Callable[[], Any]]  #: (parameter, the rule's parameters) -> the clip of one step


def _zclip(parameter: Any, given: Parameters) -> Callable[[], Any]:
    kind = imported("zclip.zclip", "ZClip")
    clip = kind(given["alpha"], given["z"], max_grad_norm=None, eps=given["eps"], warmup_steps=int(given["warmup"]))
    return lambda: clip.step(Model([parameter]))


def _autoclip(parameter: Any, given: Parameters) -> Callable[[], Any]:
    kind = imported("autoclip.torch", "QuantileClip")
    clip = kind([parameter], quantile=given["percent"] / 100, global_threshold=True)
    step: Callable[[], Any] = clip.step
    return step


def _autoclipper(parameter: Any, given: Parameters) -> Callable[[], Any]:
    with mock.patch("autoclipper.autoclipper.BaseOptimizer", object):  # of pytorch_optimizer 4 it makes no class
        kind = imported("autoclipper", "AutoClippedOptimizer")(torch.optim.SGD, q=given["percent"] / 100)
    step: Callable[[], Any] = kind([parameter], lr=0.0).step
    return step


def _smartclip(parameter: Any, given: Parameters) -> Callable[[], Any]:
    apply = imported("smartclip.backends.torch", "apply")
    how = {"mode": "percentile", "history": "window", "warmup_steps": 0, "min_history": 1}
    clip = imported("smartclip", "AutoClip")(percentile=given["percent"], **how)
    return lambda: apply(Model([parameter]), clip)


FOLLOWERS: tuple[Follower, ...] = (
    Follower("zclip", "ZClip(max_grad_norm=None)", "zclip", "", _zclip),
    Follower("autoclip", "autoclip.torch.QuantileClip", "autoclip", "before", _autoclip),
    Follower("gradientnorm-autoclipper", "AutoClippedOptimizer", "autoclip", "with", _autoclipper),
    Follower("smartclip", "AutoClip(mode='percentile', history='window')", "autoclip", "with", _smartclip),
)


def wrong_steps(follower: Follower) -> dict[str, int]:
    """For each vector of the rule the number of steps that end with another norm, to 1 in 10,000."""
    file = json.loads((FOLDER / f"{follower.rule}.json").read_text(encoding="utf-8"))
    vectors = [one for one in file["vectors"] if one["parameters"].get("counts", "") == follower.counts]
    return {one["id"]: _wrong(follower, one) for one in vectors}


def _wrong(follower: Follower, vector: Mapping[str, Any]) -> int:
    parameter = torch.nn.Parameter(torch.zeros(1))
    step, wrong = follower.make(parameter, vector["parameters"]), 0
    for norm, right in zip(vector["norms"], map(float.fromhex, vector["clipped"]), strict=True):
        parameter.grad = torch.tensor([float.fromhex(norm)])
        step()
        wrong += not (math.isnan(right) or math.isclose(float(parameter.grad), right, rel_tol=1e-4))
    return wrong
