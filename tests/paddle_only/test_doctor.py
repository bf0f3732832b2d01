"""``gradclip doctor`` on compiled code of Paddle: it runs eagerly, and is watched."""

from __future__ import annotations

from pathlib import Path

import watched

STEP = """
import paddle

model = paddle.nn.Linear(4, 1)
optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())

@paddle.jit.to_static(full_graph=True)
def loss(x):
    return ((model(x) - 3) ** 2).mean()

for _ in range(6):
    loss(paddle.ones([2, 4])).backward()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
    optimizer.clear_grad()
"""


def test_a_function_runs_eagerly(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STEP)
    told = watched.told(script)
    assert (told.report["steps"], told.report["fault"]) == (6, None)
    assert [x["what"] for x in told.report["ran_eagerly"]] == ["paddle.jit.to_static"]
