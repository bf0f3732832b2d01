"""A clip as training code often contains it: the suite says what is wrong with it, and the corrected one conforms."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from launched import TIME_LIMIT

EXAMPLE = Path(__file__).parents[3] / "examples" / "in_house_clip"
MEANT = "optax.clip_by_global_norm"


def conformance(file: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "gradclip", "conformance", f"{file}:clip_gradients", *options]
    environment = os.environ | {"COLUMNS": "110", "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=EXAMPLE, env=environment, capture_output=True, encoding="utf-8", timeout=TIME_LIMIT)


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Run the suite on the faulty clip, and return its explained output and the report."""
    file = tmp_path_factory.mktemp("report") / "report.json"
    done = conformance("clip.py", "--dialect", MEANT, "--all", "--json", str(file))
    assert done.returncode == 1, done.stderr
    return done.stdout, json.loads(file.read_text("utf-8"))


@pytest.mark.parametrize(
    ("vectors", "check", "about", "training"),
    [
        ({"A2", "A3", "nine"}, "split_invariance", "GlobalNorm", "Clipping each separately changes the direction of the step"),
        ({"D1", "D4"}, "nan_propagates", "NotFinite", "A broken step looks healthy"),
    ],
)
def test_the_report_explains_what_is_wrong(
    explained: tuple[str, dict[str, Any]], vectors: set[str], check: str, about: str, training: str
) -> None:
    text, report = explained
    failed = {result["case"].removeprefix(f"{MEANT}/") for result in report["results"] if result["status"] == "fail"}
    assert vectors | {check} <= failed
    assert f"{MEANT}/{check}" in text
    groups = [" ".join(group.split()) for group in text.split("\n\n")]
    told = [group for group in groups if f"about {about}: " in group]
    for vector in vectors:
        assert any(re.search(rf"\b{vector}\b", group) for group in told)
    assert told
    assert all(f"training {training}" in group for group in told)


def test_what_the_native_does_too_is_told_apart(explained: tuple[str, dict[str, Any]]) -> None:
    text, report = explained
    found = {result["case"].removeprefix(f"{MEANT}/"): result for result in report["results"]}
    assert {found[case]["status"] for case in ("E2", "E3", "E6", "negative_limit")} == {"native"}
    assert found["E2"]["message"].startswith("as the native: ")
    assert "NegativeLimit" in text.partition("As the native, where gradclip departs from it on purpose")[2]


def test_the_report_shows_the_call_and_what_came_of_it() -> None:
    done = conformance("clip.py", "--dialect", MEANT, "--select", "*/A3")
    assert done.returncode == 1
    for line in (
        f"  called    {MEANT}([[3, 4] float32, [0, 5] float32], max_norm=4)",
        "  expected  [1.6970563, 2.2627418], [0, 2.828427], norm 7.071068 (float32)",
        "  got       [2.4, 3.2], [0, 4] (float32)",
    ):
        assert line in done.stdout.splitlines()


def test_what_it_fails_by_the_norm_it_passes_by_the_norm_of_each() -> None:
    """It conforms as a clip of each gradient by its own norm, except that it does not check limits."""
    done = conformance("clip.py", "--dialect", "keras.clipnorm", "--select", "*/A*")
    assert (done.returncode, "conforms" in done.stdout) == (0, True), done.stdout


def test_the_mended_one_conforms(tmp_path: Path) -> None:
    done = conformance("clip_fixed.py", "--dialect", MEANT, "--json", str(tmp_path / "report.json"))
    assert done.returncode == 0, done.stdout
    counts = Counter(result["status"] for result in json.loads((tmp_path / "report.json").read_text("utf-8"))["results"])
    assert counts.keys() == {"pass", "unclaimed"}
    assert counts["pass"] > 60
