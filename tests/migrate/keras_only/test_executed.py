"""A training step with Keras, on the framework that it runs on, before and after the migration."""

from __future__ import annotations

import pytest
from migrate.executed import agree

# NumPy 2 warns about Keras whenever Keras reads one of its variables
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")

# Plain gradient descent from zeros: the step shows the gradients, and the weights round none of them away.
STEP = """
import keras
import numpy as np
from keras import optimizers

RAW = [np.linspace(-1, 2, 12, dtype="float32").reshape(3, 4), np.linspace(-1, 3, 5, dtype="float32")]
variables = [keras.Variable(np.zeros_like(gradient)) for gradient in RAW]
optimizer = {optimizer}
optimizer.apply([keras.ops.convert_to_tensor(gradient) for gradient in RAW], variables)
GRADIENTS = [-keras.ops.convert_to_numpy(variable) for variable in variables]
"""


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        ("keras.optimizers.SGD(1.0, clipnorm=1.5)", "GK301"),
        ("optimizers.SGD(learning_rate=1.0, global_clipnorm=1, momentum=0.0)", "GK302"),
        ("optimizers.SGD(1.0, clipvalue=0.5)", "GK303"),
        ("keras.optimizers.get(optimizers.SGD(clipnorm=0.25, **{'learning_rate': 1.0}))", "GK301"),
    ],
)
def test_the_step_is_the_same(optimizer: str, code: str) -> None:
    after = agree(STEP.format(optimizer=optimizer), [code])
    assert isinstance(after["optimizer"], after["keras"].optimizers.SGD)


@pytest.mark.drawn(3, tensorflow=1, jax=1)
@pytest.mark.parametrize(("keyword", "code"), [("clipnorm", "GK301"), ("global_clipnorm", "GK302"), ("clipvalue", "GK303")])
def test_a_fit_is_the_same(keyword: str, code: str) -> None:
    agree(
        f"""
        import keras
        import numpy as np

        keras.utils.set_random_seed(0)
        x, y = np.random.normal(size=(32, 4)).astype("float32"), np.random.normal(size=(32, 1)).astype("float32")
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(loss="mse", optimizer=keras.optimizers.SGD(learning_rate=1.0, {keyword}=0.125))
        model.fit(x, y, batch_size=32, epochs=1, verbose=0)
        error = (0 - y) / 16
        RAW = [x.T @ error, error.sum(0)]
        GRADIENTS = [-weights for weights in model.get_weights()]
        """,
        [code],
    )
