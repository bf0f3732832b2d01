"""What a clip adds to a step, for each optimizer: ``python -m benchmarks.optimizers [--sets mlp,resnet50] [--seconds 5]``.

Three steps in turn, in random order: the optimizer alone, with the framework's own clip by global norm, and with
``gradclip.clipped``. The gradients are always clipped: they are made anew before each step, outside of the timing. It
prints the times of a clipped step divided by the time of the step alone, and what gradclip's clip adds divided by what
the native's adds. It exits with 1 if a step with gradclip takes more than 1.02 of the native's time, with a confidence
of 99 %. Each framework has its own process.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.sets import SETS, GradientSet, arrays
from benchmarks.steps import LIMIT, RATE, command, jax_step, keras_step, paddle_parameters
from benchmarks.timing import interval

Call = Callable[[], Any]
#: the step alone, with the native's clip and with gradclip's; each with a function that renews its gradients
Steps = list[tuple[Call, Call]]

BOUND = 1.02
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
        return getattr(paddle.optimizer, name)(RATE, parameters=paddle_parameters(gradients), grad_clip=clip)

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


def keras(name: str, gradients: GradientSet) -> Steps:
    """On TensorFlow, in ``tf.function``."""
    import keras

    import gradclip

    kind = getattr(keras.optimizers, name)
    rule = gradclip.dialects.keras.global_clipnorm(LIMIT)
    found = [kind(RATE), kind(RATE, global_clipnorm=LIMIT), gradclip.clipped(kind(RATE), rule)]
    return [(keras_step(optimizer, gradients), nothing) for optimizer in found]


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
    "jax": lambda: {f"optax {name}": lambda gradients, name=name: jax(name, gradients) for name in ("adam", "adamw")},  # type: ignore[misc]
    "keras": lambda: {"Keras Adam": lambda gradients: keras("Adam", gradients)},
    "paddle": lambda: {"Paddle AdamW": lambda gradients: paddle("AdamW", gradients)},
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


def measure(framework: str, sets: list[str], seconds: float) -> bool:
    """Print a line for each optimizer and set; returns whether none is too slow."""
    is_fast = True
    for name, make in FRAMEWORKS[framework]().items():
        for given in sets:
            if name.startswith("Muon") and sum(len(shape) == 2 for shape in SETS[given].shapes) < 2:
                continue  # it takes matrices only
            times = timed(make(SETS[given]), seconds)
            alone, native, ours = (statistics.median(x) for x in times)
            low, high = interval([x / y for x, y in zip(times[2], times[1], strict=True)])
            is_fast &= low <= BOUND
            parts = f"native {native / alone:.2f}, gradclip {ours / alone:.2f}"
            share = (ours - alone) / (native - alone) if native > alone else float("nan")
            added = f"adds {share:.2f} of the native's"
            clip = f"step with gradclip / with native {ours / native:.2f} ({low:.2f}..{high:.2f})"
            print(f"{name:<25} {given:<9} alone {1e3 * alone:8.3f} ms: {parts}; {added}; {clip}", flush=True)
    return is_fast


if __name__ == "__main__":
    sys.exit(command("benchmarks.optimizers", __doc__, FRAMEWORKS, "mlp,resnet50", measure))
