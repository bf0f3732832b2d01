"""The report as text and as JSON, and its wording."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conformance.sample_report import CHECKS, FILES, NORM, report, sample

from gradclip.conformance import check_target, function_target
from gradclip.conformance.report import lay_out, schema, words, write_html, write_json
from gradclip.conformance.report.printed import show
from gradclip.conformance.report.text import describe, lines
from gradclip.conformance.report.view import explained, view
from gradclip.conformance.result import REASONS, STATUSES, Report, Result

# ---- text ---------------------------------------------------------------------------------------------------------------

EXPECTED = """\
gradclip conformance 1.0.0, vectors 1.0.0 (optax.clip 1.1.0)

What failed
  ✗   1  my_clip: not finite: NaN or infinity comes back where finite numbers
         are right.
  ✗   1  my_clip: zeros: Zeros come back.
  ✗   1  my_clip: raised: ValueError: <script>document.title =
         "pwned"</script>&amp;'"
  ✗   1  my_clip: order_invariance: The order of the gradients is of no effect.
  ✗   1  my_clip: hung: did not end within 5 seconds
  !   1  native:tensorflow: Gone: declared: it was once wrong

                                pass       fail   expected unexpected  unclaimed
gradclip:torch                     6          0          0          0          1
  torch 2.13.0, cpu, 1.2 s
my_clip                            1          5          0          0          0
  numpy 2.4.6, cpu, 1.2 s
native:tensorflow                  0          0          1          1          2
  torch 2.13.0, cpu, 1.2 s

✗ FAIL my_clip: torch.clip_grad_norm_/E4: a limit of infinity only measures
  called    torch.clip_grad_norm_([[3, inf] float32, None], max_norm=inf)
  expected  [3, inf], None, norm inf (float32)
  got       [nan, nan], None, norm inf (float32)
  found     gradient 0[0] is nan, not 3.0
  cause     NaN or infinity comes back where finite numbers are right.
  about     InfiniteLimit: A limit of infinity only measures.
  training  Every gradient becomes NaN with the first step, and every parameter
            with it.
  see       https://github.com/tensorflow/tensorflow/issues/109146
