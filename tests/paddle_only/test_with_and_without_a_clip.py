"""The classic comparison in static programs and in dynamic mode: the gradients of a classifier with and without a clip."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from oracle import ulps
from paddle_programs import static_mode

import gradclip

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 2.0

# Paddle's own backward pass of a program warns
pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return batches like MNIST: 784 pixels, most of them black. The first is brighter, so that its gradients are larger."""
    rng = np.random.default_rng(0)
    for brightness in (30.0, 5.0, 1.0):
        pixels = np.where(rng.random((32, 784)) < 0.8, 0.0, rng.random((32, 784))) * brightness
        yield pixels.astype(np.float32), rng.integers(10, size=(32, 1))


def initial() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    sizes = [(784, 128), (128,), (128, 64), (64,), (64, 10), (10,)]
    return [(rng.normal(size=size) / np.sqrt(size[0])).astype(np.float32) for size in sizes]


def network() -> Callable[[Any, Any], Any]:
    """Return the loss of a 784-128-64-10 classifier with relu, relu and softmax."""
    values = initial()
    attributes = [paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(value)) for value in values]
    layers = [paddle.nn.Linear(*values[i].shape, attributes[i], attributes[i + 1]) for i in (0, 2, 4)]

    def loss(image: Any, label: Any) -> Any:
        hidden = paddle.nn.functional.relu(layers[1](paddle.nn.functional.relu(layers[0](image))))
        predicted = paddle.nn.functional.softmax(layers[2](hidden))
        return paddle.nn.functional.cross_entropy(predicted, label, use_softmax=False)

    loss.parameters = [p for layer in layers for p in layer.parameters()]  # type: ignore[attr-defined]
    return loss


def in_programs() -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    def build(clip: Any) -> tuple[Any, Any, list[Any]]:
        program, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(program, startup), paddle.utils.unique_name.guard():
            image = paddle.static.data("image", [None, 784], "float32")
            label = paddle.static.data("label", [None, 1], "int64")
            pairs = paddle.static.append_backward(network()(image, label))
            return program, startup, [g for _, g in (clip(pairs) if clip else pairs)]

    with static_mode():
        plain, startup, gradients = build(None)
        clipping, _, clipped = build(gradclip.GradientClipByNorm(clip_norm=LIMIT))
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        return [
            (executor.run(plain, feed=feed, fetch_list=gradients), executor.run(clipping, feed=feed, fetch_list=clipped))
            for feed in ({"image": image, "label": label} for image, label in batches())
        ]


def in_dynamic_mode() -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    loss, results = network(), []
    parameters = loss.parameters  # type: ignore[attr-defined]
    for image, label in batches():
        loss(paddle.to_tensor(image), paddle.to_tensor(label)).backward()
        pairs = gradclip.GradientClipByNorm(clip_norm=LIMIT)([(p, p.grad) for p in parameters])
        results.append(([p.grad.numpy() for p in parameters], [g.numpy() for _, g in pairs]))
        for p in parameters:
            p.clear_gradient()
    return results


@pytest.mark.parametrize("train", [in_programs, in_dynamic_mode])
def test_with_and_without_a_clip(train: Callable[[], list[tuple[list[np.ndarray], list[np.ndarray]]]]) -> None:
    compare(train(), 3)


def compare(results: list[tuple[list[np.ndarray], list[np.ndarray]]], count: int) -> None:
    assert len(results) == count
    clipped = 0
    for without, with_clip in results:
        assert len(without) == len(with_clip) == 6
        for gradient, got in zip(without, with_clip, strict=True):
            norm = np.linalg.norm(gradient.astype(np.float64))
            if norm <= LIMIT:
                assert np.array_equal(got, gradient)
            else:
                clipped += 1
                assert ulps(got, gradient.astype(np.float64) * (LIMIT / norm), "float32") <= 4
    assert 0 < clipped < 6 * count, "some gradients are to be above the limit, and some below"


def test_the_static_example(capsys: pytest.CaptureFixture[str]) -> None:
    compare(runpy.run_path(str(EXAMPLES / "paddle_static.py"))["main"](2), 2)
    assert capsys.readouterr().out.count(" -> 2.000") == 6


def test_the_dynamic_example(capsys: pytest.CaptureFixture[str]) -> None:
    losses = runpy.run_path(str(EXAMPLES / "paddle_loop.py"))["main"](60)
    assert len(losses) == 60
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 4
    assert "step   1" in capsys.readouterr().out
