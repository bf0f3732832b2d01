"""Each cell of the slots' table for Paddle: in dynamic mode, and in a static program, which skips no step."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
from paddle_programs import static_mode
from slots import CELLS, compare, counted

import gradclip

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
ONES = paddle.nn.initializer.Constant(1.0)


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

    steps = compare(cell, step)
    assert counted(monitor) == steps


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

        steps = compare(cell, step)
        assert counted(monitor) == steps
