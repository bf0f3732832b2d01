"""A migration from one framework's convention to another's keeps the numbers.

Where the migration advises a person to write a line, the test runs that line.
"""

from __future__ import annotations

import re
from typing import Any

import frameworks.jax
import frameworks.paddle  # before TensorFlow: Paddle crashes if it loads later
import frameworks.tensorflow
import frameworks.torch
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import paddle
import pytest
import tensorflow as tf
import torch
from frameworks.base import Framework
from migrate.codemods import manual, migrate, rewritten
from migrate.executed import same

import gradclip.backends.jax
import gradclip.backends.keras
import gradclip.backends.paddle
import gradclip.backends.torch

FRAMEWORKS: dict[str, Framework] = {
    name: getattr(frameworks, name).framework for name in ("torch", "tensorflow", "paddle", "jax")
}
VALUES = [np.linspace(-1.0, 2.0, 12, dtype="float32").reshape(3, 4), np.linspace(-1.0, 3.0, 5, dtype="float32")]

# Keras reads its variables without NumPy 2's copy argument
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")


def advice(source: str, to: str) -> str:
    """Return the line that the migration advises for the only call of a source."""
    migrated = migrate(source, to=to)
    (site,) = migrated.sites
    line = site.advice.removeprefix("Write: ")
    assert line != site.advice
    return re.sub(r" \((after|\.norm) .*\)\.$|\.$", "", line)


def read(framework: Framework, gradients: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(framework.read(gradient), "float32") for gradient in gradients]


# ---- a loop of torch's ---------------------------------------------------------------------------------------------------

LOOP = "import torch\n\n\ndef clip(model):\n    return {}\n"
CALLS = [
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0, norm_type=1)",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, float('inf'))",
    "torch.nn.utils.clip_grad_norm_((p for p in model.parameters()), 1.0, norm_type=3)",
    "torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)",
]


class Model:
    """Parameters with these gradients, of torch or of Paddle."""

    def __init__(self, framework: str) -> None:
        if framework == "torch":
            self.held: list[Any] = [torch.nn.Parameter(torch.zeros(v.shape)) for v in VALUES]
            for parameter, values in zip(self.held, VALUES, strict=True):
                parameter.grad = torch.tensor(values)
        else:
            self.held = [paddle.create_parameter(v.shape, "float32") for v in VALUES]
            sum((p * paddle.to_tensor(v)).sum() for p, v in zip(self.held, VALUES, strict=True)).backward()

    def parameters(self) -> Any:
        return iter(self.held)

    def gradients(self) -> list[np.ndarray[Any, Any]]:
        return [parameter.grad.numpy() for parameter in self.held]


def native(call: str) -> list[np.ndarray[Any, Any]]:
    """Return the result of torch's own clip."""
    model = Model("torch")
    exec(call, {"torch": torch, "model": model})
    return model.gradients()


@pytest.mark.parametrize("to", ["jax", "tensorflow"])
@pytest.mark.parametrize("call", CALLS)
def test_a_loop_of_torch_where_gradients_are_values(call: str, to: str) -> None:
    framework = FRAMEWORKS[to]
    names: dict[str, Any] = {"gradclip": gradclip, "grads": [framework.make(v, "float32") for v in VALUES]}
    exec(advice(LOOP.format(call), to), names)
    same(read(framework, names["grads"]), native(call))


@pytest.mark.parametrize("call", CALLS)
def test_a_loop_of_torch_where_parameters_hold_gradients(call: str) -> None:
    migrated = migrate(LOOP.format(call), to="paddle")
    assert len(rewritten(migrated)) == 1
    names: dict[str, Any] = {}
    exec(migrated.source, names)
    model = Model("paddle")
    names["clip"](model)
    same(model.gradients(), native(call))


def test_a_known_norm_of_torch() -> None:
    call = "torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, total)"
    model = Model("torch")
    exec(call, {"torch": torch, "model": model, "total": torch.tensor(12.0)})
    for to in ("jax", "tensorflow"):
        framework = FRAMEWORKS[to]
        names: dict[str, Any] = {"gradclip": gradclip, "grads": [framework.make(v, "float32") for v in VALUES], "total": 12.0}
        exec(advice(LOOP.format(call), to), names)
        same(read(framework, names["grads"]), model.gradients())


# ---- TensorFlow's functional clips ---------------------------------------------------------------------------------------

FUNCTIONS = [
    "grads, _ = tf.clip_by_global_norm(grads, 1.5)",
    "grads = tf.clip_by_global_norm(grads, clip_norm=1.5)[0]",
    "grads = [tf.clip_by_norm(g, 1.5) for g in grads]",
    "grads = [tf.clip_by_norm(g, 0.5, axes=[0]) for g in grads]",
    "grads = [tf.clip_by_value(g, -0.5, 0.25) for g in grads]",
]


