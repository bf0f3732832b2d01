"""The benchmark command runs in a process of its own, from a checkout, but measures the installed gradclip."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from launched import TIME_LIMIT

CHECKOUT = Path(__file__).parents[3]
CASE = "numpy/clip_grad_norm_/mlp/clipped/float32/eager"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user types it; with PYTHONSAFEPATH the checkout would not be on the path, so it is added."""
    code = (
        f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import runpy; runpy.run_module('benchmarks', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=TIME_LIMIT)


def test_one_case(tmp_path: Path) -> None:
    done = run("--only", CASE, "--quick", "--seconds", "0.01", "--json", str(tmp_path / "a.json"))
    assert done.returncode == 0, done.stderr
    assert CASE in done.stderr
    [entry] = json.loads((tmp_path / "a.json").read_text())["cases"]
    assert entry["key"] == CASE
    assert entry["failures"] == {}
    assert entry["rounds"] >= 5
    assert entry["gradclip error"] < 4
    assert "clip_grad_norm_/mlp/clipped/float32/eager" in done.stdout


def test_a_pattern_that_fits_no_case() -> None:
    done = run("--only", "numpy/clip_grad_norm_/none", "--quick")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("No case has such a name.\nReceived: --only numpy/clip_grad_norm_/none\n")
