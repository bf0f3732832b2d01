"""A third party's backend for MLX needs only its distribution, and conforms in all that it claims: every dialect."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launched import TIME_LIMIT

from gradclip.conformance.target import OPERATIONS

EXAMPLE = Path(__file__).parents[3] / "examples" / "mlx_backend"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a copy of the distribution into a folder: a build leaves files in its sources."""
    sources = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("sources") / EXAMPLE.name)
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, str(sources)], check=True, timeout=TIME_LIMIT)
    return target


def run(arguments: list[str], installed: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = os.environ | {"PYTHONPATH": str(installed)} | environment
    return subprocess.run([sys.executable, "-P", *arguments], env=whole, capture_output=True, text=True, timeout=TIME_LIMIT)


def conformance(installed: Path, to: Path, *options: str, **environment: str) -> dict[str, Any]:
    """Return the report on the example's target."""
    xfails = EXAMPLE / "xfails.json"
    command = ["-m", "gradclip", "conformance", "gradclip_mlx_target:target", f"--xfails={xfails}", f"--json={to}", *options]
    done = run(command, installed, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(to.read_text("utf-8"))
    return report


@pytest.mark.parametrize(
    ("options", "least"),
    [
        (["--select=*/n*"], 100),
        pytest.param([], 3000, marks=pytest.mark.slow("a case that MLX alone fails; other backends pass the same cases")),
    ],
    ids=["some", "all"],
)
def test_it_conforms_in_every_operation(installed: Path, tmp_path: Path, options: list[str], least: int) -> None:
    """It runs uncompiled: a C++ compiler would build some hundred kernels for MLX; the next test compiles a few."""
    report = conformance(installed, tmp_path / "report.json", *options, MLX_DISABLE_COMPILE="1")
    (entry,) = report["targets"].values()
    assert entry["versions"]["mlx"]
    assert entry["device"] == "Device(cpu, 0)"
    counts = report["counts"]
    assert (counts["fail"], counts["unexpected"]) == (0, 0)
    assert counts["expected"] < 30 < least < counts["pass"]
    assert {result["operation"] for result in report["results"] if result["status"] == "pass"} == set(OPERATIONS)


def test_it_conforms_compiled(installed: Path, tmp_path: Path) -> None:
    report = conformance(installed, tmp_path / "report.json", "--dialect=tensorflow", "--select=*/traced*")
    assert report["counts"]["pass"] == len(report["results"]) > 4


def test_the_readme_of_the_example_runs(installed: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", (EXAMPLE / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    done = run(["-c", f"{block}\nprint(norm, gradients)"], installed)
    assert (done.stdout, done.stderr) == (
        "array(13, dtype=float32) {'weight': array([1.5, 2], dtype=float32), 'bias': array([6], dtype=float32)}\n",
        "",
    )