@pytest.mark.parametrize("to", ["jax", "torch", "paddle"])
@pytest.mark.parametrize("line", FUNCTIONS)
def test_functions_of_tensorflow_take_the_gradients_of_another(line: str, to: str) -> None:
    migrated = migrate(f"import tensorflow as tf\n\n\ndef clip(grads):\n    {line}\n    return grads\n", to=to)
    assert len(rewritten(migrated)) == 1
    own: dict[str, Any] = {"tf": tf, "grads": [tf.constant(v) for v in VALUES]}
    exec(line, own)
    other: dict[str, Any] = {}
    exec(migrated.source, other)
    framework = FRAMEWORKS[to]
    clipped = other["clip"]([framework.make(v, "float32") for v in VALUES])
    same(read(framework, clipped), [gradient.numpy() for gradient in own["grads"]])


# ---- the optimizers' slots -----------------------------------------------------------------------------------------------


def clipping(line: str, **names: Any) -> Any:
    """The optimizer that a line makes clip."""
    exec(line, names := {"gradclip": gradclip, **names})
    return names["optimizer"]


def by_torch(line: str) -> list[np.ndarray[Any, Any]]:
    model = Model("torch")
    clipping(line, optimizer=torch.optim.SGD(model.parameters(), lr=1.0)).step()
    return [-parameter.detach().numpy() for parameter in model.held]


def by_paddle(line: str) -> list[np.ndarray[Any, Any]]:
    zeros = paddle.nn.initializer.Constant(0.0)
    parameters = [paddle.create_parameter(v.shape, "float32", default_initializer=zeros) for v in VALUES]
    optimizer = clipping(line, paddle=paddle, optimizer=paddle.optimizer.SGD(1.0, parameters=parameters), parameters=parameters)
    sum((p * paddle.to_tensor(v)).sum() for p, v in zip(parameters, VALUES, strict=True)).backward()
    optimizer.step()
    return [-parameter.numpy() for parameter in parameters]


def by_jax(line: str) -> list[np.ndarray[Any, Any]]:
    chain = clipping(line, optax=optax, optimizer=optax.sgd(1.0))
    params = [jnp.zeros_like(v) for v in VALUES]
    updates, _ = chain.update([jnp.asarray(v) for v in VALUES], chain.init(params), params)
    return [-np.asarray(update) for update in jax.tree.leaves(updates)]


def by_tensorflow(line: str) -> list[np.ndarray[Any, Any]]:
    optimizer = clipping(line, keras=keras, optimizer=keras.optimizers.SGD(1.0))
    variables = [keras.Variable(np.zeros_like(v)) for v in VALUES]
    optimizer.apply([keras.ops.convert_to_tensor(v) for v in VALUES], variables)
    return [-keras.ops.convert_to_numpy(variable) for variable in variables]


PLACES = {"torch": by_torch, "paddle": by_paddle, "jax": by_jax, "tensorflow": by_tensorflow}
# a clip in an optimizer's slot, and the equivalent call in a source
OBJECTS = [
    (
        "paddle",
        "optimizer = paddle.optimizer.SGD(1.0, parameters=parameters, grad_clip={})",
        "import paddle\nclip = {}\n",
        "paddle.nn.ClipGradByNorm(1.5)",
    ),
    (
        "paddle",
        "optimizer = paddle.optimizer.SGD(1.0, parameters=parameters, grad_clip={})",
        "import paddle\nclip = {}\n",
        "paddle.nn.ClipGradByGlobalNorm(clip_norm=1.5)",
    ),
    (
        "paddle",
        "optimizer = paddle.optimizer.SGD(1.0, parameters=parameters, grad_clip={})",
        "import paddle\nclip = {}\n",
        "paddle.nn.ClipGradByValue(max=0.5, min=-0.25)",
    ),
    ("jax", "optimizer = optax.chain({}, optax.sgd(1.0))", "import optax\nclip = {}\n", "optax.clip_by_global_norm(1.5)"),
    ("jax", "optimizer = optax.chain({}, optax.sgd(1.0))", "import optax\nclip = {}\n", "optax.clip(max_delta=0.5)"),
    ("jax", "optimizer = optax.chain({}, optax.sgd(1.0))", "import optax\nclip = {}\n", "optax.clip_by_block_rms(0.5)"),
    ("tensorflow", "optimizer = {}", "import keras\noptimizer = {}\n", "keras.optimizers.SGD(1.0, clipnorm=1.5)"),
    ("tensorflow", "optimizer = {}", "import keras\noptimizer = {}\n", "keras.optimizers.SGD(1.0, global_clipnorm=1.5)"),
    ("tensorflow", "optimizer = {}", "import keras\noptimizer = {}\n", "keras.optimizers.SGD(1.0, clipvalue=0.5)"),
]


@pytest.mark.parametrize(
    ("home", "place", "source", "clip", "to"),
    [(*given, to) for given in OBJECTS for to in PLACES if to != given[0]],
)
def test_a_clip_of_an_optimizer_in_the_place_of_another(home: str, place: str, source: str, clip: str, to: str) -> None:
    line = advice(source.format(clip), to)
    assert manual(migrate(source.format(clip), to=to)) == ["GM302"]
    same(PLACES[to](line), PLACES[home](place.format(clip)))
