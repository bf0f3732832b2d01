"""``gradclip.clipped`` for Paddle's optimizers: the same object; it skips in dynamic mode, and clips in programs too."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle_programs import static_mode
from slots import REFUSED, names_reduce_nothing, refused_at_once

import gradclip
from gradclip import limits
from gradclip.backends.paddle import grad_clip
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
RULE = dialect.clip_grad_norm(1.0)
SKIPS = dataclasses.replace(RULE, skip_above=10.0, if_nonfinite="skip")
NORMS = [float(n) * (40 if i % 7 == 6 else 1) for i, n in enumerate(np.exp(np.random.default_rng(0).normal(size=30) * 0.3))]


def follows() -> gradclip.Rule:
    rule = dialect.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.8, warmup=4)))
    return dataclasses.replace(rule, skip_above=gradclip.Adaptive(limits.spike(4.0, warmup=3)))


def made(rule: Any, **options: Any) -> tuple[Any, Any]:
    zeros = paddle.nn.initializer.Constant(0.0)
    weight = paddle.create_parameter([2], "float32", default_initializer=zeros)
    return weight, gradclip.clipped(paddle.optimizer.Momentum(1.0, 0.5, parameters=[weight]), rule, **options)


def train(weight: Any, optimizer: Any, norms: list[float]) -> None:
    for n in norms:
        (weight * paddle.to_tensor([0.6 * n, 0.8 * n])).sum().backward()
        optimizer.step()
        optimizer.clear_grad()


def test_all_parameter_groups_have_one_norm() -> None:
    one, other = (
        paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(0.0)) for _ in range(2)
    )
    groups: Any = [{"params": [one]}, {"params": [other], "learning_rate": 0.5}]
    optimizer = paddle.optimizer.SGD(1.0, parameters=groups)
    assert gradclip.clipped(optimizer, RULE) is optimizer
    assert isinstance(optimizer, paddle.optimizer.SGD)
    (one * 3.0 + other * 4.0).sum().backward()
    optimizer.step()
    np.testing.assert_allclose([one.item(), other.item()], [-0.6, -0.4], rtol=1e-5)
    assert one.grad.item() == 3.0  # Paddle's own clips leave the gradients too
    with pytest.raises(ValueError, match="clips already"):
        gradclip.clipped(optimizer, RULE)


@pytest.mark.parametrize("kind", [paddle.optimizer.SGD, paddle.optimizer.Momentum])
def test_a_group_that_is_added_is_clipped_too(kind: Any) -> None:
    one, other = (
        paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(0.0)) for _ in range(2)
    )
    optimizer = gradclip.clipped(kind(1.0, parameters=[{"params": [one]}]), RULE)
    optimizer._add_param_group({"params": [other], "weight_decay": None})
    (one * 3.0 + other * 4.0).sum().backward()
    optimizer.step()
    np.testing.assert_allclose([one.item(), other.item()], [-0.6, -0.8], rtol=1e-5)


def test_the_state_is_in_the_state_dict(tmp_path: Path) -> None:
    monitor = gradclip.Monitor()
    runs, saved = [], {}
    for restarts in (False, True):
        with paddle.utils.unique_name.guard():  # each run names its variables anew
            weight, optimizer = made(follows())
            train(weight, optimizer, NORMS[:15])
            if restarts:
                paddle.save(optimizer.state_dict(), str(tmp_path / "run.pdopt"))
                saved = paddle.load(str(tmp_path / "run.pdopt"))
                values = weight.numpy()
        if restarts:
            with paddle.utils.unique_name.guard():
                weight, optimizer = made(follows())
                weight.set_value(values)
                optimizer.set_state_dict(saved)
                train(weight, optimizer, NORMS[15:])
        else:
            train(weight, optimizer, NORMS[15:])
        runs.append((weight.numpy(), optimizer.state_dict()["gradclip"]))
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert runs[1][1]["skips"]["skipped"] == 4
    rest = optimizer
    plain = {name: x for name, x in saved.items() if name != "gradclip"}
    with pytest.warns(GradclipWarning, match=r"has none of the clip(.|\n)*Hint: save optimizer\.gradclip\.state_dict\(\) too"):
        rest.set_state_dict(plain)
    for wrong in ({}, {**saved["gradclip"], "skips": []}):
        with pytest.raises(ValueError, match="state of a step"):
            rest.load_state_dict({**saved, "gradclip": wrong})
    weight, optimizer = made(RULE, monitor=monitor)
    train(weight, optimizer, NORMS)
    assert monitor.report()["steps"] == 30
    assert "gradclip" not in made(RULE)[1].state_dict()


def test_a_step_that_a_scaler_skips_is_not_counted() -> None:
    """A scaler, which Paddle has on GPUs only, tells the optimizer by this variable."""
    weight, optimizer = made(SKIPS)
    for found, size, want in ((True, math.inf, 0.0), (False, 50.0, 0.0), (False, 0.5, -0.5)):
        optimizer._set_auxiliary_var("found_inf", paddle.to_tensor(found))
        (weight * paddle.to_tensor([size, 0.0])).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        assert weight.numpy()[0] == want
    assert optimizer.gradclip.skipped == 1


def test_minimize_steps_as_step_does() -> None:
    both, others = made(SKIPS), made(SKIPS)
    for size in (0.5, 3.0, 50.0, math.nan, 2.0):
        train(*both, [size])
        loss = (others[0] * paddle.to_tensor([0.6 * size, 0.8 * size])).sum()
        loss.backward()
        operators, pairs = others[1].minimize(loss)
        assert operators == []
        assert [p is others[0] for p, _ in pairs] == [True]
        others[1].clear_grad()
        np.testing.assert_array_equal(both[0].numpy(), others[0].numpy())
    assert others[1].gradclip.skipped == 2
    one, other = others[0], paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(0.0))
    optimizer = gradclip.clipped(paddle.optimizer.SGD(1.0, parameters=[one, other]), RULE)
    loss = (one * 3.0 + other * 4.0).sum()
    loss.backward()
    optimizer.minimize(loss, parameters=[other])
    assert optimizer.gradclip.last.norm.item() == pytest.approx(4 * 2**0.5)
    np.testing.assert_allclose(other.numpy(), [-(0.5**0.5)] * 2, rtol=1e-5)


def test_the_fit_of_a_model_skips() -> None:
    layer = paddle.nn.Linear(2, 1)
    model = paddle.Model(layer)
    model.prepare(gradclip.clipped(paddle.optimizer.Adam(0.1, parameters=layer.parameters()), SKIPS), paddle.nn.MSELoss())
    model.train_batch([np.ones((4, 2), "float32")], [np.zeros((4, 1), "float32")])
    before = layer.weight.numpy()
    model.train_batch([np.full((4, 2), 1e4, "float32")], [np.zeros((4, 1), "float32")])
    np.testing.assert_array_equal(before, layer.weight.numpy())
    assert model._optimizer.gradclip.skipped == 1


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")  # of Paddle's LBFGS
def test_a_step_that_calls_a_closure() -> None:
    def moved(clip: bool) -> Any:
        weight = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(3.0))
        optimizer: Any = paddle.optimizer.LBFGS(0.5, max_iter=3, parameters=[weight])
        if clip:
            gradclip.clipped(optimizer, RULE)

        def closure() -> Any:
            optimizer.clear_grad()
            loss = weight.square().sum()
            loss.backward()
            if not clip:
                gradclip.clip_([weight], RULE)
            return loss

        assert optimizer.step(closure).item() == 18.0
        optimizer.step(closure=closure)
        return weight.numpy()

    np.testing.assert_array_equal(moved(True), moved(False))
    weight = paddle.create_parameter([2], "float32")
    optimizer = gradclip.clipped(paddle.optimizer.LBFGS(parameters=[weight]), SKIPS)
    with pytest.raises(ValueError, match=r"calls its closure several times cannot be skipped(.|\n)*Hint: skip in the closure"):
        optimizer.step(lambda: weight.sum())


def test_too_many_skipped_steps() -> None:
    weight, optimizer = made(SKIPS, patience=2)
    train(weight, optimizer, [math.nan] * 2)
    with pytest.raises(ValueError, match="More than 2 steps in a row were skipped"):
        train(weight, optimizer, [math.nan])
    assert weight.numpy().tolist() == [0.0, 0.0]


def test_a_copy_steps_its_own_parameters() -> None:
    weight, optimizer = made(RULE)
    train(weight, optimizer, [5.0])
    again = copy.copy(optimizer)
    assert type(again) is type(optimizer)
    assert type(again).__name__ == "Momentum"


@pytest.mark.parametrize("rule", [RULE, SKIPS], ids=["clips", "skips"])
def test_in_a_program(rule: gradclip.Rule) -> None:
    with static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
            fed = paddle.static.data("x", [2], "float32")
            weight = paddle.static.create_parameter([2], "float32", name="w")
            optimizer = gradclip.clipped(paddle.optimizer.SGD(1.0), rule)
            if rule is SKIPS:
                with pytest.raises(ValueError, match=r"Only optimizer\.step\(\) in dynamic mode can be skipped"):
                    optimizer.minimize((weight * fed).sum(), parameters=[weight])
                return
            optimizer.minimize((weight * fed).sum(), parameters=[weight])
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        held = paddle.static.global_scope().find_var("w").get_tensor()
        held.set(np.zeros(2, "float32"), paddle.CPUPlace())
        executor.run(main, {"x": np.float32([3.0, 4.0])})
        np.testing.assert_allclose(np.array(held), [-0.6, -0.8], rtol=1e-5)


def test_what_is_no_optimizer() -> None:
    weight = paddle.create_parameter([2], "float32")
    own = paddle.optimizer.SGD(1.0, parameters=[weight], grad_clip=paddle.nn.ClipGradByNorm(1.0))
    with pytest.raises(ValueError, match="clips already"):
        gradclip.clipped(own, RULE)
    for wrong in (weight, paddle.optimizer.SGD, RULE):
        with pytest.raises(TypeError, match=r"Hint: .*gradclip\.clipped\("):
            gradclip.clipped(wrong, RULE)


def _adamw(weights: list[Any], *, clip: bool) -> Any:
    made = paddle.optimizer.AdamW(0.1, parameters=weights, weight_decay=0.1, multi_precision=True)
    return gradclip.clipped(made, SKIPS) if clip else made


def test_a_skipped_step_changes_no_bit() -> None:
    """Beside a loop that does not call ``step``: parameters, moments and the powers of beta."""
    found = []
    for clip in (True, False):
        with paddle.utils.unique_name.guard():
            ones = paddle.nn.initializer.Constant(1.0)
            weights = [paddle.create_parameter([2], "float32", name=name, default_initializer=ones) for name in "ab"]
            optimizer = _adamw(weights, clip=clip)
            for size in (50.0, 0.5, 3.0, math.nan, math.inf, 0.25, 11.0, 2.0):
                optimizer.clear_grad()
                sum((w * (size / 2)).sum() for w in weights).backward()
                if clip or not gradclip.clip_(weights, SKIPS).skip:
                    optimizer.step()
            state = {name: x.numpy() for name, x in optimizer.state_dict().items() if isinstance(x, paddle.Tensor)}
            found.append({**state, **{w.name: w.numpy() for w in weights}})
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) == 2 + 2 * 4
    for name, x in found[0].items():
        np.testing.assert_array_equal(x, found[1][name])


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_clip_takes_is_refused_at_once(why: str) -> None:
    optimizer = paddle.optimizer.SGD(parameters=[paddle.create_parameter([2], "float32")])
    refused_at_once(why, lambda *given, **others: gradclip.clipped(optimizer, *given, **others))
    gradclip.clipped(optimizer, RULE)


def test_a_name_or_a_tensor_reduces_nothing() -> None:
    names_reduce_nothing(lambda reduce: made(RULE, reduce=reduce), paddle.ones([2]))
    names_reduce_nothing(lambda reduce: grad_clip(RULE, reduce), paddle.ones([2]))
