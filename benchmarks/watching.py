"""What ``gradclip doctor`` adds to a step: ``python -m benchmarks.watching [--frameworks torch,paddle]``.

A model of 41,000 parameters is trained in 20 steps, of one batch and of 16 micro-batches, alone and under the doctor. It prints
the processor time of a step, the mean of all but the first one, and ends with 1 if it is more than three times as long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

BOUND = 3.0
STEPS = 20
SIZES = ((128, 128), (128, 128), (128, 64))
MANY = (1, 16)
_SAID = "seconds of a step:"


def torch(many: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(1)
    layers = [layer for size in SIZES for layer in (torch.nn.Linear(*size), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer, x, y = torch.optim.AdamW(model.parameters()), torch.randn(64, 128), torch.randn(64, 64)

    def step() -> None:
        for _ in range(many):
            (torch.nn.functional.mse_loss(model(x), y) / many).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def paddle(many: int) -> Callable[[], object]:
    import paddle

    layers = [layer for size in SIZES for layer in (paddle.nn.Linear(*size), paddle.nn.Tanh())]
    model = paddle.nn.Sequential(*layers[:-1])
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters(), grad_clip=clip)
    x, y = paddle.randn([64, 128]), paddle.randn([64, 64])

    def step() -> None:
        for _ in range(many):
            (paddle.nn.functional.mse_loss(model(x), y) / many).backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def tensorflow(many: int) -> Callable[[], object]:
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.layers.Input([128]), *(keras.layers.Dense(size, "tanh") for _, size in SIZES)])
    optimizer, x, y = keras.optimizers.AdamW(), tf.random.normal([64, 128]), tf.random.normal([64, 64])

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2) / many
        return list(tape.gradient(loss, model.trainable_variables))

    def step() -> None:
        sums = [tf.add_n(of_one) for of_one in zip(*(gradients() for _ in range(many)), strict=True)]
        clipped, _ = tf.clip_by_global_norm(sums, 1.0)
        optimizer.apply_gradients(zip(clipped, model.trainable_variables, strict=True))

    return step


def jax(many: int) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp
    import optax

    keys = jax.random.split(jax.random.key(0), 5)
    weights = [0.1 * jax.random.normal(key, size) for key, size in zip(keys, SIZES, strict=False)]
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    x, y = jax.random.normal(keys[3], (many, 64, 128)), jax.random.normal(keys[4], (64, 64))

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean((x - y) ** 2)

    def update(weights: list[jax.Array], state: optax.OptState) -> tuple[list[jax.Array], optax.OptState]:
        grads = jax.grad(lambda w: jnp.mean(jax.lax.map(lambda one: loss(w, one), x)))(weights)
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state

    compiled, now = jax.jit(update), [weights, optimizer.init(weights)]

    def step() -> None:
        now[:] = jax.block_until_ready(compiled(*now))

    return step


FRAMEWORKS = {"torch": torch, "paddle": paddle, "tensorflow": tensorflow, "jax": jax}


def train(framework: str, many: int) -> None:
    """Make the steps, and say how long one takes."""
    step = FRAMEWORKS[framework](many)
    step()
    begun = time.process_time()
    for _ in range(STEPS - 1):
        step()
    print(_SAID, (time.process_time() - begun) / (STEPS - 1), flush=True)


def seconds(framework: str, many: int, *, watched: bool) -> float:
    """The time of a step in a process of its own."""
    doctor = ["gradclip", "doctor", "--steps", str(STEPS + 1), "-m"] if watched else []
    command = [sys.executable, "-m", *doctor, "benchmarks.watching", *(["--"] if watched else [])]
    env = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([*command, "--train", framework, str(many)], capture_output=True, text=True, env=env)
    return float(done.stdout.partition(_SAID)[2].split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching", description=__doc__)
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="of them all (default: all)")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.train:
        train(chosen.train[0], int(chosen.train[1]))
        return 0
    is_slow = False
    for framework in chosen.frameworks.split(","):
        for many in MANY:
            alone, under = (seconds(framework, many, watched=x) for x in (False, True))
            is_slow |= under > BOUND * alone
            print(f"{framework:12} x{many:<3} {1e3 * alone:8.2f} ms {1e3 * under:8.2f} ms  {under / alone:.1f}", flush=True)
    return int(is_slow)


if __name__ == "__main__":
    sys.exit(main())
