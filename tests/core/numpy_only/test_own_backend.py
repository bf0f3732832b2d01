"""A third party's framework joins by entry point or by ``gradclip.register``; every scope of rule then runs on its tensors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launched import TIME_LIMIT

import gradclip
from gradclip.core import registry
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import optax, tensorflow, torch

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_backend"
VALUES = [[[1.5, -2.0, 0.25], [4.0, 0.0, -8.0]], [[0.5, 0.125, -3.0], [1.0, 16.0, 2.0]]]
RULES = {
    "global": "torch.clip_grad_norm(1.0)",
    "global, another order": "torch.clip_grad_norm(1.0, norm_type=3.0)",
    "tensor": "tensorflow.clip_by_norm(5.0)",
    "tensor, the mean": "optax.clip_by_block_rms(0.5)",
    "axes": "tensorflow.clip_by_norm(3.0, axes=[1])",
    "example": "optax.per_example_global_norm_clip(1.0)",
    "value": "tensorflow.clip_by_value(-1.0, 2.0)",
    "nothing to clip": "torch.clip_grad_norm(1e6)",
}
CLIPS = f"""
import json
import gradclip, toytensor
from gradclip.dialects import optax, tensorflow, torch

def results(rule):
    clipped = gradclip.clip([*map(toytensor.Tensor, {VALUES}), None], rule).grads
    return [None if t is None else [type(t).__module__, t.dtype, t.tolist()] for t in clipped]

print(json.dumps({{name: results(eval(rule)) for name, rule in {RULES}.items()}}))
"""


def run(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, timeout=TIME_LIMIT
    )


def copied(to: Path) -> Path:
    """Return a copy of the example's folder, without build files."""
    return Path(shutil.copytree(EXAMPLE, to, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__")))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return copied(tmp_path / "own_backend")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = copied(tmp_path_factory.mktemp("sources") / "own_backend")
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, str(sources)], check=True, timeout=TIME_LIMIT)
    return target


def check(done: subprocess.CompletedProcess[str]) -> None:
    """Assert that toytensor's results equal NumPy's."""
    assert done.returncode == 0, done.stderr
    toy: dict[str, list[Any]] = json.loads(done.stdout)
    assert list(toy) == list(RULES)
    arrays = [*map(np.array, VALUES), None]
    for name, text in RULES.items():
        expected = gradclip.clip(arrays, eval(text, {"torch": torch, "tensorflow": tensorflow, "optax": optax})).grads
        assert toy[name][2] is None is expected[2]
        for (module, dtype, values), array in zip(toy[name][:2], expected[:2], strict=True):
            assert (module, dtype) == ("toytensor", "float64")
            np.testing.assert_array_max_ulp(np.array(values), array, maxulp=4)


def test_the_entry_point_is_enough(installed: Path) -> None:
    check(run(CLIPS, installed))


def test_register_is_enough(sources: Path) -> None:
    check(run(f"import gradclip, gradclip_toytensor as g\ngradclip.register('toytensor', g.ToyBackend)\n{CLIPS}", sources))


def test_without_either_the_message_says_how(sources: Path) -> None:
    done = run(CLIPS, sources)
    assert done.returncode == 1
    assert "No backend knows tensors of type toytensor.Tensor." in done.stderr
    assert "Received: toytensor.Tensor; installed backends:" in done.stderr
    assert "numpy" in done.stderr.split("installed backends:")[1]
    assert (
        "Hint: gradclip.register(module, backend) adds one, as does an entry point of the group 'gradclip.backends'."
        in done.stderr
    )


def test_the_native_names_take_its_tensors(installed: Path) -> None:
    done = run("import gradclip, toytensor\nprint(gradclip.clip_by_norm(toytensor.Tensor([3.0, 4.0]), 2.5))", installed)
    assert (done.stdout.strip(), done.stderr) == ("Tensor([1.5, 2.0])", "")


def test_its_tensors_cannot_be_written_and_say_so(installed: Path) -> None:
    code = """
import gradclip, toytensor
from gradclip.dialects import torch
gradclip.clip_([toytensor.Tensor([3.0, 4.0])], torch.clip_grad_norm(1.0))
"""
    done = run(code, installed)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-3:] == [
        "gradclip.core.errors.NotWritableError: This gradient cannot be written in place.",
        "Received: an immutable tensor of toytensor",
        "Hint: use gradclip.clip, which returns new ones.",
    ]


class Own(gradclip.Backend):
    def __init__(self, name: str = "made") -> None:
        self.name = name


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a test's registrations after it."""
    monkeypatch.setattr(registry, "_SOURCES", dict(registry._sources()))
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))


@pytest.mark.usefixtures("registered")
def test_a_backend_that_is_registered_is_the_one_that_is_used() -> None:
    """gradclip uses that instance, not another of its class."""
    first, second = Own("first"), Own("second")
    gradclip.register("aaa", first)
    gradclip.register("bbb", second)
    assert (registry.get("aaa"), registry.get("bbb")) == (first, second)
    gradclip.register("aaa", second)
    assert registry.get("aaa") is second


@pytest.mark.usefixtures("registered")
def test_entry_points_that_could_not_be_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(**given: Any) -> Any:
        raise OSError("disk")

    monkeypatch.setattr(registry, "_entry_points_read", False)
    with monkeypatch.context() as broken:
        broken.setattr(metadata, "entry_points", unreadable)
        with pytest.raises(OSError, match="disk"):
            registry.installed()
    found = metadata.EntryPoint("abacus", "gradclip_abacus:Backend", registry.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda **given: [found])
    assert not registry.installed()["abacus"]


@pytest.mark.usefixtures("registered")
def test_a_framework_with_several_modules_has_one_backend() -> None:
    assert registry.get("numpy") is registry.get("ml_dtypes")
    gradclip.register("aaa", Own)
    gradclip.register("bbb", Own)
    gradclip.register("ccc", lambda: Own())
    assert registry.get("aaa") is registry.get("bbb")
    assert registry.get("ccc") is not registry.get("aaa")


def test_a_name_that_gradclip_does_not_know_is_warned_of() -> None:
    """gradclip would never call a method under an old or misspelt name."""
    with pytest.warns(GradclipWarning) as warned:
        type("Mine", (Own,), {"is_parameter": lambda self, x: True, "holds_gradient": True, "_helper": None})
    assert str(warned[0].message) == (
        "gradclip never asks a backend for these names: they are misspelt, or of another version.\n"
        "Received: Mine.is_parameter, Mine.holds_gradient\n"
        "Hint: see gradclip.Backend for the names; begin the name of a helper of your own with an underscore."
    )


@pytest.mark.parametrize("module", [5, None, Own, b"mylib"])
def test_a_module_is_given_by_its_name(module: Any) -> None:
    with pytest.raises(TypeError, match=r"A module is given by its name\.\nReceived: module=.*\nHint: the top-level module of"):
        gradclip.register(module, Own)


@pytest.mark.usefixtures("registered")
def test_threads_that_look_it_up_at_once_share_one_backend() -> None:
    both = threading.Barrier(2)

    def make() -> Own:
        both.wait(TIME_LIMIT)  # neither thread has a backend yet
        return Own()

    gradclip.register("aaa", make)
    gradclip.register("bbb", make)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(registry.get, ("aaa", "bbb"))
    assert one is other
