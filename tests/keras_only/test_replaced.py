"""``tools/replaced``: gradclip in the place of the clips of Keras's optimizers, in eager steps."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
from replaced.command import replaced, shown

PROGRAM = """
import keras
import numpy as np

rng = np.random.default_rng(0)
for options in ({"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 0.01}, {}):
    variables = [keras.Variable(np.zeros(size, "float32")) for size in (1000, 7)]
    optimizer = keras.optimizers.Adam(0.1, **options)
    for _ in range(2):
        optimizer.apply([keras.ops.convert_to_tensor(rng.normal(size=v.shape).astype("float32")) for v in variables], variables)
"""


def test_each_step_is_compared_with_the_native_and_with_float64(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    rows, status = replaced([sys.executable, str(tmp_path / "program.py")])
    assert status == 0
    if keras.backend.backend() == "jax":  # without float64 to compare with
        assert rows == {}
        return
    assert {name: (row.calls, row.beyond) for name, row in rows.items()} == {
        f"keras.optimizers.Optimizer({argument}=)": (2, 0) for argument in ("clipnorm", "global_clipnorm", "clipvalue")
    }
    row = rows["keras.optimizers.Optimizer(global_clipnorm=)"]
    assert 0 < row.gradient < 4, shown(rows)
    assert row.native_gradient > 0
