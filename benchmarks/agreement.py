"""How often a clip by a global norm agrees with the framework's own to the bit, and the difference otherwise.

``python -m benchmarks.agreement`` prints a line for each framework that is installed: 200 random lists of float32 gradients.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.apart import command
from benchmarks.case import EAGER, Function
from benchmarks.subjects.base import Sample, Subject

__all__ = ["CLIPS", "compared"]

#: the package of the native -> the benchmarks' subject, and its clip by a global norm
CLIPS = {
    "torch": ("torch", "clip_grad_norm_"),
    "tensorflow": ("tensorflow", "clip_by_global_norm"),
    "paddle": ("paddle", "ClipGradByGlobalNorm"),
    "optax": ("jax", "clip_by_global_norm"),
}


def gradients(count: int = 200) -> Iterator[tuple[list[Any], float]]:
    """Random gradients of up to three dimensions and six orders of magnitude, each list with a limit."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        shapes = [tuple(rng.integers(1, 40, size=rng.integers(1, 4))) for _ in range(rng.integers(1, 6))]
        sized = [rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3) for shape in shapes]
        yield [x.astype(np.float32) for x in sized], float(10.0 ** rng.uniform(-2, 2))


def compared(name: str, count: int = 200) -> tuple[int, float]:
    """The number of results that equal the native's to the bit, and the largest distance in ulp of the native's element."""
    framework, wanted = CLIPS[name]
    subject: Subject = importlib.import_module(f"benchmarks.subjects.{framework}").subject("cpu")
    (function,) = (one for one in subject.functions() if one.name == wanted)
    identical, furthest = 0, 0.0
    for arrays, limit in gradients(count):
        native, ours = (_clipped(subject, function, make(limit), arrays) for make in (function.native, function.ours))
        identical += all(map(np.array_equal, native, ours))
        distances = (
            np.max(np.abs(mine - theirs) / np.spacing(np.abs(theirs))) for theirs, mine in zip(native, ours, strict=True)
        )
        furthest = max(furthest, *map(float, distances))
    return identical, furthest


def _clipped(subject: Subject, function: Function, clip: Callable[[Any], Any], arrays: Sequence[Any]) -> list[Any]:
    """The clipped gradients, in float32."""
    sample = Sample(subject, arrays, "float32")
    result = subject.call(clip, EAGER, function.form, sample)()
    clipped = sample.tensors if function.form == "params" else function.grads(result)
    return [subject.read(x).astype(np.float32) for x in clipped]


def measure(name: str, options: argparse.Namespace) -> bool:
    """Print a line for a framework."""
    identical, furthest = compared(name)
    print(f"{name}: {identical} of 200 to the bit, the others within {furthest:.0f} ulp")
    return True


if __name__ == "__main__":
    sys.exit(command("benchmarks.agreement", __doc__, CLIPS, measure))
