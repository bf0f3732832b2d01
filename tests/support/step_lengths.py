"""How long the steps of an optimizer are with a small limit, and without one, on the same gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Step = Callable[[Any], Any]  #: takes a gradient, and returns the parameter after the step

_RNG = np.random.default_rng(0)
STEPS = 100
GRADS = [(_RNG.lognormal(sigma=0.5) * (_RNG.normal(size=(4, 4)) + 0.5)).astype("float32") for _ in range(STEPS)]
NORMS = [float(np.linalg.norm(g)) for g in GRADS]
LIMIT = 0.1 * min(NORMS)  #: clips each of them
CLIPPED = [g * np.float32(LIMIT / n) for g, n in zip(GRADS, NORMS, strict=True)]
RATE = 0.01


def ratio(make: Callable[[], Step]) -> float:
    """The length of all steps on the clipped gradients, for that on the others."""
    return _length(make(), CLIPPED) / _length(make(), GRADS)


def _length(step: Step, grads: list[Any]) -> float:
    total, before = 0.0, np.ones((4, 4))
    for g in grads:
        after = np.asarray(step(g))
        total, before = total + float(np.linalg.norm(after - before)), after
    return total


def _classes(module: Any, *others: str) -> Iterator[tuple[str, Any]]:
    for name in dir(module):
        made = getattr(module, name)
        if inspect.isclass(made) and issubclass(made, module.Optimizer) and name not in ("Optimizer", *others):
            yield name, made


def of_torch() -> dict[str, Callable[[], Step]]:
    import torch

    def maker(kind: Any, **options: Any) -> Callable[[], Step]:
        def make() -> Step:
            param = torch.nn.Parameter(torch.ones(4, 4))
            optimizer = kind([param], lr=RATE, **options)

            def step(grad: Any) -> Any:
                param.grad = torch.tensor(grad)
                optimizer.step()
                return param.detach().clone().numpy()

            return step

        return make

    found = {name: maker(kind) for name, kind in _classes(torch.optim, "LBFGS", "SparseAdam")}
    return {**found, "SGD, momentum=0.9": maker(torch.optim.SGD, momentum=0.9)}


def of_paddle() -> dict[str, Callable[[], Step]]:
    import paddle

    def maker(kind: Any) -> Callable[[], Step]:
        def make() -> Step:
            param = paddle.create_parameter([4, 4], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
            optimizer = kind(learning_rate=RATE, parameters=[param])

            def step(grad: Any) -> Any:
                (param * paddle.to_tensor(grad)).sum().backward()
                optimizer.step()
                optimizer.clear_grad()
                return param.numpy().copy()

            return step

        return make

    return {name: maker(kind) for name, kind in _classes(paddle.optimizer, "LBFGS")}


def of_jax() -> dict[str, Callable[[], Step]]:
    import jax
    import jax.numpy as jnp
    import optax

    def maker(alias: Any) -> Callable[[], Step]:
        def make() -> Step:
            optimizer = alias(RATE)
            update, held = jax.jit(optimizer.update), [jnp.ones((4, 4))]
            state = [optimizer.init(held[0])]

            def step(grad: Any) -> Any:
                updates, state[0] = update(jnp.asarray(grad), state[0], held[0])
                held[0] = held[0] + updates
                return np.asarray(held[0], "float64")

            return step

        return make

    names = (
        *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad", "fromage"),
        *("lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_gradient_descent", "radam"),
        *("rmsprop", "rprop", "sgd", "sign_sgd", "sm3", "yogi"),
    )
    return {name: maker(getattr(optax, name)) for name in names if hasattr(optax, name)}


def of_keras() -> dict[str, Callable[[], Step]]:
    import keras

    def maker(kind: Any) -> Callable[[], Step]:
        def make() -> Step:
            variable = keras.Variable(np.ones((4, 4), "float32"))
            optimizer = kind(RATE)
            optimizer.build([variable])

            def step(grad: Any) -> Any:
                optimizer.apply([keras.ops.convert_to_tensor(grad)], [variable])
                return keras.ops.convert_to_numpy(variable).copy()

            return step

        return make

    return {name: maker(kind) for name, kind in _classes(keras.optimizers, "LossScaleOptimizer", "MultiOptimizer")}


OPTIMIZERS = {"torch": of_torch, "paddle": of_paddle, "jax": of_jax, "keras": of_keras}
