"""``gradclip doctor`` on compiled code of TensorFlow: it runs eagerly, and is watched."""

from __future__ import annotations

from pathlib import Path

import pytest
import watched


def fit(tmp_path: Path, *options: str) -> watched.Told:
    path, _ = watched.programs("tensorflow")["right_fit"]
    script = tmp_path / "train.py"
    script.write_text(path.read_text().replace(", run_eagerly=True", ""))
    return watched.told(script, *options, "--", "right_fit")


def test_a_compiled_fit_runs_eagerly(tmp_path: Path) -> None:
    told = fit(tmp_path)
    assert (told.status, told.report["steps"], told.report["unwatched"]) == (0, 6, [])
    assert [x["what"] for x in told.report["ran_eagerly"]] == ["Keras's training step"]


def test_a_fit_that_stays_compiled_is_not_watched_and_said(tmp_path: Path) -> None:
    told = fit(tmp_path, "--compiled")
    assert (told.status, told.report["steps"], told.report["ran_eagerly"]) == (2, 0, [])
    assert "without --compiled" in told.report["unwatched"][0]["what"]


STEP = """
import keras, tensorflow as tf

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - 3) ** 2)
    grads = tape.gradient(loss, model.trainable_variables)
    clipped, _ = tf.clip_by_global_norm(grads, 1.0)
    if loss > 0:
        optimizer.apply_gradients(zip(USED, model.trainable_variables))

for _ in range(6):
    step(tf.ones((2, 4)))
"""


@pytest.mark.parametrize(("used", "codes"), [("clipped", set()), ("grads", {"GM105"})])
def test_a_function_runs_eagerly(tmp_path: Path, used: str, codes: set[str]) -> None:
    import tensorflow as tf

    script = tmp_path / "train.py"
    script.write_text(STEP.replace("USED", used))
    told = watched.told(script)
    assert (told.report["steps"], {code for code, _ in told.found} - {"GD302"}) == (6, codes)
    assert [(x["what"], x["line"]) for x in told.report["ran_eagerly"]] == [("tf.function", 7)]
    assert not tf.config.functions_run_eagerly()


def test_a_line_that_autograph_has_written_anew_is_the_users(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STEP.replace("USED", "clipped"))
    (unwatched,) = watched.told(script, "--compiled").report["unwatched"]
    assert Path(unwatched["file"]) == script
    assert "apply_gradients" in script.read_text().splitlines()[unwatched["line"] - 1]
