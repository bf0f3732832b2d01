"""The report of an outcome as text, Markdown and JSON."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from benchmark_command.outcomes import case, norm, outcome

from benchmarks import readme, report
from benchmarks.outcome import Outcome, mean

CLIP = "torch/clip_grad_norm_/tensor/unclipped/float32/eager"
CLIPPED = CLIP.replace("unclipped", "clipped")
NORM = "torch/get_total_norm/tensor/measured/float32/compile"
RUN = outcome(
    case(CLIP, 2.0, limit_seconds=1.6e-3, native_memory=1.0, gradclip_memory=0.0, native_error=12345.0, gradclip_error=0.3),
    case(CLIPPED, 0.5),
    case(NORM, 4.0),
    case(
        "paddle/ClipGradByNorm/mlp/clipped/bfloat16/eager",
        gradclip_seconds=1e-3,
        failures={"native": "RuntimeError: no kernel"},
    ),
    case(
        "paddle/ClipGradByNorm/mlp/unclipped/bfloat16/eager",
        gradclip_seconds=1e-3,
        failures={"native": "RuntimeError: no kernel"},
    ),
    accuracy=[norm(0.3, **{"native error": math.inf, "native where": "uniform, 1 in 1"}), norm(0.7, order="inf")],
    torch={"versions": {"torch": "2.13"}, "notes": [], "threads": 2, "rates": {"read": 5e10, "scale": 3e10}},
    jax={"skipped": "not installed: optax"},
    paddle={"versions": {"paddle": "3.3"}, "notes": ["a note"], "failure": "crashed with SIGSEGV"},
)


def test_text() -> None:
    text = report.text(RUN)
    lines = text.splitlines()
    assert "Abacus, 2 cores, 32 MiB of cache, 16 GiB of memory" in lines
    assert "Linux 6, Python 3.11, huge pages: never, load before: 0.0" in lines
    assert "torch 2.13; 2 threads, GB/s of gradients: read 50, scale 30" in lines
    assert "jax: skipped: not installed: optax" in lines
    assert "paddle: ended early: crashed with SIGSEGV" in lines
    assert "paddle 3.3; a note" in lines
    [row] = [line.split() for line in lines if line.startswith("clip_grad_norm_/tensor/unclipped")]
    assert row[1:] == ["4.00", "2.00", "2.00", "1.98..2.02", "1.25", "100%", "/", "0%", "1e4", "/", "0.3"]
    [row] = [line.split() for line in lines if line.startswith("ClipGradByNorm/mlp/clipped")]
    assert row[1:] == ["-", "1.00", "-"]
    assert "torch: 1.59, the geometric mean of 3 ratios" in lines


def test_equal_failures_share_a_line() -> None:
    [line] = report.failures(RUN)
    assert line == "FAILED: native: paddle/ClipGradByNorm/mlp/clipped/bfloat16/eager, and 1 others: RuntimeError: no kernel"


def test_the_worst_comes_first() -> None:
    run = outcome(case(CLIP, 0.9), case(CLIPPED, 0.2), case(NORM, 1.1))
    lines = report.text(run).splitlines()
    start = lines.index("Not ahead, the worst first:")
    assert lines[start + 1 : start + 3] == [f"  0.20  {CLIPPED}", f"  0.90  {CLIP}"]
    assert NORM not in "\n".join(lines[start:])
    assert mean(run.compared) == pytest.approx((0.9 * 0.2 * 1.1) ** (1 / 3))


@pytest.mark.parametrize(("seconds", "text"), [(None, "-"), (1.5, "1500"), (0.0123456, "12.3"), (2e-6, "0.00200")])
def test_three_digits(seconds: float | None, text: str) -> None:
    assert report.milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.26, "0.3"), (99.9, "99.9"), (100.0, "1e2"), (2.5e7, "2e7"), (1e12, "1e12"), (math.inf, "inf")]
)
def test_ulps(value: float, text: str) -> None:
    assert report.ulps(value) == text


def test_markdown() -> None:
    text = readme.tables(RUN)
    assert "| torch `clip_grad_norm_` eager | 2.00 / 0.50 |" in text
    assert "| torch `get_total_norm` compile | 4.00 |" in text
    assert "| paddle `ClipGradByNorm` eager | native fails / native fails |" in text
    assert "| torch `clip_grad_norm_` eager | 100% → 0% / – |" in text
    assert "| torch `clip_grad_norm_` eager | 1.25 / – |" in text
    assert "| torch eager float32 | inf → 0.3 | – → 0.7 |" in text
    assert "| all | 3 | **1.59** | 1.00 | 4.00 |" in text
    assert all(line.count("|") == text_before(text, line).count("|") for line in text.splitlines() if line.startswith("| --- "))


def text_before(text: str, line: str) -> str:
    """Return the header of a table: the line above its rule."""
    lines = text.splitlines()
    return lines[lines.index(line) - 1]


def test_the_tables_go_between_the_marks() -> None:
    first, second = "<!-- last full run -->", "<!-- not ahead -->"
    text = f"# A\n\n{first}\n\nold\n\n{first.replace(' l', ' /l')}\n\nz\n\n{second}{second.replace(' n', ' /n')}\n\ny\n"
    new = readme.written(text, RUN)
    assert new.startswith(f"# A\n\n{first}\n\n- Abacus")
    assert f"\n\n<!-- /last full run -->\n\nz\n\n{second}\n\n**Not explained.**\n\n- `{CLIPPED}`: 0.50 (" in new
    assert new.endswith("\n\n<!-- /not ahead -->\n\ny\n")
    assert "old" not in new
    assert readme.written(new, RUN) == new
    for missing in (first, second):
        with pytest.raises(ValueError, match=f"there is no {missing}"):
            readme.written(text.replace(missing, ""), RUN)


def test_the_readme_has_the_marks() -> None:
    assert readme.written(readme.README.read_text(), RUN)


def test_json_and_back(tmp_path: Path) -> None:
    RUN.write(tmp_path / "a.json")
    assert Outcome.read([tmp_path / "a.json"]) == RUN
    assert "Infinity" not in (tmp_path / "a.json").read_text()


def test_a_later_file_stands_for_an_earlier_one(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    outcome(case(CLIP, 2.0), case(NORM, 4.0), accuracy=[norm(0.5)], torch={"notes": ["a"]}, jax={"notes": []}).write(paths[0])
    outcome(case(CLIP, 3.0), case(CLIPPED, 1.0), accuracy=[norm(0.6), norm(0.7, order="3.0")], torch={"notes": ["b"]}).write(
        paths[1]
    )
    merged = Outcome.read(paths)
    assert {entry["key"]: entry["ratio"] for entry in merged.cases} == {CLIP: 3.0, NORM: 4.0, CLIPPED: 1.0}
    assert [entry["gradclip error"] for entry in merged.accuracy] == [0.6, 0.7]
    assert merged.frameworks == {"torch": {"notes": ["b"]}, "jax": {"notes": []}}
