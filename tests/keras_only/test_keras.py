"""A Keras optimizer that clips by a rule: it works inside ``fit``, and equals Keras where Keras has the rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from frameworks.base import Framework
from keras import optimizers
from keras_only.fits import ON, applied, distance, fit, fit_on, weights
from oracle import ulps

from gradclip import Rule
from gradclip.backends.keras import clipped
from gradclip.core.errors import GradclipError
from gradclip.dialects import keras as dialect
from gradclip.dialects import optax, tensorflow, torch

# NumPy 2 warns about Keras whenever Keras reads one of its variables
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")

GLOBAL = dialect.global_clipnorm(0.1)
INF = math.inf

# ---- Keras's own three clips ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "limit"), [("clipnorm", 0.1), ("global_clipnorm", 0.1), ("clipvalue", 0.01)])
def test_equals_the_argument_of_keras(name: str, limit: float) -> None:
    rule = getattr(dialect, name)(limit)
    with_rule, native = fit(clipped(optimizers.SGD(0.1), rule)), fit(optimizers.SGD(0.1, **{name: limit}))
    assert distance(weights(with_rule), weights(native)) <= 4
    assert max(np.abs(w).max() for w in weights(with_rule)) < 0.1 * 3 * limit * 1.0001  # the step was clipped


Make = Callable[..., Any]
AROUND: dict[str, Make] = {
    "adam": lambda **clip: optimizers.Adam(0.01, **clip),
    "weight decay": lambda **clip: optimizers.AdamW(0.01, weight_decay=0.1, **clip),
    "momentum": lambda **clip: optimizers.SGD(0.1, momentum=0.9, nesterov=True, **clip),
    "accumulation": lambda **clip: optimizers.SGD(0.1, gradient_accumulation_steps=3, **clip),
    "moving average": lambda **clip: optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2, **clip),
    "loss scale": lambda **clip: optimizers.SGD(0.1, loss_scale_factor=1024.0, **clip),
    "schedule": lambda **clip: optimizers.SGD(optimizers.schedules.ExponentialDecay(0.1, 1, 0.5), **clip),
}


@pytest.mark.drawn(99, tensorflow=3, jax=3)
@pytest.mark.parametrize("around", AROUND)
def test_equals_keras_with_everything_around_it(around: str) -> None:
    make = AROUND[around]
    assert distance(weights(fit(clipped(make(), GLOBAL))), weights(fit(make(global_clipnorm=0.1)))) <= 4


@pytest.mark.parametrize("compiled", [{"run_eagerly": True}, {"jit_compile": ON != "torch"}], ids=["eager", "jit"])
def test_equals_keras_however_it_is_compiled(compiled: dict[str, bool]) -> None:
    native = fit(optimizers.SGD(0.1, global_clipnorm=0.1), **compiled)
    assert distance(weights(fit(clipped(optimizers.SGD(0.1), GLOBAL), **compiled)), weights(native)) <= 4


def test_inside_a_loss_scale_optimizer() -> None:
    native = fit(optimizers.LossScaleOptimizer(optimizers.SGD(0.1, global_clipnorm=0.1)))
    got = fit(optimizers.LossScaleOptimizer(clipped(optimizers.SGD(0.1), GLOBAL)))
    assert distance(weights(got), weights(native)) <= 4


def test_mixed_precision_scales_around_it() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        got, native = fit(clipped(optimizers.SGD(0.1), GLOBAL)), fit(optimizers.SGD(0.1, global_clipnorm=0.1))
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(got.optimizer, optimizers.LossScaleOptimizer)
    assert got.optimizer.inner_optimizer.clip_rule == GLOBAL
    assert distance(weights(got), weights(native)) <= 4
    assert np.linalg.norm(np.concatenate([w.ravel() for w in weights(got)])) <= 0.1 * 3 * 0.1 * 1.0001


# ---- rules that Keras lacks -------------------------------------------------------------------------------------------------


def by_columns(g: np.ndarray) -> np.ndarray:
    return g / np.maximum(np.sqrt((g**2).sum(0, keepdims=True)), 1)


def by_total(grads: list[np.ndarray]) -> list[np.ndarray]:
    return [g / (math.sqrt(sum((h**2).sum() for h in grads)) + 1e-6) for g in grads]


FORMULAS: dict[str, tuple[Rule, Callable[[list[np.ndarray]], list[np.ndarray]]]] = {
    "torch": (torch.clip_grad_norm(1.0), by_total),
    "torch, inf": (torch.clip_grad_norm(1.0, INF), lambda gs: [g / (max(abs(h).max() for h in gs) + 1e-6) for g in gs]),
    "optax": (optax.clip_by_block_rms(0.5), lambda gs: [g / np.sqrt((g**2).mean()) * 0.5 for g in gs]),
    "tensorflow": (tensorflow.clip_by_norm(1.0, axes=[0]), lambda gs: [by_columns(g) for g in gs]),
}


@pytest.mark.drawn(99, tensorflow=2, jax=2)
@pytest.mark.parametrize("name", FORMULAS)
def test_the_step_is_that_of_the_formula(name: str) -> None:
    rule, formula = FORMULAS[name]
    gradients = [-w for w in weights(fit(optimizers.SGD(1.0), steps=1))]
    got = [-w for w in weights(fit(clipped(optimizers.SGD(1.0), rule), steps=1))]
    assert distance(got, formula(gradients)) <= 4


@pytest.mark.parametrize("around", [{}, {"gradient_accumulation_steps": 2}, {"loss_scale_factor": 8.0}], ids=str)
def test_a_relative_rule_gets_the_parameters_of_its_gradients(around: dict[str, Any]) -> None:
    """Keras drops variables without a gradient, so that positions differ from the optimizer's variables."""
    start = [[3.0, 4.0], [300.0, 400.0], [0.6, 0.8]]
    scale = around.get("loss_scale_factor", 1.0)
    batch = [[30.0 * scale, 40.0 * scale], None, [30.0 * scale, 40.0 * scale]]
    optimizer = clipped(optimizers.SGD(1.0, **around), optax.adaptive_grad_clip(0.5))
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        steps = applied(optimizer, *[batch] * around.get("gradient_accumulation_steps", 1), start=start)
    assert distance(steps, [[1.5, 2.0], [0, 0], [0.3, 0.4]]) <= 4


