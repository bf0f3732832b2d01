"""``tools/replaced``: gradclip in the place of optax's links, also in a compiled step."""

from __future__ import annotations

import sys
from pathlib import Path

from replaced.command import replaced, shown

PROGRAM = """
import jax
import optax
from jax import numpy as jnp

optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.clip(0.05), optax.adam(0.1))
params = {"a": jnp.ones((3, 4)), "b": jnp.ones(100)}
state = optimizer.init(params)

@jax.jit
def step(state, key):
    grads = jax.tree.map(lambda x: x * jax.random.normal(key, x.shape), params)
    return optimizer.update(grads, state, params)[1]

for key in range(3):
    state = step(state, jax.random.key(key))
"""


def test_each_update_is_compared_with_the_native_and_with_float64(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    rows, status = replaced([sys.executable, str(tmp_path / "program.py")])
    assert status == 0
    assert {name: (row.calls, row.beyond) for name, row in rows.items()} == {
        "optax.clip": (3, 0),
        "optax.clip_by_global_norm": (3, 0),
    }
    row = rows["optax.clip_by_global_norm"]
    assert 0 < row.gradient < 4, shown(rows)
    assert 0 < row.native_gradient < 4
