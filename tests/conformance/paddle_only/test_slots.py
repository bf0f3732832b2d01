"""Paddle's objects for ``grad_clip=`` as targets."""

from __future__ import annotations

import paddle
import pytest

from gradclip.conformance import check_target
from gradclip.conformance.slots import makes_slot, slot_target


@pytest.mark.parametrize("name", ["ClipGradByNorm", "ClipGradByGlobalNorm", "ClipGradByValue"])
def test_an_object_passes_as_the_native_does(name: str) -> None:
    operation, make = f"paddle.{name}", getattr(paddle.nn, name)
    assert makes_slot(make, operation)
    report = check_target(slot_target(make, operation, "paddle"), dialects=[operation], like="native:paddle")
    assert [result.case for result in report.results if result.status == "fail"] == []
    assert sum(result.status == "pass" for result in report.results) > 20
