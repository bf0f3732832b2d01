"""A limit that follows the run, in Paddle's static programs: they keep its state from run to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from limited import ALL
from paddle_programs import static_mode

import gradclip
from gradclip import limits
from gradclip.backends.paddle import grad_clip
from gradclip.dialects import keras, optax
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface:UserWarning")
STEPS = np.exp(np.random.default_rng(0).normal(size=(30, 2))).astype("float32")
STEPS[17], STEPS[11, 1], STEPS[20, 0] = 1e4, 0.0, np.nan
START = np.zeros(1, "float32")


def rule_of(name: str) -> Any:
    return (keras.clipnorm if name == "adagc" else optax.clip_by_global_norm)(gradclip.Adaptive(ALL[name]()))


class Program:
    """A program with two weights; a step subtracts their clipped gradients."""

    def __init__(self, rule: Any, monitor: Any = None) -> None:
        self.main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(self.main, startup):
            fed = [paddle.static.data(f"x{i}", [1], "float32") for i in range(2)]
            self.weights = [paddle.static.create_parameter([1], "float32", name=f"w{i}") for i in range(2)]
            loss = sum((w * x).sum() for w, x in zip(self.weights, fed, strict=True))
            self.clip = grad_clip(rule, monitor=monitor)
            sgd = paddle.optimizer.SGD(1.0, grad_clip=self.clip)
            sgd.minimize(loss, parameters=self.weights)
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        self.executor.run(startup)

    def step(self, sizes: np.ndarray, fetched: Any = None) -> list[np.ndarray]:
        """Run a step, and return the clipped gradients, or what is fetched."""
        weights = [paddle.static.global_scope().find_var(f"w{i}").get_tensor() for i in range(2)]
        for weight in weights:
            weight.set(START, paddle.CPUPlace())
        feed = {f"x{i}": size[None] for i, size in enumerate(sizes)}
        found: list[np.ndarray] = self.executor.run(self.main, feed, fetch_list=fetched or [])
        return found if fetched else [START - np.array(weight) for weight in weights]


def eagerly(rule: Any, steps: np.ndarray) -> list[np.ndarray]:
    return [np.ravel(gradclip.clip([np.array([size]) for size in sizes], rule).grads) for sizes in steps]


@pytest.mark.parametrize("name", ALL)
def test_a_program_clips_as_numpy_does_eagerly(name: str) -> None:
    rule, reference, monitor = rule_of(name), rule_of(name), gradclip.Monitor()
    with static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
        program = Program(rule, monitor)
        for i, want in enumerate(eagerly(reference, STEPS)):
            np.testing.assert_allclose(np.ravel(program.step(STEPS[i])), want, rtol=1e-3, atol=1e-4)
        got, want = rule.limit.state_dict(), reference.limit.state_dict()
        assert monitor.report()["steps"] == len(STEPS)
    json.dumps(got, allow_nan=False)
    for key, x in want["state"].items():
        np.testing.assert_allclose(got["state"][key], x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_a_program_goes_on_with_a_saved_state(name: str) -> None:
    first, second = rule_of(name), rule_of(name)
    wanted = eagerly(rule_of(name), STEPS)
    with static_mode():
        with paddle.static.scope_guard(paddle.static.Scope()):
            program = Program(first)
            for sizes in STEPS[:12]:
                program.step(sizes)
            saved = json.dumps(first.limit.state_dict())
        second.limit.load_state_dict(json.loads(saved))
        with paddle.static.scope_guard(paddle.static.Scope()):
            program = Program(second)
            for sizes, want in zip(STEPS[12:], wanted[12:], strict=True):
                np.testing.assert_allclose(np.ravel(program.step(sizes)), want, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=r"in the variables of a program(.|\n)*before the program is built"):
        second.limit.load_state_dict(json.loads(saved))


def test_the_variables_are_saved_with_the_program(tmp_path: Path) -> None:
    found = []
    with static_mode():
        for loads in (False, True):
            with paddle.static.scope_guard(paddle.static.Scope()):
                program = Program(rule := rule_of("quantile"))
                if loads:
                    paddle.static.load(program.main, str(tmp_path / "run"), program.executor)
                for sizes in STEPS[10 * loads : 10]:
                    program.step(sizes)
                paddle.static.save(program.main, str(tmp_path / "run"))
                found.append(rule.limit.state_dict())
    assert found[0] == found[1]
    assert found[0]["state"]["count"] == 10.0


def test_groups_have_limits_of_their_own_in_a_program() -> None:
    one, other = (gradclip.Adaptive(limits.quantile(0.5, warmup=2, at_first=first)) for first in (1.0, 100.0))
    rules = [gradclip.Group(dialect.clip_grad_norm(one), "w0"), gradclip.Group(dialect.clip_grad_norm(other))]
    with static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
        program = Program(rules)
        for _ in range(3):
            program.step(np.float32([3.0, 50.0]))
        assert [x.item() for x in program.step(np.float32([3.0, 50.0]), [one.last, other.last])] == [
            pytest.approx(3.0, rel=0.045),
            pytest.approx(50.0, rel=0.045),
        ]
        assert [limit.state_dict()["state"]["count"] for limit in (one, other)] == [4.0, 4.0]
