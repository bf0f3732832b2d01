"""The engine: whatever a target is or does, the report says so and the run continues."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from gradclip.conformance import Report, Result, check_target, function_target
from gradclip.conformance.array import DTYPES, Array, number_from_json, number_to_json, rounded, spacing
from gradclip.conformance.cases import plan
from gradclip.conformance.compare import Outcome, compare, compare_any, compare_arrays, ulps
from gradclip.conformance.load import SHIPPED, load_vectors
from gradclip.conformance.target import OPERATIONS
from gradclip.errors import ArgumentError, GradclipError

CLIP, NORM = "optax.clip", "optax.clip_by_global_norm"
PLAIN = ("float32", "several", "functional")


def clip(grads: Any, max_delta: float) -> list[Any]:
    if not max_delta >= 0:
        raise ValueError("a negative limit")
    return [np.clip(g, -np.float32(min(max_delta, 3e38)), np.float32(min(max_delta, 3e38))) for g in grads]


def run(
    function: Callable[..., Any], select: str | list[str] = f"{CLIP}/both-sides", operation: str = CLIP, **options: Any
) -> Report:
    claims, in_place = options.pop("claims", PLAIN), options.pop("in_place", False)
    return check_target(function_target(function, operation, claims=claims, in_place=in_place), select=select, **options)


def only(report: Report) -> Result:
    (result,) = report.results
    return result


# ---- the outcome of a case --------------------------------------------------------------------------------------------------


def test_a_pass() -> None:
    report = run(clip)
    result = only(report)
    assert (result.status, result.reason, result.message) == ("pass", "", "")
    assert (result.case, result.kind, result.target) == (f"{CLIP}/both-sides", "vector", "clip")
    assert report.conformant
    assert report.targets["clip"]["versions"] == {"numpy": np.__version__}
    assert report.vector_versions[CLIP]


def test_a_difference_is_told_in_ulp() -> None:
    result = only(run(lambda grads, max_delta: [g * 2 for g in clip(grads, max_delta)]))
    assert (result.status, result.reason) == ("fail", "")
    assert result.ulps == 2**23
    assert "gradient 0[0] is 2.0, not 1.0, 8.389e+06 ulp away" in result.message
    assert result.expected[0]["gradients"][0]["values"][:2] == ["0x1p+0", "-0x1p+0"]
    assert result.got["gradients"][0]["values"][:2] == ["0x1p+1", "-0x1p+1"]


def test_what_is_not_claimed_is_not_tried() -> None:
    def never(grads: Any, max_delta: float) -> None:
        raise AssertionError("it was tried")

    report = run(never, f"{CLIP}/*float16*")
    assert {result.status for result in report.results} == {"unclaimed"}
    assert all("float16" in result.message for result in report.results)
    assert not report.conformant  # no case passed


def test_operations_that_are_not_claimed_are_counted() -> None:
    report = check_target(function_target(clip, CLIP), select="*/unclipped_identity")
    assert {result.operation for result in report.results} == set(OPERATIONS)
    assert [result.operation for result in report.results if result.status != "unclaimed"] == [CLIP]
    assert report.counts("clip")["unclaimed"] == len(OPERATIONS) - 1


def test_raising() -> None:
    def raises(grads: Any, max_delta: float) -> None:
        raise RuntimeError("no\nclip today")

    result = only(run(raises))
    assert (result.status, result.reason) == ("fail", "raised")
    assert "RuntimeError: no clip today" in result.message
    assert result.got == {"error": "RuntimeError: no clip today"}


def test_an_attempt_to_exit_is_an_exception() -> None:
    def leaves(grads: Any, max_delta: float) -> None:
        raise SystemExit(3)

    assert only(run(leaves)).reason == "raised"
    checks = [result for result in run(leaves, f"{CLIP}/*").results if result.kind == "check" and result.status == "fail"]
    assert checks
    assert all(result.reason == "raised" for result in checks if "SystemExit" in result.message)


def test_an_error_that_is_expected_is_a_pass() -> None:
    assert only(run(clip, f"{CLIP}/limit-negative")).status == "pass"
    accepts = only(run(lambda grads, max_delta: grads, f"{CLIP}/limit-negative"))
    assert (accepts.status, accepts.reason) == ("fail", "")
    assert "no error" in accepts.message


def test_an_error_must_leave_the_gradients_alone() -> None:
    def spoils(grads: Any, max_delta: float) -> None:
        grads[0][...] = 0
        raise ValueError

    assert "a call that failed changed it" in only(run(spoils, f"{CLIP}/limit-negative")).message


def test_hanging() -> None:
    over = threading.Event()

    def hangs(grads: Any, max_delta: float) -> Any:
        if max_delta == 1.0:
            over.wait(60)
        return clip(grads, max_delta)

    report = run(hangs, [f"{CLIP}/both-sides", f"{CLIP}/nan", f"{CLIP}/limit-*"], seconds=0.3)
    over.set()
    reasons = {result.case: result.reason for result in report.results if result.status != "unclaimed"}
    assert reasons[f"{CLIP}/both-sides"] == "hung"
    assert "within 0.3 seconds" in next(result.message for result in report.results if result.reason == "hung")
    assert "" in reasons.values(), "no case ran after it"


GARBAGE: dict[str, tuple[Any, str]] = {
    "nothing": (None, "must return a list"),
    "text": ("clipped", "must return a list"),
    "numbers of text": (["clipped"], "cannot be read|must return numbers"),
    "objects": ([object()], "cannot be read|must return numbers"),
    "a number": (3.0, "must return a list"),
}


@pytest.mark.parametrize("returned", GARBAGE)
def test_garbage(returned: str) -> None:
    what, words = GARBAGE[returned]
    result = only(run(lambda grads, max_delta: what))
    assert (result.status, result.reason) == ("fail", "garbage")
    assert any(word in result.message for word in words.split("|"))


def test_a_norm_that_cannot_be_read() -> None:
    result = only(run(lambda grads, max_norm: (grads, object()), f"{NORM}/A1", NORM))
    assert result.reason == "garbage"
    assert "the norm" in result.message


def test_too_few_gradients() -> None:
    result = only(run(lambda grads, max_delta: clip(grads, max_delta)[:1], f"{CLIP}/several"))
    assert "1 gradients were returned, not 3" in result.message


def test_a_dtype_or_a_shape_that_changed() -> None:
    assert "is of float64, not of float32" in only(run(lambda g, max_delta: [x.astype("float64") for x in g])).message
    assert "is of shape [1, 8], not [8]" in only(run(lambda g, max_delta: [x[None] for x in clip(g, max_delta)])).message


def test_functional_and_in_place_are_verified() -> None:
    def in_place(grads: Any, max_delta: float) -> None:
        for g, clipped in zip(grads, clip(grads, max_delta), strict=True):
            g[...] = clipped

    both = ("float32", "several", "in place")
    assert only(run(in_place, in_place=True, claims=both)).status == "pass"
    assert "not clipped in place" in only(run(clip, in_place=True, claims=both)).message
    changed = only(run(lambda g, max_delta: in_place(g, max_delta) or list(g)))
    assert "though the target claims to be functional" in changed.message


def test_make_and_read_must_be_exact() -> None:
    target = function_target(clip, CLIP)
    target.read = lambda array: ([value / 3 for value in array.tolist()], array.shape, "float32")  # type: ignore[method-assign]
    result = only(check_target(target, select=f"{CLIP}/both-sides"))
    assert result.reason == "garbage"
    assert "read does not return the values" in result.message


def test_a_make_that_raises() -> None:
    target = function_target(clip, CLIP, claims=PLAIN)
    target.make = lambda values, shape, dtype: 1 / 0  # type: ignore[method-assign]
    assert only(check_target(target, select=f"{CLIP}/both-sides")).reason == "raised"


def test_iterators_are_iterators() -> None:
    operation, seen = "torch.clip_grad_norm_", set()

    def keeps(grads: Any, max_norm: float) -> Any:
        seen.add(isinstance(grads, Iterator))
        return list(grads)

    report = run(keeps, f"{operation}/*", operation, claims=(*PLAIN, "iterator", "none", "norm"))
    iterators = {f"{operation}/{vector.json['id']}" for vector in _vectors(operation) if vector.iterator}
    assert iterators & {result.case for result in report.results if result.status != "unclaimed"}
    assert seen == {True, False}


def _vectors(operation: str) -> Any:
    return next(file.vectors for file in load_vectors() if file.operation == operation)


# ---- plain functions --------------------------------------------------------------------------------------------------------


def test_a_plain_function_claims_what_it_can() -> None:
    def with_norm(grads: Any, max_norm: float, norm_type: float = 2.0) -> Any:
        return grads, np.float32(5)

    claims = function_target(with_norm, "torch.clip_grad_norm_").claims["torch.clip_grad_norm_"]
    assert claims == {"float32", "several", "functional", "norm", "norm_type"}
    assert function_target(clip, CLIP, in_place=True).claims[CLIP] == {"float32", "several", "in place"}


def test_arguments_go_by_name_or_in_order() -> None:
    seen: list[Any] = []
    named = function_target(lambda grads, max_norm, norm_type=2: seen.append((max_norm, norm_type)), "torch.clip_grad_norm_")
    named.run("torch.clip_grad_norm_", [], {"max_norm": 1.0, "norm_type": 3.0})
    other = function_target(lambda grads, limit, p=2: seen.append((limit, p)), "torch.clip_grad_norm_")
    other.run("torch.clip_grad_norm_", [], {"max_norm": 1.0, "norm_type": 3.0})
    anything = function_target(lambda grads, **given: seen.append(given), "torch.clip_grad_norm_")
    anything.run("torch.clip_grad_norm_", [], {"max_norm": 1.0})
    assert seen == [(1.0, 3.0), (1.0, 3.0), {"max_norm": 1.0}]


def test_functions_that_cannot_be_targets() -> None:
    with pytest.raises(ArgumentError, match=r"There is no operation of this name\.\nReceived: operation='clip'"):
        function_target(clip, "clip")
    with pytest.raises(GradclipError, match="must be callable"):
        function_target(3, CLIP)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"There are no arrays of this name\.\nReceived: arrays='lists'"):
        function_target(clip, CLIP, arrays="lists")


# ---- invalid targets --------------------------------------------------------------------------------------------------------


class Empty:
    name = "empty"
    claims: ClassVar[Any] = {CLIP: {"float32", "functional"}}

    def make(self, values: Any, shape: Any, dtype: str) -> Any:
        return np.array(values, dtype).reshape(shape)

    def read(self, array: Any) -> Any:
        return array.reshape(-1).tolist(), array.shape, str(array.dtype)

    def run(self, operation: str, gradients: Any, arguments: Any) -> Any:
        return clip(gradients, **arguments), None


def changed(**members: Any) -> Any:
    return type("Changed", (Empty,), members)()


class Refusing:
    name = "refusing"

    @property
    def claims(self) -> Any:
        raise RuntimeError("not today")


BROKEN: list[tuple[Any, str, str]] = [
    (None, "target/protocol", "claims cannot be read: AttributeError"),
    (object(), "target/protocol", "claims cannot be read: AttributeError"),
    (Refusing(), "target/protocol", "claims cannot be read: RuntimeError: not today"),
    (changed(claims=[CLIP]), "target/protocol", "must be a mapping"),
    (changed(run=None), "target/protocol", "has no method run"),
    (changed(make=3, read=None), "target/protocol", "has no method make; it has no method read"),
    (changed(name=""), "target/protocol", "its name must be text"),
    (changed(claims={"optax.clipp": {"float32"}}), "target/claims", "did you mean 'optax.clip'"),
    (changed(claims={CLIP: "float32"}), f"{CLIP}/claims", "must be a collection"),
    (changed(claims={CLIP: {"flaot32", "functional"}}), f"{CLIP}/claims", "did you mean 'float32'"),
    (changed(claims={CLIP: {"float32"}}), f"{CLIP}/claims", "one of 'in place' and 'functional'"),
    (changed(claims={CLIP: {"float32", "functional", "in place"}}), f"{CLIP}/claims", "one of 'in place' and 'functional'"),
    (changed(claims={CLIP: {"functional", "traced"}}), f"{CLIP}/claims", "has no method trace"),
    (changed(claims={CLIP: {"functional", "strided"}}), f"{CLIP}/claims", "has no method make_layout"),
]


@pytest.mark.parametrize(("target", "case", "words"), BROKEN, ids=[words for _, _, words in BROKEN])
def test_what_is_no_target_is_reported(target: Any, case: str, words: str) -> None:
    report = check_target(target, dialects=[CLIP])
    wrong = [result for result in report.results if result.status == "fail"]
    assert [(result.case, result.reason) for result in wrong] == [(case, "malformed")]
    assert words in wrong[0].message
    assert not report.conformant


def test_one_malformed_claim_spares_the_others() -> None:
    target = changed(claims={CLIP: {"float32", "functional"}, NORM: {"float23"}})
    report = check_target(target, select="*/unclipped_identity")
    assert {result.case: result.status for result in report.results if result.status != "unclaimed"} == {
        f"{NORM}/claims": "fail",
        f"{CLIP}/unclipped_identity": "pass",
    }


def test_claims_that_hang() -> None:
    over = threading.Event()
    report = check_target(changed(claims=property(lambda self: over.wait(60))), dialects=[CLIP], seconds=0.2)
    over.set()
    assert "did not end within 0.2 seconds" in only(report).message


# ---- which cases ------------------------------------------------------------------------------------------------------------


def test_unknown_dialects() -> None:
    with pytest.raises(ArgumentError, match=r"There is no dialect or operation of this name\.\nReceived: dialect='tourch'"):
        check_target(function_target(clip, CLIP), dialects=["tourch"])


@pytest.mark.parametrize(("name", "operation"), [
    ("torch.clip_grad_norm", "torch.clip_grad_norm_"),
    ("pytorch.clip_grad_value", "torch.clip_grad_value_"),
    ("tf.clip_by_norm", "tensorflow.clip_by_norm"),
    ("paddle.clip_grad_by_global_norm", "paddle.ClipGradByGlobalNorm"),
])  # fmt: skip
def test_operations_by_the_names_of_their_rules(name: str, operation: str) -> None:
    assert {case.operation for case in plan([name]).cases} == {operation}
    assert set(function_target(clip, name).claims) == set(function_target(clip, operation).claims)


def test_operations_misspelt() -> None:
    with pytest.raises(ArgumentError, match=r"dialect='torch.clip_grad_nrom'\nHint: did you mean torch.clip_grad_norm_ or "):
        plan(["torch.clip_grad_nrom"])
    with pytest.raises(ArgumentError, match=r"operation='keras.clip_nrom'\nHint: did you mean keras.clipnorm or "):
        function_target(clip, "keras.clip_nrom")


def test_dialects_and_selections() -> None:
    assert {case.operation for case in plan(["keras"]).cases} == {"keras.clipnorm", "keras.global_clipnorm", "keras.clipvalue"}
    assert {case.operation for case in plan("optax.clip").cases} == {CLIP}
    assert [case.id for case in plan(select="optax.clip/both-sides").cases] == ["optax.clip/both-sides"]
    assert {case.name for case in plan(select=["*/E4", "*/E5"]).cases} == {"E4", "E5"}
    assert plan(select="no such case").cases == []


def test_the_order_is_always_the_same() -> None:
    assert [case.id for case in plan().cases] == [case.id for case in plan().cases] == plan().known
    assert len(set(plan().known)) == len(plan().known)
    operations = [case.operation for case in plan().cases]
    assert operations == sorted(operations, key=list(OPERATIONS).index)


def test_results_are_told_as_they_come() -> None:
    told: list[Result] = []
    report = run(clip, f"{CLIP}/limit*", on_result=told.append)
    assert told == report.results


# ---- vector files -----------------------------------------------------------------------------------------------------------


def test_a_vector_file_of_ones_own(tmp_path: Path) -> None:
    file = json.loads((SHIPPED / f"{CLIP}.json").read_text())
    file["vectors"] = file["vectors"][:2]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(file))
    report = run(clip, f"{CLIP}/*", vectors=path)
    assert [result.case for result in report.results if result.kind == "vector"] == [
        f"{CLIP}/{vector['id']}" for vector in file["vectors"]
    ]


@pytest.mark.parametrize("content", ["no json", "{}", '{"operation": "optax.clip", "vectors": [{"id": 3}]}'])
def test_a_vector_file_that_is_none_is_reported(tmp_path: Path, content: str) -> None:
    path = tmp_path / f"{CLIP}.json"
    path.write_text(content)
    report = run(clip, f"{CLIP}/*", vectors=path)
    wrong = [result for result in report.results if result.reason == "malformed"]
    assert wrong
    assert all(result.case == f"{CLIP}/vectors" and str(path) in result.message for result in wrong)
    assert any(result.kind == "check" and result.status == "pass" for result in report.results), "the other cases did not run"


# ---- expected failures ------------------------------------------------------------------------------------------------------


def keeps(grads: Any, max_delta: float) -> Any:
    return grads


def test_expected_failures_have_their_reason() -> None:
    report = run(keeps, xfails={"keep*": {f"{CLIP}/both-sides": "not written yet"}})
    assert only(report).status == "expected"
    assert only(report).message.startswith("not written yet: gradient 0[1] is -4.0, not -1.0")
    assert report.conformant


def test_expected_failures_are_strict() -> None:
    report = run(clip, xfails={"clip": {f"{CLIP}/both-sides": "it is said to fail"}})
    assert only(report).status == "unexpected"
    assert "it is said to fail" in only(report).message
    assert not report.conformant


def test_expected_failures_by_pattern_and_of_others(tmp_path: Path) -> None:
    assert only(run(keeps, xfails={"keeps": {"*/both-sides": "all of them"}})).status == "expected"
    assert only(run(keeps, xfails={"others": {"no such case": "not ours"}})).status == "fail"
    path = tmp_path / "xfails.json"
    path.write_text(json.dumps({"keeps": {f"{CLIP}/both-sides": "from a file"}}))
    assert only(run(keeps, xfails=path)).status == "expected"


def test_expected_failures_that_do_not_exist() -> None:
    with pytest.raises(ArgumentError, match=r"a case that does not exist\.\nReceived: 'optax\.clip/no-such' of 'k\*'"):
        run(keeps, xfails={"k*": {f"{CLIP}/no-such": "a slip"}})


@pytest.mark.parametrize("content", ["[]", '{"torch": []}', '{"torch": {"a": ""}}', '{"torch": {"a": 3}}', "{"])
def test_files_of_expected_failures_that_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "xfails.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"expected failure|Expecting"):
        run(keeps, xfails=path)


# ---- numbers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 10), ("bfloat16", 7), ("float32", 23), ("float64", 52)])
def test_ulps(dtype: str, digits: int) -> None:
    one = 2.0**-digits
    assert spacing(1.0, dtype) == one
    assert ulps(1 + 3 * one, 1.0, dtype) == 3
    assert ulps(1 - one, 1.0, dtype) == 1
    assert ulps(2 - one, 2.0, dtype) == 0.5, "the ulp is that of the expected number"
    assert ulps(-1.0, 1.0, dtype) == 2 / one
    assert ulps(float("inf"), 1.0, dtype) == ulps(1.0, float("nan"), dtype) == float("inf")
    assert ulps(float("-inf"), float("-inf"), dtype) == ulps(float("nan"), -float("nan"), dtype) == ulps(0.0, -0.0, dtype) == 0
    least = spacing(0.0, dtype)
    assert ulps(2 * least, 0.0, dtype) == 2
    assert rounded(1 + one / 2, dtype) == 1.0
    assert rounded(1 + 3 * one / 2, dtype) == 1 + 2 * one


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounded_is_numpys(dtype: str) -> None:
    values = [0.1, -3e-8, 65519.0, 65520.0, 1e30, 1e-45, 2e-46, 3.4028235677973366e38, 5e-324, 0.0, -0.0]
    with np.errstate(all="ignore"):
        expected = [float(np.array(value).astype(dtype)) for value in values]
    assert list(map(repr, expected)) == [repr(rounded(value, dtype)) for value in values]


def test_ulps_of_complex_numbers_and_integers() -> None:
    assert ulps(1 + 1j * (1 + 2**-22), 1 + 1j, "complex64") == 2
    assert ulps(2**60 + 1, 2**60, "int64") == float("inf")
    assert ulps(True, True, "bool") == 0


def test_bits() -> None:
    zero, negative = Array((0.0, 1.0), (2,), "float32"), Array((-0.0, 1.0), (2,), "float32")
    assert not compare_arrays(zero, zero, 0, "it")
    assert "the sign of the zero" in compare_arrays(zero, negative, 0, "it").message
    assert not compare_arrays(zero, negative, 1, "it")
    nan = Array((float("nan"), complex(0.0, float("nan"))), (2,), "complex64")
    assert not compare_arrays(nan, Array((-float("nan"), complex(0.0, -float("nan"))), (2,), "complex64"), 0, "it")


def test_the_nearest_outcome_counts() -> None:
    one, two = (Outcome((Array((value,), (), "float32"),)) for value in (1.0, 2.0))
    assert not compare_any(two, [one, two], 0)
    assert compare_any(Outcome((Array((1.9,), (), "float32"),)), [one, two], 4).ulps < 1e6
    assert compare(Outcome(error="ValueError"), one, 4).message == "raised ValueError"
    assert not compare(Outcome(error="ValueError: no"), Outcome(error="limit"), 4)


def test_norms() -> None:
    expected = Outcome((), Array((5.0,), (), "float32"))
    assert not compare(Outcome((), 5.0 + 1e-6), expected, 0), "a norm has a tolerance, and a Python number matches any dtype"
    assert "is 5.1" in compare(Outcome((), Array((5.1,), (), "float32")), expected, 4).message
    assert "of float64, not of float32" in compare(Outcome((), Array((5.0,), (), "float64")), expected, 4).message
    assert compare(Outcome((), None), expected, 4).message == "no norm was returned"
    assert not compare(Outcome((), None), expected, 4, norm=False)


@pytest.mark.parametrize("value", [0.0, -0.0, 3.0, -0.1, 5e-324, float("inf"), float("-inf"), 1 + 2j, 7, True])
def test_numbers_survive_json(value: Any) -> None:
    again = number_from_json(json.loads(json.dumps(number_to_json(value))))
    assert repr(again) == repr(value)


def test_arrays_survive_json() -> None:
    array = Array((1.0, 2.0), (1, 2), "float32", rows=(0,))
    assert Array.from_json(array.as_json()) == array
    assert array.as_json(1) == {**array.as_json(), "values": ["0x1p+0"], "total": 2}
    assert all(Array((), (0,), dtype).as_json()["dtype"] == dtype for dtype in DTYPES)


def test_reports_survive_json() -> None:
    report = run(keeps, f"{CLIP}/*")
    again = Report.from_json(json.loads(json.dumps(report.as_json(), allow_nan=False)))
    assert again.as_json() == report.as_json()
    assert again.results[0].needs == report.results[0].needs
