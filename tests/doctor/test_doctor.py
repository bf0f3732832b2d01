"""``gradclip doctor`` on programs of each framework: it finds each planted mistake in its line, and blames no right program."""

from __future__ import annotations

import re

import pytest
import watched

pytestmark = pytest.mark.needs("trains")
#: framework -> the least numbers of right programs and of programs with mistakes
LEAST = {"torch": (6, 16), "tensorflow": (5, 7), "paddle": (5, 8), "jax": (4, 3), "keras": (1, 1)}

SEVERAL = (
    *("after_hooks", "counted_critic", "one_pass", "right_generator_only", "right_in_backward", "right_two_optimizers"),
    *("right_two_passes", "right_bounded_critic", "right_sparse_beside"),
    *("right_by_hand_not_reached", "right_skipped", "right_unused", "right_finite", "right_finite_link"),
)  #: programs in which a batch has several steps, or in which steps are skipped


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", watched.programs(metafunc.config.getoption("--backend")))


@pytest.fixture
def framework(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--backend"))


def test_there_are_programs_of_both_kinds(framework: str) -> None:
    marks = {name: bool(marked) for name, (_, marked) in watched.programs(framework).items()}
    least_right, least_wrong = LEAST[framework]
    assert sum(marks.values()) >= least_wrong
    assert sum(name.startswith("right_") for name in marks) >= least_right
    assert all(is_wrong != name.startswith("right_") for name, is_wrong in marks.items())


def test_the_findings(framework: str, name: str) -> None:
    told = watched.ran(framework, name)
    assert told.report["ended"] in ("stopped", "ended"), told.report["said"]
    assert told.found == watched.programs(framework)[name][1], told.report["findings"]
    assert told.status == int(bool(told.found))
    steps = told.report["steps"] + told.report["skipped"]
    assert steps == 6 or (steps > 6 and name in SEVERAL)


def test_the_clips_of_a_clipped_optimizer_are_seen(framework: str) -> None:
    """``gradclip.clipped(optimizer, rule)``: each step has a clip, with the rule's norm, limit and name."""
    report = watched.ran(framework, "right_clipped").report
    assert len(report["norms"]) == report["steps"] == 6
    assert {one["limit"] for one in report["norms"]} == {1.0}
    for one in report["norms"]:
        assert one["after"] == pytest.approx(min(one["before"], 1.0), rel=1e-5)
    assert max(one["before"] for one in report["norms"]) > 1.0
    assert re.search(r"· gradclip \w+\.\w*norm\w* [\d.]+ → 1\.00 ", report["timelines"][0])


def test_a_step_that_the_rule_skips_is_no_step(framework: str) -> None:
    skips = {"right_skipped", "right_finite", "right_finite_link"}
    for name in sorted(skips & watched.programs(framework).keys()):
        report = watched.ran(framework, name).report
        told = [line for line in report["timelines"] if "its rule skipped the step of" in line]
        assert (len(told), report["skipped"], report["steps"]) == (5, 5, 6), "the doctor stops after 6 steps"
