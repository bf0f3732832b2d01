"""The clips of packages for PyTorch that are part of a step: an adapter runs the step, and reads the gradients that it used."""

from __future__ import annotations

import collections
import collections.abc
import tempfile
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from conformance.third_parties.clips import ADAPTIVE, Clip, imported
from conformance.third_parties.torch_targets import EACH, NORM, VALUE, Model, adaptive, of_parameters

from gradclip.conformance import Target, function_target

__all__ = ["CLIPS"]


def _still(parameters: Sequence[Any]) -> torch.optim.Optimizer:
    """An optimizer that changes nothing."""
    return torch.optim.SGD(list(parameters), lr=0.0)


def _lightning(operation: str) -> Target:
    fabric = imported("lightning", "Fabric")(accelerator="cpu")

    def by_norm(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> Any:
        params = list(parameters)
        return fabric.clip_gradients(Model(params), _still(params), max_norm=max_norm, norm_type=norm_type)

    def by_value(parameters: Any, clip_value: Any) -> None:
        params = list(parameters)
        fabric.clip_gradients(Model(params), _still(params), clip_val=clip_value)

    return of_parameters(by_norm if operation == NORM else by_value, operation, "lightning")


def _transformers() -> Target:
    arguments = imported("transformers", "TrainingArguments")(output_dir=tempfile.gettempdir(), use_cpu=True)
    trainer = imported("transformers", "Trainer")(torch.nn.Linear(1, 1), arguments)

    def run(parameters: Any, max_norm: Any) -> Any:
        trainer.args.max_grad_norm = max_norm
        return trainer._clip_grad_norm(Model(parameters))

    return of_parameters(run, NORM, "transformers")


def _skorch() -> Target:
    kind = imported("skorch.callbacks", "GradientNormClipping")

    def run(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> None:
        clip = kind(gradient_clip_value=max_norm, gradient_clip_norm_type=norm_type)
        clip.on_grad_computed(None, named_parameters=[(str(number), one) for number, one in enumerate(parameters)])

    return of_parameters(run, NORM, "skorch")


def _fastai() -> Target:
    kind = imported("fastai.callback.training", "GradientClip")

    def run(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> None:
        clip = kind(max_norm, norm_type)
        clip.learn = SimpleNamespace(parameters=lambda: list(parameters))
        clip.before_step()

    return of_parameters(run, NORM, "fastai")


def _mmengine() -> Target:
    kind = imported("mmengine.optim", "OptimWrapper")

    def run(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> None:
        params = [one.requires_grad_() for one in parameters]
        kind(_still(params), clip_grad={"max_norm": max_norm, "norm_type": norm_type}).step()

    return of_parameters(run, NORM, "mmengine")


def _fairscale() -> Target:
    """In a process group of one process, which stays."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    kind = imported("fairscale.optim.oss", "OSS")

    def run(parameters: Any, max_norm: Any, norm_type: float = 2.0) -> Any:
        return kind(list(parameters), torch.optim.SGD, lr=0.0).clip_grad_norm(max_norm, norm_type)

    first = torch.zeros(1)
    first.grad = torch.zeros(1)
    run([first], 1.0)  # the first call is slow, and the suite's trial call has a time limit
    return of_parameters(run, NORM, "fairscale")


def _nfnets() -> Target:
    with mock.patch.object(collections, "Iterable", collections.abc.Iterable, create=True):  # it was written for Python 3.9
        kind = imported("nfnets", "AGC")

    def run(params: Sequence[Any], clipping: float, eps: float) -> None:
        kind(params, _still(params), clipping=clipping, eps=eps).step()

    return adaptive(run, "nfnets")


def _pyro() -> Target:
    kind = imported("pyro.optim.clipped_adam", "ClippedAdam")

    def run(parameters: Any, clip_value: Any) -> None:
        kind(list(parameters), clip_norm=clip_value).step()

    return of_parameters(run, VALUE, "pyro")


def _torch_clip(mode: str, operation: str) -> Target:
    """From zeros and with a learning rate of 1, the parameters after the step are the clipped gradients with the other sign."""
    kind = imported("torch_clip.optimizers", "ClippedSGD")

    def run(grads: Sequence[Any], limit: Any) -> list[Any]:
        params = [torch.nn.Parameter(torch.full_like(one, -0.0)) for one in grads]  # a sum with it keeps a zero's sign
        for one, gradient in zip(params, grads, strict=True):
            one.grad = gradient
        kind(params, lr=1.0, momentum=0.0, clipping_type=mode, clipping_level=limit).step()
        return [-one.detach() for one in params]

    return function_target(run, operation, "torch", name="torch-clip", takes="gradients", in_place=False)


CLIPS: tuple[Clip, ...] = (
    Clip("lightning", "Fabric.clip_gradients(max_norm=)", NORM, lambda: _lightning(NORM)),
    Clip("lightning", "Fabric.clip_gradients(clip_val=)", VALUE, lambda: _lightning(VALUE)),
    Clip("transformers", "Trainer (max_grad_norm=)", NORM, _transformers),
    Clip("skorch", "skorch.callbacks.GradientNormClipping", NORM, _skorch),
    Clip("fastai", "fastai.callback.training.GradientClip", NORM, _fastai),
    Clip("mmengine", "OptimWrapper(clip_grad=)", NORM, _mmengine),
    Clip("nfnets-pytorch", "nfnets.AGC", ADAPTIVE, _nfnets),
    Clip("pyro-ppl", "pyro.optim.ClippedAdam", VALUE, _pyro),
    Clip("torch-clip", "ClippedSGD(clipping_type='norm')", NORM, lambda: _torch_clip("norm", NORM)),
    Clip("torch-clip", "ClippedSGD(clipping_type='layer_wise')", EACH, lambda: _torch_clip("layer_wise", EACH)),
    Clip("torch-clip", "ClippedSGD(clipping_type='coordinate_wise')", VALUE, lambda: _torch_clip("coordinate_wise", VALUE)),
    Clip("fairscale", "OSS.clip_grad_norm", NORM, _fairscale),
)
