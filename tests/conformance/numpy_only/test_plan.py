"""Which cases run: dialects, selections, vector files, and cases that are expected to fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance.numpy_only.test_engine import CLIP, clip, only, run

from gradclip.conformance import Result, check_target, function_target
from gradclip.conformance.cases import plan
from gradclip.conformance.load import SHIPPED
from gradclip.conformance.target import OPERATIONS
from gradclip.core.errors import ArgumentError


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