def test_a_relative_rule_in_fit() -> None:
    def build() -> Any:
        return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, kernel_initializer="ones", use_bias=False)])

    (after,) = weights(fit(clipped(optimizers.SGD(1.0), optax.adaptive_grad_clip(0.5)), build, steps=1))
    assert distance(np.sqrt(((after - 1) ** 2).sum(0)), [1, 1, 1]) <= 4  # half the norm of four ones


def test_the_variables_of_the_model_do_not_become_the_optimizers() -> None:
    plain, got = fit(optimizers.SGD(0.1)), fit(clipped(optimizers.SGD(0.1), GLOBAL))
    assert len(got.optimizer.variables) == len(plain.optimizer.variables)


# ---- embeddings -------------------------------------------------------------------------------------------------------------


class Watched(optimizers.SGD):
    """Records the type of each gradient at the update."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kinds: set[str] = set()

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.kinds.add(type(gradient).__name__)
        super().update_step(gradient, variable, learning_rate)


def embedding() -> Any:
    table = keras.layers.Embedding(7, 2, embeddings_initializer="zeros")
    return keras.Sequential([keras.layers.Input((3,), dtype="int32"), table, keras.layers.Flatten()])


@pytest.mark.parametrize("rule", [dialect.clipnorm(0.1), dialect.global_clipnorm(0.1)], ids=str)
def test_repeated_rows_of_an_embedding_are_added_up_before_the_norm(rule: Rule) -> None:
    rows, targets = np.array([[1, 1, 5], [1, 2, 5]]), np.arange(1, 13, dtype="float32").reshape(2, 6)
    tables = []
    for optimizer in (Watched(1.0), clipped(Watched(1.0), rule)):
        model = embedding()
        model.compile(optimizer, loss="mse", jit_compile=False)
        model.fit(rows, targets, verbose=0)
        tables.append(-weights(model)[0])
    gradient, step = tables
    assert distance([step], [gradient * 0.1 / np.sqrt((gradient**2).sum())]) <= 4
    if ON == "tensorflow":
        assert optimizer.kinds == {"IndexedSlices"}  # the gradient stayed sparse


if ON == "tensorflow":  # on other frameworks Keras has no sparse gradients

    def test_keras_itself_counts_repeated_rows_one_by_one(backend: Framework) -> None:
        """gradclip departs from Keras here."""
        gradient = backend.sparse([1, 1], [[3.0], [3.0]], 3)
        (native,) = optimizers.SGD(1.0, clipnorm=1.0)._clip_gradients([gradient])
        (ours,) = clipped(optimizers.SGD(1.0), dialect.clipnorm(1.0))._clip_gradients([gradient])
        assert ulps(backend.densify(native)[1], [math.sqrt(2)], "float32") <= 4
        assert backend.densify(ours)[1] == 1.0


# ---- the type of the optimizer ----------------------------------------------------------------------------------------------


def test_it_stays_the_optimizer_that_it_was() -> None:
    adam = optimizers.Adam(0.5, beta_1=0.8)
    before = type(adam)
    got = clipped(adam, GLOBAL)
    assert got is adam
    assert isinstance(got, before)  # on torch this is a class with fused updates; a plain subclass of Adam would not get it
    assert isinstance(got, optimizers.Adam)
    assert (keras.ops.convert_to_numpy(got.learning_rate), got.beta_1, got.clip_rule) == (0.5, 0.8, GLOBAL)
    got.learning_rate = 0.25
    assert keras.ops.convert_to_numpy(got.learning_rate) == 0.25


@pytest.mark.parametrize("spec", ["adam", {"class_name": "Adam", "config": {"learning_rate": 0.001}}], ids=str)
def test_an_optimizer_by_its_name_or_configuration(spec: Any) -> None:
    assert isinstance(clipped(spec, GLOBAL), optimizers.Adam)


def test_two_optimizers_of_a_class_have_their_own_rules() -> None:
    tight, loose = clipped(optimizers.SGD(1.0), dialect.clipnorm(1.0)), clipped(optimizers.SGD(1.0), dialect.clipnorm(2.0))
    assert type(tight) is type(loose)
    assert distance(applied(tight, [[3.0, 4.0]]), [[0.6, 0.8]]) <= 4
    assert distance(applied(loose, [[3.0, 4.0]]), [[1.2, 1.6]]) <= 4


def test_an_optimizer_that_has_trained_keeps_its_state() -> None:
    model = fit(optimizers.SGD(1.0, momentum=1.0), steps=1)
    momentum = model.get_weights()
    model.compile(clipped(model.optimizer, dialect.clipnorm(0.0)), loss="mse")
    assert keras.ops.convert_to_numpy(model.optimizer.iterations) == 1
    model.optimizer.learning_rate = 0.0
    fit_on(model, 1)
    assert distance(weights(model), [2 * m.astype(np.float64) for m in momentum]) <= 1


# ---- errors -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_two_clips_at_once_are_the_error_of_keras(name: str) -> None:
    with pytest.raises(ValueError, match=r"^Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set"):
        optimizers.SGD(1.0, clipnorm=1.0, clipvalue=1.0)
    native = optimizers.SGD(1.0, **{name: 0.0})  # also if it is off, as in Keras
    with pytest.raises(ValueError, match=f"^Only one of .* and a rule can be set.\nReceived: .*{name}=0.0"):
        clipped(native, GLOBAL)
    assert type(native) is type(optimizers.SGD(1.0))
    later = clipped(optimizers.SGD(1.0), GLOBAL)
    setattr(later, name, 1.0)
    with pytest.raises(ValueError, match=r"^Only one of"):
        applied(later, [[3.0, 4.0]])


@pytest.mark.parametrize(
    "outer",
    [
        lambda: optimizers.LossScaleOptimizer(optimizers.SGD()),
        *(
            [lambda: optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.SGD()))]
            * hasattr(optimizers, "MultiOptimizer")
        ),
    ],
)
def test_what_hands_its_gradients_on_is_refused(outer: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"passes its gradients to other optimizers\.\n.*\nHint: clip by the optimizers"):
        clipped(outer(), GLOBAL)


def test_other_mistakes() -> None:
    with pytest.raises(ValueError, match=r"This optimizer clips already.\nReceived: rule=Rule\('keras.global_clipnorm"):
        clipped(clipped("sgd", GLOBAL), GLOBAL)
    with pytest.raises(ValueError, match="changes the shape of a gradient"):
        clipped("sgd", optax.per_example_global_norm_clip(1.0))
    with pytest.raises(
        TypeError, match=r"a gradclip.Group or a list of groups.\nReceived: rule=1.0\nHint: name the rule of the limit"
    ):
        clipped("sgd", 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="An optimizer is needed"):
        clipped(None, GLOBAL)
    with pytest.raises(ValueError, match="Could not interpret optimizer identifier"):
        clipped(optimizers.SGD, GLOBAL)


def test_a_limit_that_cannot_be_saved_is_refused(backend: Framework) -> None:
    with pytest.raises(TypeError, match=r"The limit must be a number, to be saved with the model.\nReceived: max_norm="):
        clipped("sgd", torch.clip_grad_norm(backend.make(1.0)))


def test_a_keras_without_the_hook_is_refused_rather_than_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    base = next(cls for cls in optimizers.SGD.__mro__ if "_clip_gradients" in vars(cls))
    monkeypatch.delattr(base, "_clip_gradients")
    with pytest.raises(
        GradclipError, match=r"gradclip does not know how this version of Keras clips.\nReceived: keras .* _clip_gradients"
    ):
        clipped(optimizers.SGD(), GLOBAL)
