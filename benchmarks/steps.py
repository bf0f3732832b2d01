"""A complete optimizer step, which a user waits for: ``python -m benchmarks.steps [--sets mlp,resnet50] [--seconds 5]``.

AdamW with the framework's own clip by global norm, and with gradclip in the framework's slot:
``step_pre_hook(rule)`` and a fused optimizer in torch, optax's chain under ``jax.jit``, Keras's ``apply`` in ``tf.function``
as ``fit`` calls it, Paddle's ``grad_clip=``. It prints gradclip's time divided by the native's, with the interval of
99 %. It exits with 1 if that interval is above 0.95 for a set larger than the cache, or above 1.02 for
another. Each framework has its own process.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.machine import cache
from benchmarks.sets import SETS, GradientSet, arrays
from benchmarks.timing import Budget, alternately

Steps = tuple[Callable[[], Any], Callable[[], Any]]
Measure = Callable[[str, list[str], float], bool]  #: a framework, sets, seconds -> whether none is too slow

LARGE, SMALL = 0.95, 1.02  #: of the native's time, at most
LIMIT, RATE = 1.0, 1e-6


def torch(gradients: GradientSet) -> Steps:
    """Both keep gradients that were made before; the native scales them in place, by 1 from the second step on."""
    import torch

    import gradclip
    from gradclip.backends.torch import step_pre_hook

    def made() -> tuple[list[Any], Any]:
        parameters = [torch.nn.Parameter(torch.zeros(x.shape)) for x in arrays(gradients)]
        for parameter, x in zip(parameters, arrays(gradients), strict=True):
            parameter.grad = torch.from_numpy(x.copy())
        return parameters, torch.optim.AdamW(parameters, lr=RATE, fused=True)

    parameters, optimizer = made()
    _, hooked = made()
    hooked.register_step_pre_hook(step_pre_hook(gradclip.dialects.torch.clip_grad_norm(LIMIT)))

    def native() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, LIMIT)
        optimizer.step()

    return native, hooked.step


def paddle(gradients: GradientSet) -> Steps:
    """The optimizer's own slot, eagerly."""
    import paddle

    import gradclip
    from gradclip.backends.paddle import grad_clip

    def made(clip: Any) -> Any:
        return paddle.optimizer.AdamW(RATE, parameters=paddle_parameters(gradients), grad_clip=clip).step

    return made(paddle.nn.ClipGradByGlobalNorm(LIMIT)), made(grad_clip(gradclip.dialects.paddle.ClipGradByGlobalNorm(LIMIT)))


def paddle_parameters(gradients: GradientSet) -> list[Any]:
    """Parameters that hold these gradients."""
    import paddle

    parameters = []
    for x in arrays(gradients):
        zeros = paddle.nn.initializer.Constant(0.0)
        parameters.append(paddle.create_parameter(list(x.shape), "float32", default_initializer=zeros))
        parameters[-1].grad = paddle.to_tensor(x)
    return parameters


def jax(gradients: GradientSet) -> Steps:
    """A chain under ``jit``."""
    import optax

    import gradclip
    from gradclip.backends.jax import gradient_transformation

    ours = gradient_transformation(gradclip.dialects.optax.clip_by_global_norm(LIMIT))
    native, slot = (
        jax_step(optax.chain(clip, optax.adamw(RATE)), gradients) for clip in (optax.clip_by_global_norm(LIMIT), ours)
    )
    return native, slot


def jax_step(chain: Any, gradients: GradientSet) -> Callable[[], Any]:
    """A step of a transformation under ``jit``, whose parameters and state are donated."""
    import jax
    import optax

    grads = [jax.numpy.asarray(x) for x in arrays(gradients)]
    params = [jax.numpy.zeros_like(x) for x in grads]
    held = [params, chain.init(params)]

    def update(grads: Any, params: Any, state: Any) -> Any:
        updates, state = chain.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    compiled = jax.jit(update, donate_argnums=(1, 2))

    def step() -> None:
        held[:] = compiled(grads, *held)
        jax.block_until_ready(held)

    return step


def tensorflow(gradients: GradientSet) -> Steps:
    """Keras's optimizer, compiled."""
    import keras

    import gradclip
    from gradclip.backends.keras import clipped

    rule = gradclip.dialects.keras.global_clipnorm(LIMIT)
    native, ours = keras.optimizers.AdamW(RATE, global_clipnorm=LIMIT), clipped(keras.optimizers.AdamW(RATE), rule)
    return keras_step(native, gradients), keras_step(ours, gradients)


def keras_step(optimizer: Any, gradients: GradientSet) -> Callable[[], Any]:
    """A step of an optimizer on TensorFlow, in ``tf.function``."""
    import keras
    import tensorflow as tf

    grads = [tf.constant(x) for x in arrays(gradients)]
    optimizer.build([keras.Variable(x * 0) for x in arrays(gradients)])
    step: Callable[[], Any] = tf.function(lambda: optimizer.apply(grads))
    return step


FRAMEWORKS = {"torch": torch, "paddle": paddle, "jax": jax, "tensorflow": tensorflow}


def measure(framework: str, sets: list[str], seconds: float) -> bool:
    """Print a line for each set; returns whether none is too slow."""
    is_fast = True
    for name in sets:
        timing = alternately(*FRAMEWORKS[framework](SETS[name]), None, Budget(seconds))
        bound = LARGE if 4 * SETS[name].size > cache() else SMALL
        part, least = 1 / timing.ratio, 1 / timing.high
        is_fast &= least <= bound
        times = f"native {1e3 * timing.native:9.3f} ms, gradclip {1e3 * timing.ours:9.3f} ms"
        print(f"{framework:<10} {name:<9} {times}: {part:.2f} ({least:.2f}..{1 / timing.low:.2f}), at most {bound}", flush=True)
    return is_fast


def command(module: str, about: str | None, frameworks: Iterable[str], sets: str, measure: Measure) -> int:
    """Measure each installed framework in its own process, ``python -m module``; return the exit code.

    Args:
        module: the name of the command's module.
        about: its docstring.
        frameworks: those that it can measure.
        sets: the sets of gradients without ``--sets``.
        measure: prints the figures of a framework.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", default=",".join(frameworks))
    parser.add_argument("--sets", default=sets)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--here", action="store_true", help="in this process: for one framework")
    options = parser.parse_args()
    names = [name for name in options.frameworks.split(",") if importlib.util.find_spec(name)]
    if options.here:
        fast = [measure(name, options.sets.split(","), options.seconds) for name in names]
        return int(not all(fast))
    own = [sys.executable, "-m", module, "--sets", options.sets, "--seconds", str(options.seconds), "--here"]
    return max(subprocess.run([*own, "--frameworks", name], check=False).returncode for name in names)


if __name__ == "__main__":
    sys.exit(command("benchmarks.steps", __doc__, FRAMEWORKS, "mlp,vectors,lora,resnet50,gpt2", measure))
