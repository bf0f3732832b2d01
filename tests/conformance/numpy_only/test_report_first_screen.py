"""The first screen of a report: at most 40 lines, whatever ran."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from conformance.sample_report import CHECKS, FILES, NORM, array, outcome, report, sample

from gradclip.conformance.report import brief
from gradclip.conformance.report.printed import show
from gradclip.conformance.report.text import lines
from gradclip.conformance.report.view import View, view
from gradclip.conformance.result import Report, Result


def screen(of: View, width: int = 80) -> list[str]:
    return [line for line, _ in brief.screen(of, width)]


def large(targets: int, kinds: int, status: str) -> View:
    """Return a report in which each of many targets fails in many kinds of cases, each with a long message."""
    found = [
        Result(f"target {i}", f"operation.{i}{j % 9}", f"operation.{i}{j % 9}/check{j}", "check", said, message="why " * 90)
        for i in range(targets)
        for j in range(kinds)
        for said in ("pass", status)
    ]
    return view(Report("1", {}, {}, found), FILES, CHECKS)


@pytest.mark.parametrize("width", [60, 80, 110])
@pytest.mark.parametrize("status", ["fail", "unexpected", "expected", "unclaimed"])
@pytest.mark.parametrize(("targets", "kinds"), [(1, 1), (1, 60), (30, 3), (30, 60)])
def test_no_run_has_more_than_forty_lines_or_a_line_that_is_too_long(targets: int, kinds: int, status: str, width: int) -> None:
    shown = screen(large(targets, kinds, status), width)
    assert len(shown) <= 40
    assert max(map(len, shown)) <= width


def test_the_screen_has_the_verdicts_what_holds_what_fails_and_three_cases() -> None:
    shown = screen(sample())
    assert shown[1] == "✗ my_clip does not conform: of 6 claimed cases 5 fail."
    assert "  ✓ gradclip:torch: torch.clip_grad_norm_: 5 of 5 cases" in shown
    start = shown.index("What fails")
    assert shown[start + 1] == "  ✗   1  my_clip: not finite: NaN or infinity comes back where finite numbers"
    cases = shown[shown.index("The most telling cases") + 1 : -2]
    assert [line.split()[2] for line in cases if line.startswith(("  ✗ ", "  ! "))] == [
        "torch.clip_grad_norm_/E4:",
        "torch.clip_grad_norm_/H2:",
        "optax.clip/A1",
    ]
    assert shown[-1] == "--all shows every operation and each kind of failure."


def test_without_failures_the_declared_ones_are_shown() -> None:
    results = [result for result in report().results if result.status in ("pass", "expected")]
    shown = screen(view(dataclasses.replace(report(), results=results), FILES, CHECKS))
    assert "What is declared to fail, and does" in shown
    assert "What fails" not in shown


def test_plain_arithmetic_that_is_wrong_comes_first() -> None:
    plain = Result("my_clip", NORM, f"{NORM}/A1", "vector", "fail", "raised", "raised ValueError: no")
    shown = screen(view(dataclasses.replace(report(), results=[*report().results, plain]), FILES, CHECKS))
    assert f"{NORM}/A1" in shown[shown.index("The most telling cases") + 1]


def failure(case: str, reason: str, message: str = "", **outcome: Any) -> Result:
    """Return a failed result of the sample's vectors."""
    return Result("my_clip", NORM, f"{NORM}/{case}", "vector", "fail", reason, message, **outcome)


def of(*results: Result) -> View:
    return view(dataclasses.replace(report(), targets={"my_clip": {}}, results=list(results)), FILES, CHECKS)


def test_ordinary_numbers_come_before_extreme_ones_of_more_cases() -> None:
    extreme = [failure(case, "hung", flags=("Overflow",)) for case in ("H1", "H2")]
    shown = screen(of(*extreme, failure("A1", "garbage")))
    assert f"{NORM}/A1" in shown[shown.index("The most telling cases") + 1]


def test_known_numbers_come_before_extreme_ones_and_the_limit_is_never_cut_off() -> None:
    shown = screen(of(failure("H2", "hung"), failure("E4", "garbage")), 60)
    cases = shown[shown.index("The most telling cases") + 1 :]
    assert [line.split()[1] for line in cases if line.startswith("  ✗ ")] == [f"{NORM}/E4:", f"{NORM}/H2:"]
    assert any(line.startswith(" " * 14) and line.endswith("max_norm=1e31)") for line in cases)


def test_what_came_back_says_what_it_does_to_a_training() -> None:
    """The subject of the case, an unchanged gradient, would speak of less."""
    grown = {"expected": [outcome(array(0.6, 0.8))], "got": outcome(array(30, 40))}
    shown = screen(of(failure("A1", "", "gradient 0[0] is 30.0, not 3.0", **grown)))
    assert "    training  Small gradients are scaled up: steps never become small, and the" in shown


def test_a_clip_that_raises_nearly_everywhere_has_that_as_its_headline() -> None:
    said = ["ValueError: cannot clip [3.0]", "ValueError: cannot clip [4.0, inf]", "TypeError: no"]
    raised = [failure(case, "raised", f"raised {one}") for case, one in zip(("A1", "H1", "H2"), said, strict=True)]
    shown = screen(of(*raised, failure("E4", "hung")), 110)
    headline = "✗ my_clip does not conform: it raises ValueError: cannot clip [3.0], and 1 other exception (3 of 4 "
    assert shown[1].startswith(headline)
    start = shown.index("What fails")
    assert shown[start + 1 : start + 4] == [
        "  ✗   2  raised: ValueError: cannot clip [3.0]",
        "  ✗   1  raised: TypeError: no",
        "  and 1 more kind",
    ]
    mostly = screen(of(*raised[:1], failure("E4", "hung"), failure("H1", "garbage")))
    assert mostly[1] == "✗ my_clip does not conform: of 3 claimed cases 3 fail."


def printed(of: View, **options: bool) -> str:
    stream = io.StringIO()
    show(of, stream, **options)
    return stream.getvalue()


def test_only_a_long_report_is_cut_and_all_and_verbose_show_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long, short = large(1, 60, "fail"), large(1, 1, "fail")
    assert printed(short) == printed(short, complete=True) == "".join(f"{line}\n" for line, _ in lines(short))
    assert printed(long) == "".join(f"{line}\n" for line in screen(long))
    assert printed(long, complete=True) == "".join(f"{line}\n" for line, _ in lines(long))
    assert printed(long, verbose=True) == "".join(f"{line}\n" for line, _ in lines(long, verbose=True))
