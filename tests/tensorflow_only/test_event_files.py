"""gradclip reads TensorBoard's event files as TensorFlow writes them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tensorflow as tf

from gradclip.commands.choose_logs import LogError, read_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two files of one run, as a restart does."""
    for steps in (range(3), range(3, 5)):
        writer = tf.summary.create_file_writer(str(tmp_path / f"from {steps.start}"))
        with writer.as_default():
            for step in steps:
                tf.summary.write("loss", 9.0 - step, step)  # writes what tf.summary.scalar does; that needs tensorboard
                tf.summary.write("train/grad_norm", math.nan if step == 2 else 0.5 * step, step)
                tf.summary.write("note", "no number", step)
        writer.close()
    return tmp_path


def test_the_scalars_of_a_tag_come_in_the_order_of_their_steps(folder: Path) -> None:
    said: list[str] = []
    assert str(read_log(str(folder), say=said.append)) == "[0.0, 0.5, nan, 1.5, 2.0]"
    assert [line.partition("(")[2] for line in said] == ["1 of 2) ...", "2 of 2) ..."]
    assert read_log(str(folder), "loss") == [9.0, 8.0, 7.0, 6.0, 5.0]
    (file,) = (folder / "from 3").iterdir()
    assert read_log(str(file)) == [1.5, 2.0]
    file.write_bytes(file.read_bytes()[:-5])  # as while TensorFlow writes it
    assert read_log(str(file), "loss") == [6.0, 5.0]


def test_the_first_version_of_the_format(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        old = tf.compat.v1.summary.FileWriter(str(tmp_path))
        for step, norm in enumerate((1.0, 2.5)):
            value = tf.compat.v1.Summary.Value(tag="norm", simple_value=norm)
            old.add_summary(tf.compat.v1.Summary(value=[value]), step)
        old.close()
    assert read_log(str(tmp_path)) == [1.0, 2.5]


def test_doubles_and_a_folder_without_norms(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        tf.summary.write("norm", tf.constant(0.1, tf.float64), 0)
        tf.summary.write("vector_norm", tf.constant([1.0, 2.0]), 0)
    writer.close()
    assert read_log(str(tmp_path)) == [0.1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogError, match="The folder has no files of TensorBoard"):
        read_log(str(tmp_path / "empty"))
