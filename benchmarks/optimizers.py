"""What a clip adds to a step, for each optimizer: ``python -m benchmarks.optimizers [--only '*AdamW*'] [--sets mlp,resnet50]``.

Three steps in turn, in random order: the optimizer alone, with the framework's own clip by global norm, and with
``gradclip.clipped``. The gradients are always clipped: they are made anew before each step, outside of the timing. It
prints the times of a clipped step divided by the time of the step alone, what gradclip's clip adds divided by what
the native's adds, and the time with gradclip divided by that with the native. It exits with 1 if the last is above 1.02,
or above 0.95 for the AdamW that the framework fuses or compiles and a set larger than the cache, with a confidence of 99 %.
Each framework has its own process.
"""

from __future__ import annotations

import argparse
import fnmatch
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.apart import command
from benchmarks.machine import cache
from benchmarks.sets import SETS, GradientSet, arrays
from benchmarks.timing import interval

Call = Callable[[], Any]
#: the step alone, with the native's clip and with gradclip's; each with a function that renews its gradients
Steps = list[tuple[Call, Call]]

LIMIT, RATE = 1.0, 1e-6
BOUND, LARGE = 1.02, 0.95
FUSED = ("AdamW, fused", "optax adamw", "Keras AdamW", "Paddle AdamW")  #: at most LARGE for sets larger than the cache
LEAST = 8  #: rounds, for an interval with a confidence of 99 %


def nothing() -> None:
    """Where a step leaves the gradients as they are."""


def torch(make: Callable[[Any], Any], gradients: GradientSet, is_wide: bool) -> Steps:
    """Both clips are in place, before the step or in it. ``is_wide``: only matrices, which Muon takes."""
    import torch

    import gradclip

    values = [torch.from_numpy(x) for x in arrays(gradients) if not is_wide or x.ndim == 2]

    def made() -> tuple[list[Any], Any, Call]:
        params = [torch.nn.Parameter(torch.zeros_like(x)) for x in values]
        for p, x in zip(params, values, strict=True):
            p.grad = x.clone()

        def renew() -> None:
            torch._foreach_copy_([p.grad for p in params], values)

        return params, make(params), renew

    _, alone, first = made()
    params, optimizer, second = made()
    _, clips, third = made()
    clips = gradclip.clipped(clips, gradclip.dialects.torch.clip_grad_norm(LIMIT))

    def native() -> None:
        torch.nn.utils.clip_grad_norm_(params, LIMIT)
        optimizer.step()

    return [(alone.step, first), (native, second), (clips.step, third)]


def paddle(name: str, gradients: GradientSet) -> Steps:
    """Eager steps, with the optimizer's own slot as the native."""
    import paddle

    import gradclip

    def made(clip: Any) -> Any:
        parameters = []
        for x in arrays(gradients):
            zeros = paddle.nn.initializer.Constant(0.0)
            parameters.append(paddle.create_parameter(list(x.shape), "float32", default_initializer=zeros))
            parameters[-1].grad = paddle.to_tensor(x)
        return getattr(paddle.optimizer, name)(RATE, parameters=parameters, grad_clip=clip)

    rule = gradclip.dialects.paddle.ClipGradByGlobalNorm(LIMIT)
    found = [made(None), made(paddle.nn.ClipGradByGlobalNorm(LIMIT)), gradclip.clipped(made(None), rule)]
    return [(optimizer.step, nothing) for optimizer in found]


def jax(name: str, gradients: GradientSet) -> Steps:
    """Steps under ``jit``."""
    import optax

    import gradclip

    optimizer = getattr(optax, name)(RATE)
    rule = gradclip.dialects.optax.clip_by_global_norm(LIMIT)
    found = [optimizer, optax.chain(optax.clip_by_global_norm(LIMIT), optimizer), gradclip.clipped(optimizer, rule)]
    return [(jax_step(chain, gradients), nothing) for chain in found]


def jax_step(chain: Any, gradients: GradientSet) -> Callable[[], Any]:
    """A step of a transformation under ``jit``, whose parameters and state are donated."""
    import jax
    import optax

    grads = [jax.numpy.asarray(x) for x in arrays(gradients)]
    params = [jax.numpy.zeros_like(x) for x in grads]
    state = [params, chain.init(params)]

    def update(grads: Any, params: Any, state: Any) -> Any:
        updates, state = chain.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    compiled = jax.jit(update, donate_argnums=(1, 2))

    def step() -> None:
        state[:] = compiled(grads, *state)
        jax.block_until_ready(state)

    return step


