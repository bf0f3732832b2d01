"""The engine: whatever a target is or does, the report says so and the run continues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from gradclip.conformance import Report, Result, check_target, function_target
from gradclip.conformance.load import load_vectors
from gradclip.conformance.target import OPERATIONS
from gradclip.core.errors import ArgumentError, GradclipError

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
    assert [one for one in seen if one == (1.0, 3.0)] == [(1.0, 3.0)] * 2  # the others are trials
    assert seen[-1] == {"max_norm": 1.0}


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
