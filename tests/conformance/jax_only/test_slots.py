"""optax's transformations as targets of the suite."""

from __future__ import annotations

import optax
import pytest

from gradclip.conformance import check_target
from gradclip.conformance.slots import makes_slot, slot_target


@pytest.mark.drawn(1)
@pytest.mark.needs("has_recorded_natives")
@pytest.mark.parametrize("name", ["clip_by_global_norm", "clip", "adaptive_grad_clip"])
def test_a_transformation_passes_as_the_native_does(name: str) -> None:
    operation, make = f"optax.{name}", getattr(optax, name)
    assert makes_slot(make, operation)
    report = check_target(slot_target(make, operation, "jax"), dialects=[operation], like="native:optax")
    assert [result.case for result in report.results if result.status == "fail"] == []
    assert sum(result.status == "pass" for result in report.results) > 20


def test_another_transformation_fails() -> None:
    report = check_target(slot_target(optax.clip, "optax.clip", "jax"), dialects=["optax.clip"], select="*/all-clipped")
    assert report.conformant

    def wrong(max_delta: float) -> optax.GradientTransformation:
        return optax.clip(2 * max_delta)

    assert not check_target(slot_target(wrong, "optax.clip", "jax"), dialects=["optax.clip"]).conformant
