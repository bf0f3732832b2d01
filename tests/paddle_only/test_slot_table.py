"""Each cell of the slots' table for Paddle: in dynamic mode, and in a static program, which skips no step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from paddle_programs import static_mode
from slots import CELLS, gradients, run

import gradclip

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
ONES = paddle.nn.initializer.Constant(1.0)


def compare(cell: str, monitor: gradclip.Monitor, step: Callable[[dict[str, Any]], list[np.ndarray]]) -> None:
    """Run ``step``, which returns the weights, and compare them with plain calls."""
    wanted, before = run(cell), [np.ones(1), np.ones(2)]
    for n, (want, skipped) in zip(CELLS[cell][1], wanted, strict=True):
        weights = step(gradients(n))
        for one, other, old in zip(weights, want, before, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
            assert not skipped or np.array_equal(one, old)
        before = weights
    found = {name.rpartition("/")[2]: x for name, x in monitor.report().items()}
    assert (found["steps"], found["skipped_steps"]) == (len(wanted), sum(skipped for _, skipped in wanted))


@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_is_as_with_plain_calls(cell: str) -> None:
    monitor = gradclip.Monitor()
    with paddle.utils.unique_name.guard():
        params = [
            paddle.create_parameter([i + 1], "float32", name=name, default_initializer=ONES) for i, name in enumerate("ab")
        ]
    optimizer = gradclip.clipped(paddle.optimizer.SGD(1.0, parameters=params), CELLS[cell][0](), monitor=monitor)

    def step(grads: dict[str, Any]) -> list[np.ndarray]:
        optimizer.clear_grad()
        sum((p * paddle.to_tensor(g)).sum() for p, g in zip(params, grads.values(), strict=True)).backward()
        optimizer.step()
        return [p.numpy().copy() for p in params]

    compare(cell, monitor, step)


@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_in_a_program(cell: str) -> None:
    monitor = gradclip.Monitor()
    with static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
            fed = [paddle.static.data(f"x{i}", [i + 1], "float32") for i in range(2)]
            params = [
                paddle.static.create_parameter([i + 1], "float32", name=name, default_initializer=ONES)
                for i, name in enumerate("ab")
            ]
            optimizer = gradclip.clipped(paddle.optimizer.SGD(1.0), CELLS[cell][0](), monitor=monitor)
            loss = sum((p * x).sum() for p, x in zip(params, fed, strict=True))
            if cell.startswith("skip"):
                with pytest.raises(ValueError, match="a static program of Paddle cannot"):
                    optimizer.minimize(loss, parameters=params)
                return
            optimizer.minimize(loss, parameters=params)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)

        def step(grads: dict[str, Any]) -> list[np.ndarray]:
            executor.run(main, {f"x{i}": g for i, g in enumerate(grads.values())})
            scope = paddle.static.global_scope()
            return [np.array(scope.find_var(name).get_tensor()) for name in "ab"]

        compare(cell, monitor, step)
