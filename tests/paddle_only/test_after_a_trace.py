"""A step that was compiled before its optimizer clipped: the next step is clipped, or an error has the line to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest

import gradclip
from gradclip import dialects
from gradclip.backends.paddle import grad_clip

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
RULE = dialects.torch.clip_grad_norm(max_norm=0.5)


class Layer(paddle.nn.Layer):
    """Its gradient is [30, 40]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([2])

    def forward(self, x: Any) -> Any:
        return (self.weight * x).sum()


def length(layer: Layer, step: Callable[[], Any]) -> float:
    before = layer.weight.numpy().copy()
    step()
    return float(np.linalg.norm(layer.weight.numpy() - before))


def test_a_layer_that_to_static_has_traced() -> None:
    layer = Layer()
    optimizer = paddle.optimizer.SGD(1.0, parameters=layer.parameters())
    traced = paddle.jit.to_static(layer, full_graph=True)

    def step() -> None:
        traced(paddle.to_tensor([30.0, 40.0])).backward()
        optimizer.step()
        optimizer.clear_grad()

    assert length(layer, step) == pytest.approx(50)
    gradclip.clipped(optimizer, RULE)
    slot: Any = optimizer.gradclip  # type: ignore[attr-defined]
    assert length(layer, step) == pytest.approx(0.5, rel=1e-4)
    slot.rule = dialects.torch.clip_grad_norm(max_norm=0.25)
    slot.monitor = gradclip.Monitor()
    assert length(layer, step) == pytest.approx(0.25, rel=1e-4)
    assert slot.monitor.report()["clipped_steps"] == 1


def test_a_model_that_has_trained() -> None:
    net = paddle.nn.Linear(2, 1, bias_attr=False)
    model, optimizer = paddle.Model(net), paddle.optimizer.SGD(1.0, parameters=net.parameters())
    model.prepare(optimizer, paddle.nn.MSELoss())
    x, y = np.full((4, 2), 10.0, "float32"), np.ones((4, 1), "float32")
    model.train_batch([x], [y])
    gradclip.clipped(optimizer, RULE)
    before = net.weight.numpy().copy()
    model.train_batch([x], [y])
    assert np.linalg.norm(net.weight.numpy() - before) == pytest.approx(0.5, rel=1e-4)


@pytest.fixture
def static() -> Iterator[Any]:
    """Return the program being built."""
    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()):
            yield program
    finally:
        paddle.disable_static()


def built(optimizer: Any) -> Any:
    weight = paddle.create_parameter([2], "float32")
    optimizer.minimize((weight * 10.0).sum())
    return weight


RATES: list[Callable[[], Any]] = [lambda: 1.0, lambda: paddle.optimizer.lr.StepDecay(1.0, 10)]


@pytest.mark.parametrize("rate", RATES, ids=["number", "schedule"])
def test_a_program_that_has_the_step_already(static: Any, rate: Callable[[], Any]) -> None:
    optimizer = paddle.optimizer.Adam(rate())
    kind = type(optimizer)
    built(optimizer)
    with pytest.raises(ValueError, match="would go on without a clip") as caught:
        gradclip.clipped(optimizer, RULE)
    hint = "build the program again, with gradclip.clipped(optimizer, rule) before optimizer.minimize(loss)."
    assert str(caught.value).endswith(f"Received: optimizer=Adam\nHint: {hint}")
    assert type(optimizer) is kind
    assert not hasattr(optimizer, "gradclip")


def test_the_line_of_the_hint(static: Any) -> None:
    optimizer = gradclip.clipped(paddle.optimizer.SGD(1.0), RULE)
    weight = built(optimizer)
    executor = paddle.static.Executor()
    executor.run(paddle.static.default_startup_program())
    value = paddle.static.global_scope().find_var(weight.name).get_tensor()
    before = np.array(value)
    executor.run(static)
    assert np.linalg.norm(np.array(value) - before) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("name", ["rule", "monitor"])
def test_a_clip_that_a_program_has_is_not_exchanged(static: Any, name: str) -> None:
    clip: Any = grad_clip(RULE)
    setattr(clip, name, getattr(clip, name))  # before it is built
    built(paddle.optimizer.SGD(1.0, grad_clip=clip))
    with pytest.raises(ValueError, match="A static program has this clip already") as caught:
        setattr(clip, name, gradclip.Monitor() if name == "monitor" else dialects.torch.clip_grad_norm(max_norm=9.0))
    assert f"Received: {name}=" in str(caught.value)
    assert "Hint: build the program again, with another optimizer and its clip." in str(caught.value)
    assert clip.rule is RULE
    assert clip.monitor is None


def test_an_optimizer_of_dynamic_mode_clips_after_minimize() -> None:
    layer = Layer()
    optimizer = paddle.optimizer.SGD(1.0, parameters=layer.parameters())

    def step() -> None:
        loss = layer(paddle.to_tensor([30.0, 40.0]))
        loss.backward()
        optimizer.minimize(loss)
        optimizer.clear_grad()

    assert length(layer, step) == pytest.approx(50)
    gradclip.clipped(optimizer, RULE)
    assert length(layer, step) == pytest.approx(0.5, rel=1e-4)
