"""Builds and runs Paddle's static programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle


@contextmanager
def static_mode() -> Iterator[None]:
    paddle.enable_static()
    try:
        yield
    finally:
        paddle.disable_static()


def run(build: Callable[..., list[Any]], *fed: np.ndarray, known: bool = True) -> list[np.ndarray]:
    """Build a program with these inputs, whose first lengths may be unknown, and return the function's fetched results."""
    with static_mode():
        program = paddle.static.Program()
        with paddle.static.program_guard(program):
            shapes = [x.shape if known else (None, *x.shape[1:]) for x in fed]
            inputs = [paddle.static.data(f"x{i}", s, str(x.dtype)) for i, (x, s) in enumerate(zip(fed, shapes, strict=True))]
            outputs = build(*inputs)
        feed = {f"x{i}": x for i, x in enumerate(fed)}
        fetched: list[np.ndarray] = paddle.static.Executor(paddle.CPUPlace()).run(program, feed=feed, fetch_list=outputs)
        return fetched
