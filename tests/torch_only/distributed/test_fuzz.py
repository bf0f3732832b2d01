"""Random clips on four ranks: none is wrong, and none hangs. ``drawn.py`` draws them, and each failure names its seed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import copies
import pytest
from torch_only.distributed import drawn, fuzzing

AT_ONCE = 500  #: cases of one set of processes


def outcome(first: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        done = copies.run("torch", "-m", "forked", "4", fuzzing.__name__, str(path), str(first), str(count))
        assert path.exists(), f"seeds from {first}: {done.stderr[-3000:]}"
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 100),
        *(
            pytest.param(first, AT_ONCE, marks=pytest.mark.slow("a mistake that no hundred cases show"))
            for first in range(100, 2100, AT_ONCE)
        ),
    ],
)
def test_none_is_wrong_and_none_hangs(first: int, count: int) -> None:
    found = outcome(first, count)
    assert not found["failures"], "\n".join(found["failures"].values())
    assert found["done"] == count


def test_the_cases_have_what_they_should() -> None:
    cases = [drawn.drawn(seed) for seed in range(300)]
    gradients = [grad for case in cases for grad in case.gradients]
    assert {grad.how for grad in gradients} == {"typed", "bare", "plain", "told"}
    assert {case.mistake[0] for case in cases if case.mistake} == set(drawn.MISTAKES)
    assert sum(grad.placed != grad.of_param and 0 < len(grad.missing) < drawn.RANKS for grad in gradients) > 50
    assert any(0 in grad.local(rank).shape for grad in gradients for rank in range(drawn.RANKS)), "an empty shard"
    assert any(grad.is_frozen for grad in gradients)
    assert any(case.has_stages for case in cases)
    assert {case.order for case in cases} == set(drawn.ORDERS)


def test_a_wrong_norm_is_found() -> None:
    """The exact norm of a case is that of the gathered gradients, and another one is a failure."""
    case = next(case for case in map(drawn.drawn, range(100)) if not case.mistake and not case.device and case.norm(0) > 0)
    right = [{"norm": case.norm(rank), "far": 0.0} for rank in range(drawn.RANKS)]
    assert "norm" in fuzzing.wrong(case, [{**one, "norm": one["norm"] * 1.001} for one in right])
    assert "ulp away" in fuzzing.wrong(case, [{**one, "far": 5.0} for one in right])
    assert "ranks raised" in fuzzing.wrong(case, [{"error": "ValueError", "unchanged": True}, *right[1:]])
