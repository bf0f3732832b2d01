"""The vectors work in any language: an implementation in JavaScript reads them and gets a verdict."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conformance import javascript
from launched import TIME_LIMIT

import gradclip.conformance

VECTORS = Path(gradclip.conformance.__path__[0]) / "vectors" / "v1" / "optax.clip_by_global_norm.json"
EXAMPLE = Path(__file__).parents[3] / "examples" / "javascript" / "check_clip.js"
SCRIPT = EXAMPLE.read_text("utf-8")


def told(script: str) -> tuple[int, list[str]]:
    printed: list[str] = []
    return javascript.run(script, [str(VECTORS)], printed.append), printed


def test_the_example_passes_what_it_claims() -> None:
    status, (line,) = told(SCRIPT)
    assert status == 0
    counts = line.split(": ")[1].split(", ")
    passed, failed, unclaimed = (int(count.split()[0]) for count in counts)
    assert passed > 30
    assert failed == 0
    assert unclaimed > 10


def test_the_guide_has_a_node_where_none_is_installed(tmp_path: Path) -> None:
    javascript.install(tmp_path / "bin")
    done = subprocess.run([tmp_path / "bin" / "node", EXAMPLE, VECTORS], capture_output=True, text=True, timeout=TIME_LIMIT)
    assert (done.returncode, done.stdout.splitlines()) == told(SCRIPT)


@pytest.mark.parametrize(
    ("right", "wrong", "case"),
    [
        ("limit / norm", "limit / (norm + 1e-6)", "B9"),
        ("!(limit >= 0)", "limit < 0", "E"),
        ("limit === Infinity || ", "", "D"),
        ("gradient && gradient", "(gradient ?? [])", "none"),
    ],
)
def test_a_mistake_in_it_is_seen(right: str, wrong: str, case: str) -> None:
    assert SCRIPT.count(right) == 1
    status, printed = told(SCRIPT.replace(right, wrong))
    assert status == 1
    assert any(line.startswith(f"FAIL {case}") for line in printed)