def keras(name: str, gradients: GradientSet) -> Steps:
    """On TensorFlow, in ``tf.function``."""
    import keras

    import gradclip

    kind = getattr(keras.optimizers, name)
    rule = gradclip.dialects.keras.global_clipnorm(LIMIT)
    found = [kind(RATE), kind(RATE, global_clipnorm=LIMIT), gradclip.clipped(kind(RATE), rule)]
    return [(keras_step(optimizer, gradients), nothing) for optimizer in found]


def keras_step(optimizer: Any, gradients: GradientSet) -> Callable[[], Any]:
    """A step of an optimizer on TensorFlow, in ``tf.function``."""
    import keras
    import tensorflow as tf

    grads = [tf.constant(x) for x in arrays(gradients)]
    optimizer.build([keras.Variable(x * 0) for x in arrays(gradients)])
    step: Callable[[], Any] = tf.function(lambda: optimizer.apply(grads))
    return step


def of_torch() -> dict[str, Callable[[GradientSet], Steps]]:
    """The optimizers of torch, by what the table calls them."""
    import torch as library

    def case(name: str, is_wide: bool = False, **options: Any) -> Callable[[GradientSet], Steps]:
        kind = getattr(library.optim, name)
        return lambda gradients: torch(lambda params: kind(params, lr=RATE, **options), gradients, is_wide)

    return {
        "AdamW": case("AdamW", foreach=False),
        "AdamW, foreach": case("AdamW", foreach=True),
        "AdamW, fused": case("AdamW", fused=True),
        "SGD with momentum": case("SGD", momentum=0.9),
        "SGD with momentum, fused": case("SGD", momentum=0.9, fused=True),
        "Adam": case("Adam"),
        "Adam, fused": case("Adam", fused=True),
        "Adagrad, fused": case("Adagrad", fused=True),
        "Adafactor": case("Adafactor"),
        "Muon, matrices only": case("Muon", is_wide=True),
    }


FRAMEWORKS: dict[str, Callable[[], dict[str, Callable[[GradientSet], Steps]]]] = {
    "torch": of_torch,
    "jax": lambda: {f"optax {name}": partial(jax, name) for name in ("adam", "adamw")},
    "keras": lambda: {f"Keras {name}": partial(keras, name) for name in ("Adam", "AdamW")},
    "paddle": lambda: {"Paddle AdamW": partial(paddle, "AdamW")},
}


def timed(steps: Steps, seconds: float) -> list[list[float]]:
    """The times of the three, in rounds."""
    order, times = random.Random(0), [[0.0] * 0 for _ in steps]
    for step, renew in steps * 2:  # compiled, and its state made
        renew()
        step()
    end = time.perf_counter() + seconds
    while len(times[0]) < LEAST or time.perf_counter() < end:
        for which in order.sample(range(len(steps)), len(steps)):
            step, renew = steps[which]
            renew()
            start = time.perf_counter()
            step()
            times[which].append(time.perf_counter() - start)
    return times


def measure(framework: str, options: argparse.Namespace) -> bool:
    """Print a line for each optimizer and set; returns whether none is too slow."""
    is_fast = True
    chosen = {name: make for name, make in FRAMEWORKS[framework]().items() if fnmatch.fnmatchcase(name, options.only)}
    for name, make in chosen.items():
        for given in options.sets.split(","):
            if name.startswith("Muon") and sum(len(shape) == 2 for shape in SETS[given].shapes) < 2:
                continue  # it takes matrices only
            times = timed(make(SETS[given]), options.seconds)
            alone, native, ours = (statistics.median(x) for x in times)
            low, high = interval([x / y for x, y in zip(times[2], times[1], strict=True)])
            is_fast &= low <= (LARGE if name in FUSED and 4 * SETS[given].size > cache() else BOUND)
            parts = f"native {native / alone:.2f}, gradclip {ours / alone:.2f}"
            share = (ours - alone) / (native - alone) if native > alone else float("nan")
            added = f"adds {share:.2f} of the native's"
            clip = f"step with gradclip / with native {ours / native:.2f} ({low:.2f}..{high:.2f})"
            print(f"{name:<25} {given:<9} alone {1e3 * alone:8.3f} ms: {parts}; {added}; {clip}", flush=True)
    return is_fast


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which optimizers and gradients, and for how long."""
    parser.add_argument("--only", metavar="PATTERN", default="*", help="optimizers of this name, as in the README")
    parser.add_argument("--sets", default="mlp,resnet50")
    parser.add_argument("--seconds", type=float, default=5.0)


if __name__ == "__main__":
    sys.exit(command("benchmarks.optimizers", __doc__, FRAMEWORKS, measure, add_options))
