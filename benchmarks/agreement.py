"""How often a clip by a global norm agrees with the framework's own to the bit, and the difference otherwise.

``python -m benchmarks.agreement`` prints a line for each framework that is installed: 200 random lists of float32 gradients.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import gradclip
from gradclip.dialects import optax as dialect

__all__ = ["CLIPS", "compared", "main"]

Arrays = Sequence[Any]
Clip = Callable[[Arrays, float], list[Any]]


def gradients(count: int = 200) -> Iterator[tuple[list[Any], float]]:
    """Random gradients of up to three dimensions and six orders of magnitude, each list with a limit."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        shapes = [tuple(rng.integers(1, 40, size=rng.integers(1, 4))) for _ in range(rng.integers(1, 6))]
        sized = [rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3) for shape in shapes]
        yield [x.astype(np.float32) for x in sized], float(10.0 ** rng.uniform(-2, 2))


def of_torch() -> tuple[Clip, Clip]:
    import torch

    def clip(function: Any) -> Clip:
        def clipped(arrays: Arrays, limit: float) -> list[Any]:
            parameters = [torch.nn.Parameter(torch.zeros(x.shape)) for x in arrays]
            for parameter, x in zip(parameters, arrays, strict=True):
                parameter.grad = torch.tensor(x)
            function(parameters, limit)
            return [parameter.grad for parameter in parameters]

        return clipped

    return clip(torch.nn.utils.clip_grad_norm_), clip(gradclip.clip_grad_norm_)


def of_tensorflow() -> tuple[Clip, Clip]:
    import tensorflow as tf

    return (
        lambda arrays, limit: tf.clip_by_global_norm([tf.constant(x) for x in arrays], limit)[0],
        lambda arrays, limit: gradclip.clip_by_global_norm([tf.constant(x) for x in arrays], limit)[0],
    )


def of_paddle() -> tuple[Clip, Clip]:
    import paddle

    parameter = paddle.create_parameter([1], "float32")

    def clip(kind: Any) -> Clip:
        return lambda arrays, limit: [g for _, g in kind(limit)([(parameter, paddle.to_tensor(x)) for x in arrays])]

    return clip(paddle.nn.ClipGradByGlobalNorm), clip(gradclip.ClipGradByGlobalNorm)


def of_optax() -> tuple[Clip, Clip]:
    import jax.numpy as jnp
    import optax

    from gradclip.backends.jax import gradient_transformation

    def clip(make: Any) -> Clip:
        return lambda arrays, limit: make(limit).update([jnp.asarray(x) for x in arrays], optax.EmptyState())[0]

    return clip(optax.clip_by_global_norm), clip(lambda limit: gradient_transformation(dialect.clip_by_global_norm(limit)))


CLIPS = {"torch": of_torch, "tensorflow": of_tensorflow, "paddle": of_paddle, "optax": of_optax}


def compared(name: str, count: int = 200) -> tuple[int, float]:
    """The number of results that equal the native's to the bit, and the largest distance in ulp of the native's element."""
    native, ours = CLIPS[name]()
    identical, furthest = 0, 0.0
    for arrays, limit in gradients(count):
        pairs = [tuple(map(np.asarray, pair)) for pair in zip(native(arrays, limit), ours(arrays, limit), strict=True)]
        identical += all(np.array_equal(theirs, mine) for theirs, mine in pairs)
        furthest = max(furthest, *(float(np.max(np.abs(mine - theirs) / np.spacing(np.abs(theirs)))) for theirs, mine in pairs))
    return identical, furthest


def main() -> None:
    """Each framework in its own process; with a name as argument, that framework in this process."""
    if len(sys.argv) > 1:
        identical, furthest = compared(sys.argv[1])
        print(f"{sys.argv[1]}: {identical} of 200 to the bit, the others within {furthest:.0f} ulp")
        return
    for name in CLIPS:
        if importlib.util.find_spec(name):
            subprocess.run([sys.executable, "-m", "benchmarks.agreement", name], check=True)


if __name__ == "__main__":
    main()
