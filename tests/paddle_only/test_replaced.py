"""``tools/replaced``: gradclip in the place of the clips of Paddle's optimizers, and of its functions."""

from __future__ import annotations

import sys
from pathlib import Path

from replaced.command import replaced, shown

PROGRAM = """
import paddle
from paddle.nn import ClipGradByGlobalNorm  # the program's own name

paddle.seed(0)
for clip in (ClipGradByGlobalNorm(0.1), paddle.nn.ClipGradByNorm(0.1), paddle.nn.ClipGradByValue(0.01)):
    model = paddle.nn.Linear(50, 20)
    model.bias.need_clip = False
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters(), grad_clip=clip)
    for _ in range(2):
        model(paddle.randn([8, 50])).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()
assert isinstance(optimizer._grad_clip, paddle.nn.ClipGradByValue)
model(paddle.randn([8, 50])).sum().backward()
assert paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 1
paddle.nn.utils.clip_grad_value_(model.parameters(), 0.1)
"""


def test_each_call_is_compared_with_the_native_and_with_float64(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    rows, status = replaced([sys.executable, str(tmp_path / "program.py")])
    assert status == 0
    assert {name: (row.calls, row.beyond) for name, row in rows.items()} == {
        "paddle.nn.ClipGradByGlobalNorm": (2, 0),
        "paddle.nn.ClipGradByNorm": (2, 0),
        "paddle.nn.ClipGradByValue": (2, 0),
        "paddle.nn.utils.clip_grad_norm_": (1, 0),
        "paddle.nn.utils.clip_grad_value_": (1, 0),
    }
    row = rows["paddle.nn.ClipGradByGlobalNorm"]
    assert 0 < row.gradient < 4, shown(rows)
    assert row.native_gradient > 0
    assert 0 < rows["paddle.nn.utils.clip_grad_norm_"].norm <= 0.5
