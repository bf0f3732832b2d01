"""The clips of packages for Paddle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from conformance.third_parties.clips import Clip, alone, function_alone

from gradclip.conformance import Target, function_target
from gradclip.conformance.target import load_arrays

__all__ = ["CLIPS"]

PARAMETERS = "paddle.clip_grad_norm_"
EACH, TOGETHER, VALUE = "paddle.ClipGradByNorm", "paddle.ClipGradByGlobalNorm", "paddle.ClipGradByValue"


def _of_slot(make: Callable[[Any], Any], operation: str, name: str) -> Target:
    """What goes into the slot ``grad_clip`` of an optimizer."""
    hold = load_arrays("paddle").hold

    def run(grads: Sequence[Any], limit: Any) -> list[Any]:
        return [one for _, one in make(limit)(list(zip(hold(grads), grads, strict=True)))]

    return function_target(run, operation, "paddle", name=name, takes="gradients", in_place=operation == TOGETHER)


def _paddleseg(kind: str, argument: str, operation: str) -> Target:
    optimizer = alone("paddleseg.optimizers.optimizer", "BaseOptimizer")

    def make(limit: Any) -> Any:
        return optimizer(grad_clip_cfg={"name": kind, argument: limit}).args["grad_clip"]

    return _of_slot(make, operation, "paddleseg")


def _paddledet(argument: str, operation: str) -> Target:
    builder = alone("ppdet.optimizer.optimizer", "OptimizerBuilder")
    model = paddle.nn.Linear(1, 1)

    def make(limit: Any) -> Any:
        momentum = {"type": "Momentum", "momentum": 0.9}
        return builder(**{argument: limit}, regularizer=None, optimizer=momentum)(0.1, model)._grad_clip

    return _of_slot(make, operation, "paddledet")


def _paddlespeech() -> Target:
    made = function_alone("paddlespeech", "paddlespeech/s2t/exps/wav2vec2/model.py", ("clip_grad_norm_",), {"paddle": paddle})
    return function_target(made["clip_grad_norm_"], PARAMETERS, "paddle", name="paddlespeech", takes="parameters")


CLIPS: tuple[Clip, ...] = (
    Clip("paddleseg", "grad_clip_cfg: ClipGradByNorm", EACH, lambda: _paddleseg("ClipGradByNorm", "clip_norm", EACH)),
    Clip("paddleseg", "grad_clip_cfg: ClipGradByValue", VALUE, lambda: _paddleseg("ClipGradByValue", "max", VALUE)),
    Clip("paddledet", "OptimizerBuilder(clip_grad_by_norm=)", TOGETHER, lambda: _paddledet("clip_grad_by_norm", TOGETHER)),
    Clip("paddledet", "OptimizerBuilder(clip_grad_by_value=)", VALUE, lambda: _paddledet("clip_grad_by_value", VALUE)),
    Clip("paddlespeech", "paddlespeech.s2t.exps.wav2vec2.model.clip_grad_norm_", PARAMETERS, _paddlespeech),
)
