"""``gradclip.clipped`` on an optimizer of Keras: each cell of the slots' table, and skipped steps that change no bit."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pages
import pytest
from keras_only.test_limits import compiled
from natives.measured.keras import replicas
from slots import CELLS, REFUSED, RULE, compare, counted, gradients, refused_at_once, run

import gradclip
from gradclip import limits
from gradclip.backends.keras import versions
from gradclip.dialects import keras as dialect
from gradclip.dialects import optax

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
ON = keras.backend.backend()
SKIPS = dataclasses.replace(RULE, skip_above=10.0)


def tensors(n: float) -> list[Any]:
    return [keras.ops.convert_to_tensor(gradient) for gradient in gradients(n).values()]


def made(*lengths: int) -> list[Any]:
    return [keras.Variable(np.ones(n, "float32"), name=name) for n, name in zip(lengths, "abc", strict=False)]


def read(x: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(x))


@pytest.mark.drawn(8, tensorflow=3, jax=3)
@pytest.mark.parametrize("traced", [False, True] if ON != "torch" else [False], ids=lambda x: "compiled" if x else "eager")
@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_is_as_with_plain_calls(cell: str, traced: bool) -> None:
    monitor, variables = gradclip.Monitor(), made(1, 2)
    optimizer = gradclip.clipped(keras.optimizers.SGD(1.0), CELLS[cell][0](), monitor=monitor)
    assert isinstance(optimizer, keras.optimizers.SGD)
    optimizer.build(variables)
    step = compiled(optimizer, variables) if traced else optimizer.apply
    counts: list[int] = []

    def stepped(grads: dict[str, Any]) -> list[np.ndarray]:
        step(list(map(keras.ops.convert_to_tensor, grads.values())))
        counts.append(int(read(optimizer.iterations)))
        return [read(v) for v in variables]

    steps, skipped = compare(cell, stepped)
    assert counted(monitor) == (steps, skipped)
    assert counts == list(itertools.accumulate(not is_skipped for _, is_skipped in run(cell)))
    assert int(read(optimizer.clip_skips["skipped"])) == skipped


OPTIONS: dict[str, tuple[bool, dict[str, Any]]] = {
    "plain": (False, {}),
    "jit": (True, {}),
    "moving average": (False, {"use_ema": True, "ema_overwrite_frequency": 2}),
    "accumulation": (False, {"gradient_accumulation_steps": 2}),
    "all with jit": (True, {"use_ema": True, "weight_decay": 0.1}),
    "accumulation with jit": (True, {"gradient_accumulation_steps": 2}),
}
MORE = ("jit", "accumulation with jit")
LONG = pytest.mark.slow("torch.compile with other options than those of `all with jit`")


@pytest.fixture
def compiled_graphs(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[[], int]:
    """How many graphs torch has traced. They run as they were traced: compiling each of them is for ``--slow``."""
    if ON != "torch" or request.config.getoption("--slow"):
        return lambda: 0
    import torch
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter))
    return lambda: counter.frame_count


def model_of(optimizer: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    # Keras applies a constraint also between the steps, and rounds each time
    constraint = None if optimizer.gradient_accumulation_steps else "unit_norm"
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, kernel_constraint=constraint)])
    model.compile(optimizer, "mse", **options)
    return model


def bits(model: keras.Model) -> dict[str, bytes]:
    """All variables, but for the number of skipped steps."""
    variables = [*model.trainable_variables, *model.optimizer.variables]
    return {v.path: read(v.value).tobytes() for v in variables if "skips" not in v.path}


# torch.compile reads that attribute while it traces Keras's own loss, without a clip too
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.drawn(99, tensorflow=4, jax=3)
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG if ON == "torch" and name in MORE else ()) for name in OPTIONS])
def test_a_skipped_step_changes_no_bit(name: str, compiled_graphs: Callable[[], int]) -> None:
    if versions.CLIPS_EACH_BATCH and "gradient_accumulation_steps" in OPTIONS[name][1]:
        pytest.skip("this version of Keras cannot")
    """In ``fit``, with a schedule, weight decay and a constraint; the training goes on after it."""
    jit, options = OPTIONS[name]
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)
    model = model_of(gradclip.clipped(keras.optimizers.AdamW(schedule, **options), SKIPS), jit_compile=jit)
    model.optimizer.build(model.trainable_variables)
    times = options.get("gradient_accumulation_steps", 1)
    graphs = []
    for scale in (1.0, 1e4, 1.0, 1e30, math.nan, 1.0):
        before = bits(model)
        for i in range(times):
            model.train_on_batch(np.full((1, 4), scale if i == 0 else 1.0, "float32"), np.zeros((1, 2), "float32"))
        changed = {path for path, value in bits(model).items() if value != before[path]}
        assert bool(changed) is (scale == 1.0), changed
        graphs.append(compiled_graphs())
    assert graphs[-1] == graphs[3], "a step is compiled again"
    assert {name: int(read(x)) for name, x in model.optimizer.clip_skips.items()} == {"skipped": 3, "in_a_row": 0}
    assert int(read(model.optimizer.iterations)) == 3


@pytest.mark.drawn(1, tensorflow=0)
def test_a_saved_model_keeps_groups_limits_and_skips(tmp_path: Path) -> None:
    def rules() -> list[gradclip.Group]:
        spikes = gradclip.Adaptive(limits.spike(4.0, warmup=2))
        return [
            gradclip.Group(dataclasses.replace(RULE, skip_above=spikes), ["*kernel"], counted="*"),
            gradclip.Group(dialect.clipnorm(1.0), re.compile(".*bias")),
        ]

    def fed(model: keras.Model, *scales: float) -> keras.Model:
        for scale in scales:
            model.train_on_batch(np.full((1, 4), scale, "float32"), np.zeros((1, 2), "float32"))
        return model

    model = fed(model_of(gradclip.clipped(keras.optimizers.Adam(0.1), rules(), patience=math.inf)), 1.0, 2.0, 1.0, 1e4)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [group.scaled for group in loaded.optimizer.clip_rule] == [("*kernel",), re.compile(".*bias")]
    assert {name: int(read(x)) for name, x in loaded.optimizer.clip_skips.items()} == {"skipped": 1, "in_a_row": 1}
    assert loaded.optimizer._patience == math.inf
    assert len(loaded.optimizer.clip_limit) == 2
    for one, other in zip(fed(model, 1e4, 1.0).get_weights(), fed(loaded, 1e4, 1.0).get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(read(loaded.optimizer.clip_skips["skipped"])) == 2


def test_an_error_has_the_paths_of_the_variables() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False, name="one")])
    model.compile(gradclip.clipped(keras.optimizers.SGD(1.0), dataclasses.replace(RULE, if_nonfinite="raise")), loss="mse")
    model.optimizer.build(model.trainable_variables)
    with pytest.raises(RuntimeError, match=r"Received: .*one/kernel'\]: 2 of 2"):
        model.optimizer.apply([keras.ops.full((2, 1), np.nan)])


def test_too_many_skips_in_a_row() -> None:
    optimizer, variables = gradclip.clipped(keras.optimizers.SGD(1.0), SKIPS, patience=2), made(1, 2)
    optimizer.build(variables)
    for _ in range(2):
        optimizer.apply(tensors(100.0))
    with pytest.raises(ValueError, match=r"More than 2 steps in a row were skipped(.|\n)*patience=math\.inf"):
        optimizer.apply(tensors(100.0))
    assert read(variables[1]).tolist() == [1.0, 1.0]


def test_a_call_without_variables_is_as_kerass_own() -> None:
    gradients = [keras.ops.convert_to_tensor([3.0, 4.0])]
    for rule in (RULE, SKIPS):
        optimizer = gradclip.clipped(keras.optimizers.SGD(1.0), rule)
        with pytest.raises(ValueError, match="must already be built on a list of variables"):
            optimizer.apply(gradients)
        optimizer.apply([], [])
        variable = keras.Variable([0.0, 0.0])
        optimizer.apply(gradients, (v for v in [variable]))
        np.testing.assert_allclose(read(variable), [-0.6, -0.8], rtol=1e-5)


def test_some_of_the_gradients_and_parameters() -> None:
    rules = [gradclip.Group(optax.adaptive_grad_clip(0.1), "b"), gradclip.Group(RULE, "*")]
    optimizer, variables = gradclip.clipped(keras.optimizers.SGD(1.0), rules[:1]), made(1, 2)
    optimizer.build(variables)
    optimizer.apply([keras.ops.convert_to_tensor([1.0, 1.0])], variables[1:])
    np.testing.assert_allclose(read(variables[1]), [0.9, 0.9], rtol=1e-6)
    same = [keras.Variable([1.0], name="x") for _ in range(2)]
    optimizer = gradclip.clipped(keras.optimizers.SGD(1.0), rules[1:])
    optimizer.apply([keras.ops.convert_to_tensor([3.0]), keras.ops.convert_to_tensor([4.0])], same)
    np.testing.assert_allclose([read(v)[0] for v in same], [0.4, 0.2], rtol=1e-5)


def test_variables_select_by_their_paths() -> None:
    variables = made(1, 2)
    for selection in (variables[1:], variables[1]):
        with pytest.raises(TypeError, match=r"must select gradients\.(.|\n)*Hint: select by paths, .*variable\.path for"):
            gradclip.Group(RULE, selection)
    optimizer = gradclip.clipped(keras.optimizers.SGD(1.0), gradclip.Group(RULE, [v.path for v in variables[1:]]))
    optimizer.build(variables)
    optimizer.apply([keras.ops.convert_to_tensor(x) for x in ([5.0], [3.0, 4.0])])
    np.testing.assert_allclose(read(variables[0]), [-4.0])
    np.testing.assert_allclose(read(variables[1]), [0.4, 0.2], rtol=1e-5)


if ON == "tensorflow":  # on other frameworks a step has no replicas

    @pytest.mark.parametrize("options", [{}, {"use_ema": True, "weight_decay": 0.1}], ids=["plain", "average"])
    @pytest.mark.parametrize("strategy", ["MirroredStrategy", "OneDeviceStrategy"])
    def test_one_replica_skips(strategy: str, options: dict[str, Any]) -> None:
        """A program for several devices also runs on one."""
        import tensorflow as tf

        device: Any = ["CPU:0"] if strategy == "MirroredStrategy" else "CPU:0"
        with getattr(tf.distribute, strategy)(device).scope():
            model = model_of(gradclip.clipped(keras.optimizers.AdamW(0.1, **options), SKIPS))
        alone = model_of(gradclip.clipped(keras.optimizers.AdamW(0.1, **options), SKIPS))
        for n, scale in enumerate((1.0, 1e4, 1.0, math.nan, 1.0)):
            before = bits(model)
            for one in (model, alone):
                one.train_on_batch(np.full((1, 4), scale, "float32"), np.zeros((1, 2), "float32"))
            assert n == 0 or (bits(model) == before) is (scale != 1.0)
        assert list(bits(model).values()) == list(bits(alone).values())
        assert {name: int(read(x)) for name, x in model.optimizer.clip_skips.items()} == {"skipped": 2, "in_a_row": 0}

    def test_several_replicas_do_not_skip() -> None:
        said = replicas()
        assert "A step cannot be skipped under tf.distribute with several replicas." in said["refused"]
        assert 'Hint: dataclasses.replace(rule, skip_above=None, if_nonfinite="zero") steps with zeros' in said["refused"]
        assert said["zeros"]["NaN"] == [0.0, 0.0]
        assert said["zeros"]["finite"] == said["ours"]["global_clipnorm"]


def test_the_page_prints_what_it_says() -> None:
    text = pages.section(pages.DOCS / "keras.md", "Groups and skipped steps")
    assert pages.run(text, "docs/keras.md", {"keras": keras, "dialects": gradclip.dialects}) == text


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="The optimizer comes first"):
        gradclip.clipped(RULE, keras.optimizers.SGD(1.0))
    optimizer = gradclip.clipped(keras.optimizers.SGD(1.0), RULE)
    with pytest.raises(ValueError, match=r"clips already(.|\n)*Hint: clip it once"):
        gradclip.clipped(optimizer, RULE)
    with pytest.raises(TypeError, match=r"limit must be a number, to be saved(.|\n)*skip_above"):
        gradclip.clipped(keras.optimizers.SGD(1.0), dataclasses.replace(RULE, skip_above=keras.ops.ones(())))
    by_function = gradclip.clipped(keras.optimizers.SGD(1.0), gradclip.Group(RULE, lambda name, x: True))
    with pytest.raises(TypeError, match=r"selects by a function(.|\n)*Hint: select by a pattern"):
        by_function.get_config()


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_clip_takes_is_refused_at_once(why: str) -> None:
    optimizer = keras.optimizers.SGD(0.1)
    refused_at_once(why, lambda *given, **others: gradclip.clipped(optimizer, *given, **others))
    gradclip.clipped(optimizer, RULE)
