"""A fault anywhere in the doctor's own code: the script runs as without the doctor, and the report says what went wrong."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from gradclip.commands import cli
from gradclip.doctor import program

pytestmark = pytest.mark.needs("trains")

ROOT = Path(cli.__file__).resolve().parents[2]
#: the code that records; ``guard`` itself is where faults end, and ``program`` is what runs the script
NAMES = ("watch", "by_hand", "hand", "seen", "recorder", "functional", "own", "imports", "lines", "places", "threads")
FILES = {str(path) for name in NAMES for path in ROOT.glob(f"gradclip/doctor/{name}.py")}
FILES |= {str(path.resolve()) for path in ROOT.glob("backends/*/watch*.py")}
#: what runs before there is anything to guard, and when the report is made
APART = ("Recorder.__init__", "_Here.__init__", "Place.__str__")
STEPS = 3
#: what a timed trial on copies may call, which is left out where it fails
TRIALS = ("_request.<locals>.own", "TorchWatch.native.<locals>.<lambda>", "leaves")
TRIALS += ("_clips.<locals>.by_norm.<locals>.clip_grad_norm_.<locals>.<lambda>", "TorchWatch.copies")
PARTS = 4  #: of the functions, of which one is tried in a usual run

SCRIPTS = {
    "torch": """
import torch
import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects.torch import clip_grad_norm

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
model[0].bias.register_hook(lambda grad: grad * 0.5)
optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.01)
optimizer.add_param_group({"params": model[1].parameters()})
scaler = torch.amp.GradScaler("cpu")
optimizer.register_step_pre_hook(step_pre_hook(clip_grad_norm(0.1)))
for step in range(STEPS):
    optimizer.zero_grad()
    loss = (model(torch.ones(2, 4)) - 3).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_((x for x in model.parameters()), 1.0)
    model[0].weight.grad.mul_(0.5)
    gradclip.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    try:
        torch.nn.utils.clip_grad_value_((1 / 0 for _ in "one"), 1.0)
    except ZeroDivisionError:
        print("the script's own error")
    print("FINAL", loss.item().hex(), norm.item().hex())
""",
    "paddle": """
import paddle

paddle.seed(0)
model = paddle.nn.Linear(4, 1)
clip = paddle.nn.ClipGradByGlobalNorm(1.0)
optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters(), grad_clip=clip)
scaler = paddle.amp.GradScaler(init_loss_scaling=8.0)
for step in range(STEPS):
    loss = (model(paddle.ones([2, 4])) - 3).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = paddle.nn.utils.clip_grad_norm_((x for x in model.parameters()), 2.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.clear_grad()
    print("FINAL", loss.item().hex(), norm.item().hex())
""",
    "tensorflow": """
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01, clipnorm=1.0)
for step in range(STEPS):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(tf.ones((2, 4))) - 3) ** 2)
    grads, norm = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 2.0)
    grads = [tf.clip_by_norm(x, 1.0) for x in grads]
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    print("FINAL", float(loss).hex(), float(norm).hex())
""",
    "jax": """
import jax
import jax.numpy as jnp
import optax

params = {"w": jnp.ones(4), "b": jnp.zeros(())}
adam = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)
parts = optax.multi_transform({"w": adam, "b": optax.sgd(0.1)}, {"w": "w", "b": "b"})
optimizer = optax.chain(optax.masked(optax.clip_by_global_norm(1.0), {"w": True, "b": False}), parts)
state = optimizer.init(params)
for step in range(STEPS):
    grads = jax.grad(lambda p: jnp.mean((p["w"].sum() + p["b"] - 3) ** 2))(params)
    updates, state = optimizer.update(grads, state, params)
    params = optax.apply_updates(params, updates)
    jax.effects_barrier()
    print("FINAL", *(float(x).hex() for x in (*params["w"], params["b"])))
""",
}
Place = tuple[str, str]  #: a file and a function in it


class Injected(Exception):
    """The fault."""


@contextlib.contextmanager
def profiled(called: Callable[[CodeType], None]) -> Iterator[None]:
    """Tell of each call of a function that records; the function raises what ``called`` raises."""

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in FILES and code.co_qualname not in APART:
            called(code)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def doctor(path: Path) -> tuple[int, dict[str, Any], str]:
    """The exit status, the report, and the script's output."""
    out, script = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(script):
        status = cli.main(["doctor", str(path), "--steps", "99", "--json"])
    return status, json.loads(out.getvalue()), _said(script.getvalue())


def _said(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith(("FINAL", "the script's")))


@pytest.fixture
def script(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    path, name = tmp_path / "train.py", pytestconfig.getoption("--backend")
    if name not in SCRIPTS:
        pytest.skip("the watch of Keras is in TensorFlow's script")
    path.write_text(SCRIPTS[name].replace("STEPS", str(STEPS)))
    return path


@pytest.fixture
def alone(script: Path) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert program.run(str(script), (), False).how == "ended"
    return _said(out.getvalue())


@pytest.mark.drawn(1)
@pytest.mark.filterwarnings("ignore:AmpScaler can only be enabled on:UserWarning")  # Paddle, without a GPU
@pytest.mark.parametrize("part", range(PARTS))
def test_a_fault_in_any_function_that_records(script: Path, alone: str, part: int) -> None:
    assert alone.count("FINAL") == STEPS
    doctor(script)  # imports the watches
    calls: Counter[Place] = Counter()
    with profiled(lambda code: calls.update([(code.co_filename, code.co_qualname)])):
        status, report, said = doctor(script)
    assert (report["fault"], said) == (None, alone)
    assert status in (0, 1)
    assert len(calls) > 20
    for k, ((file, name), many) in enumerate(calls.items()):
        if k % PARTS != part:
            continue
        left = [1 if k // PARTS % 2 else many // 2 + 1]  # in its first call, or a later one

        def called(code: CodeType, wanted: Place = (file, name), left: list[int] = left) -> None:
            if (code.co_filename, code.co_qualname) == wanted:
                left[0] -= 1
                if not left[0]:
                    raise Injected("by the test")

        with profiled(called):
            status, report, said = doctor(script)
        assert left[0] <= 0, (name, many, report["fault"], report["timelines"])
        assert said == alone, (name, report)
        assert report["ended"] == "ended", (name, report["said"])
        if report["fault"] is None:
            assert name in TRIALS
            continue
        assert report["fault"]["error"].endswith("Injected: by the test")
        assert status == (1 if report["findings"] else 2), name
