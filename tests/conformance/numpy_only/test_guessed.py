"""The operation of a function that no --dialect names: its names and its file's imports tell, or the command asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradclip.commands.cli import main
from gradclip.conformance.guessed import guess, likeliest
from gradclip.conformance.located import check_name
from gradclip.conformance.target import OPERATIONS
from gradclip.core.errors import ArgumentError


@pytest.mark.parametrize(
    ("call", "framework", "operations"),
    [
        ("my_clip parameters max_norm", "torch", ["torch.clip_grad_norm_"]),
        ("clip_gradients model max_grad_norm", "torch", ["torch.clip_grad_norm_"]),
        ("clipGradValues params c", "torch", ["torch.clip_grad_value_"]),
        ("clip grads limit", "torch", ["torch.clip_grad_norm_", "torch.clip_grad_value_"]),
        ("clip_by_global_norm t_list clip_norm", "torch", ["tensorflow.clip_by_global_norm"]),
        ("my_clip grads clip_norm", "tensorflow", ["tensorflow.clip_by_norm", "tensorflow.clip_by_global_norm"]),
        ("clip updates max_norm", "jax", ["optax.clip_by_global_norm"]),
        ("agc grads params clipping", "jax", ["optax.adaptive_grad_clip"]),
        ("agc parameters clip_factor eps", "torch", ["optax.adaptive_grad_clip"]),
        ("adaptive_clip_grad parameters clip_factor eps norm_type", "torch", ["optax.adaptive_grad_clip"]),
        ("clip grads max_delta", "", ["optax.clip"]),
        ("clip grads max_norm", "", ["torch.clip_grad_norm_", "optax.clip_by_global_norm"]),
    ],
)
def test_what_the_names_fit(call: str, framework: str, operations: list[str]) -> None:
    name, *arguments = call.split()
    assert likeliest(name, arguments, framework) == operations


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_function_with_the_names_of_a_native_is_that_native_or_one_of_the_same_meaning(operation: str) -> None:
    native = OPERATIONS[operation]
    found = likeliest(native.last, ["grads", *native.needed], {"optax": "jax"}.get(native.framework, native.framework))
    assert operation in found


SOURCE = """
import torch

def my_clip(parameters, max_norm): ...

class Trainer:
    def clip_values(self, params, limit): ...

class Target:
    def run(self, operation, gradients, arguments): ...

class Slot:
    def __init__(self, clip_value): ...

made = Target()
"""


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("my_clip", "torch.clip_grad_norm_"),
        ("Trainer.clip_values", "torch.clip_grad_value_"),
        ("Slot", "torch.clip_grad_value_"),
        ("Target", None),
        ("made", None),
    ],
)
@pytest.mark.parametrize("where", ["own_of_guess.py", "own_of_guess"])
def test_a_source_is_read_and_not_run(
    where: str, name: str, operation: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_of_guess.py").write_text(f"{SOURCE}raise SystemExit\n")
    assert guess(where, name, OPERATIONS) == operation


def test_a_name_that_is_nowhere_in_a_source_is_an_error_unless_the_source_makes_names(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def clip(grads, max_norm): ...\n")
    with pytest.raises(ArgumentError, match="has no function clpi; it has clip"):
        check_name(f"{tmp_path}/own.py", "clpi")
    (tmp_path / "own.py").write_text("from other import *\n")
    check_name(f"{tmp_path}/own.py", "clpi")


def test_the_command_says_what_it_takes_a_function_for_or_what_to_choose_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import numpy as np\n"
        "def clip(grads, max_delta): return [np.clip(g, -max_delta, max_delta) for g in grads]\n"
        "def scale(grads, max_norm): ...\n"
    )
    assert main(["conformance", "mine.py:clip", "--select", "both-sides", "--json", "report.json"]) == 0
    assert capfd.readouterr().err.startswith("mine.py:clip is tested as optax.clip, which its names fit best; --dialect names ")
    assert {result["operation"] for result in json.loads(Path("report.json").read_text())["results"]} == {"optax.clip"}
    assert main(["conformance", "mine.py:scale"]) == 2
    lines = [f"  gradclip conformance mine.py:scale --dialect {one}" for one in likeliest("scale", ["grads", "max_norm"])]
    assert capfd.readouterr().err.splitlines()[3:] == lines
    assert main(["conformance", "mine.py:clip", "mine.py:scale", "--dialect", "torch", "--dialect", "optax.clip"]) == 2
    assert "Received: mine.py:clip: optax.clip, mine.py:scale: torch.clip_grad_norm_\n" in capfd.readouterr().err
