"""A monitor's cost beside a clip of many small gradients: ``python -m benchmarks.monitor [--gradients 2000] [--seconds 5]``.

Each clip and the ``update`` after it are timed separately, in turn, so that other work on the machine slows both. A block is a
hundred steps; the last one copies the norms to the host. It prints the medians of the blocks, and exits with 1 above two per
cent.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import gradclip
from benchmarks.apart import command
from gradclip.dialects import torch as dialect

BOUND = 0.02
STEPS = 100  #: of a block
FRAMEWORKS = ("numpy", "torch", "paddle", "tensorflow", "jax")
IN_PLACE = ("numpy", "torch", "paddle")


def tensors(framework: str, count: int) -> list[Any]:
    """Small gradients of a framework."""
    module = importlib.import_module({"jax": "jax.numpy"}.get(framework, framework))
    return [module.ones((64,), dtype="float32" if framework != "torch" else module.float32) for _ in range(count)]


def wait_for(grads: list[Any]) -> None:
    """Wait for the values of these gradients: JAX returns a result before it is computed."""
    for x in grads:
        if hasattr(x, "block_until_ready"):
            x.block_until_ready()


def block(grads: list[Any], clip_by: Callable[..., Any], monitor: gradclip.Monitor) -> tuple[float, float]:
    """The seconds of a clip and of an ``update``, each the mean of the steps of a block."""
    rule = dialect.clip_grad_norm(1e9)  # nothing is scaled, so nothing has to be restored
    clips = updates = 0.0
    for _ in range(STEPS):
        begun = time.perf_counter()
        result = clip_by(grads, rule)
        wait_for(result.grads)
        clipped = time.perf_counter()
        monitor.update(result)
        updates += time.perf_counter() - clipped
        clips += clipped - begun
    return clips / STEPS, updates / STEPS


def cost(framework: str, count: int, seconds: float) -> tuple[float, float]:
    """The seconds of a clip, and those of the ``update`` after it, transfers included."""
    grads, monitor = tensors(framework, count), gradclip.Monitor()
    clip_by = gradclip.clip_ if framework in IN_PLACE else gradclip.clip
    blocks: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(blocks) < 5:
        blocks.append(block(grads, clip_by, monitor))
    clips, updates = zip(*blocks, strict=True)
    return statistics.median(clips), statistics.median(updates)


def measure(framework: str, options: argparse.Namespace) -> bool:
    """Print a line for a framework; returns whether the monitor is cheap enough."""
    clip, added = cost(framework, options.gradients, options.seconds)
    print(f"{framework:<8} clip {1e6 * clip:8.1f} us, monitor {1e6 * added:6.2f} us: {added / clip:6.2%}")
    return added / clip <= BOUND


def add_options(parser: argparse.ArgumentParser) -> None:
    """How many gradients, and for how long."""
    parser.add_argument("--gradients", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5.0)


if __name__ == "__main__":
    sys.exit(command("benchmarks.monitor", __doc__, FRAMEWORKS, measure, add_options))
