"""The monitor in Paddle's ``grad_clip=``: it counts each step, in dynamic mode and in a static program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle_programs import static_mode

import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.dialects import keras, torch

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
SCALES = [0.1, 2.0, 0.3, 5.0, np.inf, 0.2]


def test_in_dynamic_mode() -> None:
    monitor, weight = gradclip.Monitor(), paddle.create_parameter([1], "float32")
    clip = grad_clip(torch.clip_grad_norm(1.0), monitor=monitor)
    optimizer = paddle.optimizer.SGD(0.0, parameters=[weight], grad_clip=clip)
    for scale in SCALES:
        (weight.sum() * scale).backward()
        optimizer.step()
        optimizer.clear_grad()
    check(monitor)


def check(monitor: gradclip.Monitor) -> None:
    found = monitor.report()
    assert (found["steps"], found["clipped_steps"], found["not_finite"], found["not_finite_first_step"]) == (6, 2, 1, 4)
    assert found["norm_before_largest"] == 5.0
    assert found["norm_after_largest"] == pytest.approx(1.0, rel=1e-5)


def program(monitor: gradclip.Monitor, rule: Any) -> tuple[Any, Any]:
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        scale = paddle.static.data("scale", [1], "float32")
        weight = paddle.static.create_parameter([1], "float32", name="w")
        clip = grad_clip(rule, monitor=monitor)
        paddle.optimizer.SGD(0.0, grad_clip=clip).minimize((weight * scale).sum(), parameters=[weight])
    return main, startup


def test_a_program_counts_from_run_to_run() -> None:
    monitor = gradclip.Monitor()
    with static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
        main, startup = program(monitor, torch.clip_grad_norm(1.0))
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        for i, scale in enumerate(SCALES):
            executor.run(main, feed={"scale": np.float32([scale])})
            if i % 2:
                assert monitor.report()["steps"] == i + 1
        check(monitor)
        check(monitor)
    assert [window.steps for window in monitor.sections[0].windows] == [2, 2, 2]


def test_a_program_with_groups() -> None:
    monitor = gradclip.Monitor()
    with static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
        main, startup = program(monitor, [gradclip.Group(torch.clip_grad_norm(1.0))])
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        for scale in SCALES[:3]:
            executor.run(main, feed={"scale": np.float32([scale])})
        assert (monitor.report()["0/steps"], monitor.report()["0/clipped_steps"]) == (3, 1)


def test_the_numbers_of_steps_in_to_static() -> None:
    """In a step under ``to_static`` the clip runs as plain Python, and updates the monitor."""
    monitor, weight = gradclip.Monitor(), paddle.create_parameter([1], "float32")
    clip = grad_clip(torch.clip_grad_norm(1.0), monitor=monitor)
    optimizer = paddle.optimizer.SGD(0.0, parameters=[weight], grad_clip=clip)

    def loss(scale: paddle.Tensor) -> paddle.Tensor:
        return (weight * scale).sum()

    compiled = paddle.jit.to_static(loss, full_graph=True)
    for scale in SCALES[:3]:
        compiled(paddle.to_tensor([scale])).backward()
        optimizer.step()
        optimizer.clear_grad()
    assert monitor.report()["clipped_steps"] == 1


@pytest.mark.parametrize("each", [None, 1])
def test_the_culprits_are_called_by_their_own_names(each: int | None) -> None:
    monitor = gradclip.Monitor(each=each)
    weights = [paddle.create_parameter([1], "float32") for _ in range(2)]
    optimizer = paddle.optimizer.SGD(0.0, parameters=weights, grad_clip=grad_clip(torch.clip_grad_norm(1.0), monitor=monitor))
    (weights[0].sum() + weights[1].sum() * np.inf).backward()
    optimizer.step()
    assert monitor.report()["not_finite"] == 1
    assert monitor.culprits == ([weights[1].name], 0)


@pytest.mark.parametrize("mode", ["eager", "to_static", "program"])
def test_each_gradient_is_called_by_its_own_name(mode: str) -> None:
    monitor = gradclip.Monitor(each=2)
    if mode == "program":
        with static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
            main, startup = program(monitor, torch.clip_grad_norm(1.0))
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(startup)
            for scale in SCALES[:5]:
                executor.run(main, feed={"scale": np.float32([scale])})
            assert [(seen.name, seen.share, seen.measured) for seen in monitor.gradients()] == [("w", 1.0, 2)]  # not inf
        return
    layer = paddle.nn.Linear(2, 1, weight_attr=paddle.ParamAttr(name=f"mine_{mode}"))
    optimizer = paddle.optimizer.SGD(0.0, parameters=layer.parameters())
    optimizer = gradclip.clipped(optimizer, torch.clip_grad_norm(1.0), monitor=monitor)
    loss = paddle.jit.to_static(layer, full_graph=True) if mode == "to_static" else layer
    for _ in range(3):
        loss(paddle.to_tensor([[0.3, 0.4]])).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    assert [seen.name for seen in monitor.gradients()] == [layer.bias.name, f"mine_{mode}"]
    assert [seen.share for seen in monitor.gradients()] == pytest.approx([0.8, 0.2], rel=1e-5)


def test_an_error_has_their_names_too() -> None:
    weight = paddle.create_parameter([1], "float32")
    rule = torch.clip_grad_norm(1.0, error_if_nonfinite=True)
    optimizer = paddle.optimizer.SGD(0.0, parameters=[weight], grad_clip=grad_clip(rule))
    (weight.sum() * np.inf).backward()
    with pytest.raises(RuntimeError, match=rf"Received: .*{weight.name}: 1 of 1 elements"):
        optimizer.step()


def test_paddle_saves_the_state(tmp_path: Path) -> None:
    monitor, other = gradclip.Monitor(each=1), gradclip.Monitor()
    grads = {"a": paddle.ones([2]), "b": paddle.to_tensor([float("nan")])}
    monitor.update(gradclip.clip(grads, torch.clip_grad_norm(1.0)))
    paddle.save(monitor.state_dict(), str(tmp_path / "monitor"))
    other.load_state_dict(paddle.load(str(tmp_path / "monitor")))
    assert repr(other.state_dict()) == repr(monitor.state_dict())
    assert other.culprits == (["b"], 0)


def test_pairs_have_norms_and_not_those_of_their_parameters() -> None:
    monitor = gradclip.Monitor()
    pairs = [(paddle.create_parameter([1], "float32"), paddle.to_tensor([size])) for size in (4.0, 0.5)]
    result = gradclip.clip(pairs, keras.clipnorm(1.0))
    assert [float(n) for _, n in result.norm] == [4.0, 0.5]
    monitor.update(result)
    assert monitor.report()["norm_before_largest"] == 4.0
    assert monitor.sections[0].before.count == 2


def test_a_step_that_is_not_finite_is_left_out() -> None:
    """docs/monitor.md says this; GradScaler does nothing on the CPU."""
    weight = paddle.create_parameter([1], "float32")
    optimizer = paddle.optimizer.Adam(0.1, parameters=[weight])
    before = weight.numpy().copy()
    for scale, moves in ((0.5, True), (np.nan, False)):
        (weight.sum() * scale).backward()
        norm = gradclip.clip_([weight], torch.clip_grad_norm(1.0)).norm
        if bool(paddle.isfinite(norm)):
            optimizer.step()
        optimizer.clear_grad()
        assert bool((weight.numpy() != before).any()) == moves
        before = weight.numpy().copy()
