"""The training that the README shows: it learns though its steps explode, and the monitor has seen each of them."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_monitor.py"


def test_the_run_survives_and_is_seen() -> None:
    monitor = runpy.run_path(str(EXAMPLE))["main"](steps=160)
    found = monitor.report()
    assert (found["steps"], found["not_finite"], found["not_finite_first_step"]) == (160, 2, 51)
    assert found["norm_before_largest"] > 20 * found["norm_after_largest"]
    assert found["clipped_steps"] >= 2
    (section,) = monitor.sections
    assert section.windows[-1].quantile(0.5) < 2.0
