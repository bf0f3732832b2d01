"""How far one clip walks through gradclip: ``python -m benchmarks.walk [--frameworks torch,jax] [--calls]``.

It counts the Python calls of gradclip's own functions, the distinct functions, and their files: in the eager clip of a list,
and in the first step of a framework's slot. Each call costs time. Each function and file has to be read. The ceilings are for
Python 3.11: later versions call no function for a list comprehension.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from benchmarks.apart import command

__all__ = ["CEILINGS", "WALKS", "Walk", "counted"]

TENSORS = 8
CALLS = 4  #: the last of these is counted: the earlier ones fill the caches


class Walk(NamedTuple):
    """What a clip passes through."""

    calls: int
    functions: int
    files: int


Prepare = Callable[[], Callable[[], Any]]


def torch() -> Prepare:
    """``clip_`` of a list of small parameters, eager."""
    import torch

    import gradclip

    rule = gradclip.dialects.torch.clip_grad_norm(1.0)

    def prepare() -> Callable[[], Any]:
        parameters = [torch.nn.Parameter(torch.ones(4, 4)) for _ in range(TENSORS)]
        for parameter in parameters:
            parameter.grad = torch.ones(4, 4)
        return lambda: gradclip.clip_(parameters, rule)

    return prepare


def numpy() -> Prepare:
    """The same with NumPy's arrays."""
    import numpy as np

    import gradclip

    rule = gradclip.dialects.torch.clip_grad_norm(1.0)

    def prepare() -> Callable[[], Any]:
        arrays = [np.ones((4, 4)) for _ in range(TENSORS)]
        return lambda: gradclip.clip_(arrays, rule)

    return prepare


def jax() -> Prepare:
    """A link of ``optax.chain`` in a new program, traced."""
    import jax
    import optax

    import gradclip
    from gradclip.backends.jax import gradient_transformation

    rows = itertools.count(1)

    def prepare() -> Callable[[], Any]:
        chain = optax.chain(gradient_transformation(gradclip.dialects.optax.clip_by_global_norm(1.0)), optax.sgd(0.1))
        shape = (next(rows), 4)  # JAX keeps the programs inside this one for each shape
        grads = [jax.numpy.ones(shape, "float32") for _ in range(TENSORS)]
        state = chain.init(grads)
        program = jax.jit(lambda grads, state: chain.update(grads, state))
        return lambda: program.trace(grads, state)

    return prepare


def keras() -> Prepare:
    """The first step of ``fit``, traced."""
    import keras
    import numpy as np

    import gradclip
    from gradclip.backends.keras import clipped

    def prepare() -> Callable[[], Any]:
        model = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4, use_bias=False) for _ in range(TENSORS))])
        model.compile(optimizer=clipped(keras.optimizers.SGD(0.1), gradclip.dialects.keras.global_clipnorm(1.0)), loss="mse")
        x = np.ones((4, 4), np.float32)
        return lambda: model.fit(x, x, verbose=0)

    return prepare


def paddle() -> Prepare:
    """The first step of an optimizer with ``grad_clip=``, eager."""
    import paddle

    import gradclip
    from gradclip.backends.paddle import grad_clip

    def prepare() -> Callable[[], Any]:
        parameters = [paddle.create_parameter([4, 4], "float32") for _ in range(TENSORS)]
        for parameter in parameters:
            parameter.grad = paddle.ones([4, 4])
        clip = grad_clip(gradclip.dialects.paddle.ClipGradByGlobalNorm(1.0))
        optimizer = paddle.optimizer.SGD(0.1, parameters=parameters, grad_clip=clip)
        return lambda: optimizer.step()

    return prepare


WALKS = {"numpy": numpy, "torch": torch, "jax": jax, "keras": keras, "paddle": paddle}

#: at most so far, on Python 3.11; a change that needs more says why
CEILINGS = {
    "numpy": Walk(41, 37, 15),
    "torch": Walk(49, 46, 17),
    "jax": Walk(183, 105, 25),
    "keras": Walk(216, 111, 23),
    "paddle": Walk(62, 54, 16),
}


def counted(prepare: Prepare) -> Counter[tuple[str, str]]:
    """How often the fourth call enters each function, by module and name."""
    for _ in range(CALLS - 1):
        prepare()()
    call, found = prepare(), Counter[tuple[str, str]]()

    def see(frame: FrameType, event: str, _: object) -> None:
        module, has_source = frame.f_globals.get("__name__", ""), not frame.f_code.co_filename.startswith("<")
        if event == "call" and module.partition(".")[0] == "gradclip" and has_source:  # not what dataclasses generate
            found[module, frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def summed(found: Counter[tuple[str, str]]) -> Walk:
    """The three numbers of a walk."""
    return Walk(found.total(), len(found), len({module for module, _ in found}))


def measure(name: str, options: argparse.Namespace) -> bool:
    """Walk in a framework; returns whether it is no further than the ceiling."""
    found = counted(WALKS[name]())
    walk, most = summed(found), CEILINGS[name]
    print(f"{name:<7} {walk.calls:4} calls of {walk.functions:4} functions in {walk.files:3} files; at most {tuple(most)}")
    for (module, function), times in sorted(found.items()) if options.calls else ():
        print(f"  {times:3} {module}:{function}")
    return all(number <= ceiling for number, ceiling in zip(walk, most, strict=True))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Whether to print each function."""
    parser.add_argument("--calls", action="store_true", help="also print each function, and how often it is called")


if __name__ == "__main__":
    sys.exit(command("benchmarks.walk", __doc__, WALKS, measure, add_options))