"""


def text(width: int = 80, verbose: bool = False, of: Report | None = None) -> str:
    shown = sample() if of is None else view(of, FILES, CHECKS)
    return "".join(f"{line}\n" for line, _ in lines(shown, width, verbose))


def test_the_text_begins_with_what_failed_and_explains_each_kind_of_failure() -> None:
    assert text()[: len(EXPECTED)] == EXPECTED


def alone(*statuses: str) -> Report:
    """Return a report of one target with a case of each of these statuses, from two operations."""
    names = [(operation, f"{operation}/{i}") for operation in (NORM, "optax.clip") for i in range(len(statuses))]
    cases = zip(names, 2 * statuses, strict=True)
    found = [Result("t", operation, case, "check", status, message="why") for (operation, case), status in cases]
    return dataclasses.replace(report(), targets={"t": {}}, results=found)


def test_of_one_target_every_operation_has_a_line_and_what_is_declared_is_there() -> None:
    shown = text(of=alone("pass", "expected", "pass"))
    lines_of_both = [line.split() for line in shown.splitlines() if line.startswith("~ ")]
    assert lines_of_both == [["~", NORM, "2", "0", "1", "0"], ["~", "optax.clip", "2", "0", "1", "0"]]
    assert "What is declared to fail, and does\n  ~   2  1: why\n" in shown
    assert "What failed" not in shown
    assert "optax.clip" not in text(of=dataclasses.replace(report(), results=[], targets={"t": {}})).partition("\n\n")[2]


def test_many_kinds_of_failures_are_counted() -> None:
    shown = text(of=alone(*["fail"] * 11))
    assert shown.index("and 3 more kinds\n") < shown.index("FAIL t: ")
    assert "✗   2  7: why\n" in shown


def test_the_text_ends_with_the_verdicts() -> None:
    assert text().endswith(
        "✓ gradclip:torch conforms: 6 cases claimed.\n"
        "✗ my_clip does not conform: of 6 claimed cases 5 fail.\n"
        "✗ native:tensorflow does not conform: of 2 claimed cases 1 pass that are\n"
        "  declared to fail.\n"
        "--verbose shows every case.\n"
    )


def test_without_verbose_a_case_of_each_kind_is_shown_and_the_others_are_named() -> None:
    same = next(one for one in report().results if one.target == "my_clip" and one.case.endswith("/H1"))
    again = dataclasses.replace(same, case=f"{NORM}/H2")
    of = dataclasses.replace(report(), results=[again if one.reason == "raised" else one for one in report().results])
    short, long = text(of=of), text(verbose=True, of=of)
    assert "/H2:" not in short
    assert "  also      H2\n" in short
    assert "torch.clip_grad_norm_/H2: squares that overflow, and" in long
    assert "~ EXPECTED" in long
    assert "~ EXPECTED" not in short
    assert "--verbose" not in long


def test_verbose_names_what_is_not_claimed_of_a_claimed_operation() -> None:
    results = [
        Result("t", "a.b", "a.b/1", "check", "pass"),
        Result("t", "a.b", "a.b/2", "check", "unclaimed", message="sparse"),
    ]
    shown = text(verbose=True, of=Report("1", {}, {}, results))
    assert "– UNCLAIMED t: a.b\n  needs     sparse: 2\n" in shown


def declared(*messages: str) -> Report:
    entry = {"flags": ("InfiniteLimit", "Overflow"), "got": {"error": "ValueError: no"}}
    return Report(
        "1",
        {},
        {},
        [Result("t", NORM, f"{NORM}/{i}", "vector", "expected", "", text, **entry) for i, text in enumerate(messages)],
    )


def test_what_is_declared_for_several_failures_is_said_once_with_the_flag_that_it_names() -> None:
    shown = text(verbose=True, of=declared("Overflow: too large: 0, not 1", "Overflow: too large: 0, not 2"))
    assert shown.count("declared  too large\n") == 1
    assert "found     0, not 1\n" in shown
    assert "InfiniteLimit" not in shown
    assert "found     Overflow: too large: 0, not 1\n" in text(verbose=True, of=declared("Overflow: too large: 0, not 1"))


def test_what_is_declared_without_a_flag_leaves_them_all() -> None:
    shown = text(verbose=True, of=declared("known: 0, not 1", "unlike it: 0, not 2"))
    assert "  declared  " not in shown
    assert shown.count("about     InfiniteLimit: ") == shown.count("about     Overflow: ") == 1


def test_what_a_flag_is_about_is_said_once() -> None:
    twice = [*report().results, *(dataclasses.replace(result, target="again") for result in report().results)]
    shown = text(of=dataclasses.replace(report(), results=twice))
    assert shown.count("with the first step, and every parameter") == 1
    assert shown.count("  about     InfiniteLimit\n") == 1


def test_what_was_raised_is_said_once() -> None:
    raised = Result(
        "t", NORM, f"{NORM}/A1", "vector", "fail", "raised", "raised ValueError: no", got={"error": "ValueError: no"}
    )
    shown = text(of=Report("1", {}, {}, [raised]))
    assert "  got       an error: ValueError: no\n" in shown
    assert "found" not in shown


@pytest.mark.parametrize("width", [60, 70, 80, 110])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_it_may_be_unless_it_is_a_link(width: int, verbose: bool) -> None:
    long = [line for line in text(width, verbose).splitlines() if len(line) > width]
    assert all(line.split()[0] == "see" for line in long), long


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (["pass", "pass"], "✓ t conforms: 2 cases claimed."),
        (["pass", "expected"], "✓ t conforms but for 1 declared failures: 2 cases claimed."),
        (["unclaimed"], "– t claims none of the selected cases."),
        (["pass", "fail", "unexpected"], "✗ t does not conform: of 3 claimed cases 1 fail, 1 pass that are declared to fail."),
    ],
)
def test_the_verdict(statuses: list[str], verdict: str) -> None:
    results = [Result("t", "a.b", f"a.b/{i}", "check", status) for i, status in enumerate(statuses)]
    assert verdict in text(200, of=Report("1", {}, {}, results))


def test_plain_lines_go_where_there_is_no_terminal_and_colour_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, coloured = io.StringIO(), Terminal()
    show(sample(), plain, complete=True)
    show(sample(), coloured)
    assert plain.getvalue() == text()
    assert "\x1b[" in coloured.getvalue()


def test_one_result_by_itself_is_described_for_a_test() -> None:
    failed = next(result for result in report().results if result.status == "fail")
    lines_of_it = describe(explained(failed, FILES[0], CHECKS)).splitlines()
    assert lines_of_it[0] == "a limit of infinity only measures"
    assert lines_of_it[1] == "  called    torch.clip_grad_norm_([[3, inf] float32, None], max_norm=inf)"
    assert lines_of_it[-1] == "  see       https://github.com/tensorflow/tensorflow/issues/109146"


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason])
def test_a_failure_without_words_says_its_reason(reason: str) -> None:
    assert REASONS[reason] in text(of=Report("1", {}, {}, [Result("t", "a.b", "a.b/1", "vector", "fail", reason)]))


# ---- words --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "shown"),
    [
        (0.1, "float64", "0.1"),
        (float.fromhex("0x1.99999ap-4"), "float32", "0.1"),
        (float.fromhex("0x1.99999ap-4"), "float64", "0.10000000149011612"),
        (float.fromhex("0x1.998p-4"), "float16", "0.1"),
        (float.fromhex("0x1.9ap-4"), "bfloat16", "0.1"),
        (10.0, "float32", "10"),
        (1e-7, "float64", "1e-7"),
        (float.fromhex("0x1.fffffep+127"), "float32", "3.4028235e38"),
        (5e-324, "float64", "5e-324"),
        (-0.0, "float32", "-0"),
        (math.inf, "float32", "inf"),
        (0.1, "float32", "0.1"),  # no number of the dtype: shown as Python writes it
    ],
)
def test_a_number_has_the_digits_of_its_dtype(value: float, dtype: str, shown: str) -> None:
    assert words.number(value.hex(), dtype) == shown


F = "float32"


@pytest.mark.parametrize(
    ("json", "shown"),
    [
        ({"dtype": F, "shape": [], "values": ["0x1p+0"]}, "1"),
        ({"dtype": F, "shape": [0], "values": []}, "[]"),
        ({"dtype": F, "shape": [2, 0], "values": []}, "[] of shape (2, 0)"),
        ({"dtype": F, "shape": [2, 1], "values": ["0x1p+0", "nan"]}, "[[1], [nan]]"),
        ({"dtype": "bool", "shape": [1], "values": [True]}, "[True]"),
        ({"dtype": "complex64", "shape": [1], "values": [["0x1p+0", "-0x1p+1"]]}, "[1-2j]"),
        ({"dtype": F, "shape": [3, 3], "values": ["0x1p+0"] * 9}, "[1, 1, 1, 1, 1, 1, 1, 1, …] (9 values, shape (3, 3))"),
        ({"dtype": F, "shape": [99], "values": ["0x1p+0"] * 2, "total": 99}, "[1, 1, …] (99 values)"),
        ({"dtype": F, "shape": [2, 3], "fill": "0x1p+0"}, "6 × 1 of shape (2, 3)"),
        ({"dtype": F, "shape": [2], "values": ["0x1p+0"] * 2, "layout": "strided"}, "[1, 1] strided"),
        (
            {"dtype": F, "shape": [4, 2], "rows": [0, 2], "values": ["0x1p+0"] * 4},
            "sparse, shape (4, 2), rows [0, 2]: [[1, 1], [1, 1]]",
        ),
        ({"dtype": "object", "shape": [], "values": ["<object>"]}, "<object>"),
    ],
)
def test_an_array(json: dict[str, Any], shown: str) -> None:
    assert words.array(json) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"float": "0x1p-1"}, "0.5"),
        ({"int": 2}, "2"),
        ({"bool": True}, "True"),
        ({"string": "inf"}, "'inf'"),
        ({"ints": [0, 1]}, "[0, 1]"),
        (None, "None"),
        ({"numpy": "float64", "value": "0x1p+0"}, "numpy.float64(1)"),
        ({"array": {"dtype": F, "shape": [], "values": ["0x1p+0"]}}, "array(1 float32)"),
    ],
)
def test_an_argument(value: Any, shown: str) -> None:
    assert (
        words.call("x.f", {"gradients": [None], "iterator": True, "arguments": {"a": value}}) == f"x.f(iter([None]), a={shown})"
    )


def test_parameters_are_shown() -> None:
    one = {"dtype": F, "shape": [1], "values": ["0x1p+0"]}
    vector = {"gradients": [one], "parameters": [one, None], "arguments": {}}
    assert words.call("x.f", vector) == "x.f([[1] float32], parameters=[[1] float32, None])"


@pytest.mark.parametrize(
    ("json", "shown"),
    [
        (None, "nothing"),
        ({"error": "limit"}, "an error (limit)"),
        ({"error": "ValueError: no"}, "an error: ValueError: no"),
        ({"gradients": [], "norm": None}, "no gradients"),
        ({"gradients": [None], "norm": {"dtype": "", "value": "0x1p+0"}}, "None, norm 1"),
        ({"anything": 1}, '{"anything": 1}'),
        ("x" * 400, "x" * 300 + "…"),
    ],
)
def test_an_outcome(json: Any, shown: str) -> None:
    assert words.outcome(json) == shown


# ---- JSON ---------------------------------------------------------------------------------------------------------------


def problems(json_report: Any) -> list[str]:
    jsonschema.Draft202012Validator.check_schema(schema())
    return [error.message for error in jsonschema.Draft202012Validator(schema()).iter_errors(json_report)]


def no_clip(grads: list[Any], max_delta: float) -> list[Any]:
    return grads


def test_json_is_as_the_schema_says_and_reads_back(tmp_path: Path) -> None:
    for made in (report(), check_target(function_target(no_clip, "optax.clip"), dialects=["optax.clip"])):
        write_json(made, tmp_path / "report.json")
        found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert problems(found) == []
        again = Report.from_json(found)
        assert again.as_json() == found
        assert [result.case for result in again.results] == [result.case for result in made.results]
        assert again.counts()["fail"] > 0


def test_the_schema_has_the_statuses_and_reasons_of_the_suite() -> None:
    definitions = schema()["$defs"]
    assert definitions["status"]["enum"] == list(STATUSES)
    assert definitions["result"]["properties"]["reason"]["enum"] == list(REASONS)
    assert definitions["result"]["required"] == [field.name for field in dataclasses.fields(Result)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", "skipped"),
        ("ulps", -1.0),
        ("got", {"gradients": [{"dtype": F, "shape": [1], "values": ["1.5"]}], "norm": None}),
        ("got", {"norm": None}),
        ("expected", []),
        ("needs", "float32"),
    ],
)
def test_the_schema_refuses(key: str, value: Any) -> None:
    json_report = report().as_json()
    json_report["results"][0][key] = value
    assert problems(json_report) != []


def test_a_real_run_is_shown_in_every_form(tmp_path: Path) -> None:
    made = check_target(function_target(no_clip, "optax.clip"), dialects=["optax"])
    shown = lay_out(made)
    write_html(shown, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    plain = "\n".join(line for line, _ in lines(shown))
    called = next(case.call for cell in shown.cells.values() for group in cell.groups for case in group.cases if case.call)
    assert called.partition("(")[0] == "optax.clip"
    for form in (page, plain):
        assert "no_clip" in form
        assert called[:40] in form
        assert f"{made.counts()['unclaimed']:,}" in form
