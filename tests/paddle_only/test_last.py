"""Paddle's slots record their last clip, in dynamic mode and in a program."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import paddle
import pytest
from oracle import ulps
from paddle_only.test_slot import WEIGHTS, dynamic, loss_of, parameters, sgd

import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.dialects import tensorflow, torch

TOTAL = float(np.sqrt(sum((w**2).sum() for w in WEIGHTS[:3])))
# Paddle's own backward pass of a program warns
pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")

SLOTS = {"class": lambda: gradclip.ClipGradByGlobalNorm(2.0), "rule": lambda: grad_clip(torch.clip_grad_norm(2.0))}


@pytest.mark.parametrize("make", SLOTS.values(), ids=SLOTS)
def test_the_norm_before_and_the_coefficient(make: Any) -> None:
    clip = make()
    assert clip.last is None
    dynamic(clip, sgd, 1)
    assert ulps(clip.last.norm.numpy(), TOTAL, "float32") <= 4
    assert ulps(clip.last.coefficient.numpy(), 2.0 / TOTAL, "float32") <= 8
    assert clip.last.grads is None


def test_one_for_each_gradient() -> None:
    for clip in (gradclip.ClipGradByNorm(1.0), grad_clip(tensorflow.clip_by_norm(1.0))):
        dynamic(clip, sgd, 1)
        want = [np.linalg.norm(w) for w in WEIGHTS[:3]]
        assert all(ulps(n.numpy(), w, "float32") <= 4 for n, w in zip(clip.last.norm, want, strict=True))


def test_groups_by_name() -> None:
    clip = grad_clip([gradclip.Group(torch.clip_grad_norm(1.0))])
    dynamic(clip, sgd, 1)
    assert ulps(clip.last.norm[0].numpy(), TOTAL, "float32") <= 4


@pytest.mark.parametrize("make", SLOTS.values(), ids=SLOTS)
def test_a_program_fetches_them(make: Any) -> None:
    clip = make()
    paddle.enable_static()
    try:
        program, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(program, startup):
            sgd(grad_clip=clip).minimize(loss_of(parameters(), paddle.static.data("scale", [], "float32")))
            wanted = [clip.last.norm, clip.last.coefficient]
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        norm, coefficient = executor.run(program, feed={"scale": np.float32(3.0)}, fetch_list=wanted)
    finally:
        paddle.disable_static()
    assert ulps(norm, 3 * TOTAL, "float32") <= 8
    assert ulps(coefficient, 2.0 / (3 * TOTAL), "float32") <= 16


def test_a_pickle_leaves_it_out() -> None:
    clip = gradclip.ClipGradByGlobalNorm(2.0)
    dynamic(clip, sgd, 1)
    assert pickle.loads(pickle.dumps(clip)).last is None


def test_a_step_without_gradients_has_no_norm() -> None:
    clip = gradclip.ClipGradByGlobalNorm(2.0)
    dynamic(clip, sgd, 1)
    assert clip.last is not None
    clip([(paddle.create_parameter([2], "float32"), None)])
    assert clip.last is None
