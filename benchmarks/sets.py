"""The gradient sets: the shapes of real models, and one content for every framework."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["QUICK", "SETS", "GradientSet", "arrays", "chosen"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class GradientSet:
    """The shapes of the gradients of a model."""

    shapes: tuple[Shape, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(map(math.prod, self.shapes))


def mlp() -> Iterator[Shape]:
    """A 784-128-64-10 classifier."""
    for into, out in ((784, 128), (128, 64), (64, 10)):
        yield from ((out, into), (out,))


def resnet50() -> Iterator[Shape]:
    """ResNet-50: bottleneck blocks of a 1x1, a 3x3 and a 1x1 convolution, each with a normalisation of two vectors."""

    def convolution(into: int, out: int, kernel: int) -> Iterator[Shape]:
        yield from ((out, into, kernel, kernel), (out,), (out,))

    yield from convolution(3, 64, 7)
    into = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from convolution(into, width, 1)
            yield from convolution(width, width, 3)
            yield from convolution(width, 4 * width, 1)
            if block == 0:  # the shortcut
                yield from convolution(into, 4 * width, 1)
            into = 4 * width
    yield from ((1000, 2048), (1000,))


def gpt2() -> Iterator[Shape]:
    """GPT-2 small: 12 blocks of width 768, with the output tied to the embedding."""
    width = 768
    yield from ((50257, width), (1024, width))
    for _ in range(12):
        yield from ((width,), (width,))
        yield from ((width, 3 * width), (3 * width,), (width, width), (width,))
        yield from ((width,), (width,))
        yield from ((width, 4 * width), (4 * width,), (4 * width, width), (width,))
    yield from ((width,), (width,))


def lora() -> Iterator[Shape]:
    """LoRA of rank 4 on the four projections of 32 layers of width 4096."""
    for _ in range(32 * 4):
        yield from ((4, 4096), (4096, 4))


SETS: dict[str, GradientSet] = {
    "mlp": GradientSet(tuple(mlp())),
    "lora": GradientSet(tuple(lora())),
    "vectors": GradientSet(((256,),) * 2000),
    "resnet50": GradientSet(tuple(resnet50())),
    "gpt2": GradientSet(tuple(gpt2())),
    "tensor": GradientSet(((64 * 2**20,),)),
}
#: small enough for a run of seconds
QUICK: dict[str, GradientSet] = {
    "mlp": SETS["mlp"],
    "vectors": GradientSet(((256,),) * 200),
    "tensor": GradientSet(((4 * 2**20,),)),
}


def chosen(quick: bool) -> dict[str, GradientSet]:
    """The sets of a quick run, or of a full one."""
    return QUICK if quick else SETS


def arrays(gradients: GradientSet) -> Iterator[np.ndarray]:
    """The gradients, one after the other, as float32 arrays: normally distributed, the same in every process."""
    pool = (np.random.default_rng(0).standard_normal(2**20 + 1) * 0.01).astype(np.float32)
    twice = np.concatenate([pool, pool])
    start = 0
    for shape in gradients.shapes:
        size = math.prod(shape)
        yield np.resize(twice[start : start + min(size, pool.size)], size).reshape(shape)
        start = (start + size) % pool.size
