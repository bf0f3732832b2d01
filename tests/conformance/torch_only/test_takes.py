"""Functions that take parameters, and copies of torch's own."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
import torch

from gradclip.conformance import check_target, function_target, native_target
from gradclip.conformance.declared import shipped_xfails

NORM, VALUE = "torch.clip_grad_norm_", "torch.clip_grad_value_"


def failed(target: Any, operation: str, **options: Any) -> list[str]:
    report = check_target(target, dialects=[operation], **options)
    assert any(result.status == "pass" for result in report.results)
    return [result.case for result in report.results if result.status == "fail"]


@pytest.mark.parametrize("operation", [NORM, VALUE])
def test_torchs_own_function_is_handed_parameters(operation: str) -> None:
    function = getattr(torch.nn.utils, operation.partition(".")[2])
    target = function_target(function, operation, "torch")
    declared = [case for cases in shipped_xfails().values() for case in cases]
    assert "in place" in target.claims[operation]
    assert ("norm" in target.claims[operation]) is (operation == NORM)
    told = check_target(target, dialects=[operation])
    assert told.conformant
    for case in (result.case for result in told.results if result.status == "native"):
        assert any(fnmatch.fnmatchcase(case, pattern) for pattern in declared), case
    assert failed(target, operation, like="native:torch") == []


@torch.no_grad()
def my_copy(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> torch.Tensor:
    grads = [p.grad for p in parameters if p.grad is not None]
    if not grads:
        return torch.tensor(0.0)
    total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, float(norm_type))), float(norm_type))
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError("the norm is not finite")
    torch._foreach_mul_(grads, torch.clamp(max_norm / (total + 1e-6), max=1.0))
    return total


def without_epsilon(parameters: Any, max_norm: float) -> torch.Tensor:
    grads = [p.grad for p in parameters if p.grad is not None]
    total = torch.linalg.vector_norm(torch.stack([grad.norm() for grad in grads]))
    for grad in grads:
        grad.mul_(torch.clamp(max_norm / total, max=1.0))
    return total


def test_a_faithful_copy_passes_as_the_native_does() -> None:
    assert failed(function_target(my_copy, NORM, "torch"), NORM, like="native:torch") == []


def test_a_right_clip_conforms_where_gradclip_departs() -> None:
    report = check_target(function_target(my_copy, NORM, "torch"), dialects=[NORM])
    assert report.conformant
    natives = {result.case.partition("/")[2] for result in report.results if result.status == "native"}
    assert {"D7", "D8", "infinite_limit_nonfinite", "negative_limit"} <= natives


def test_where_gradclip_departs_a_third_outcome_is_wrong() -> None:
    def zeros(parameters: Any, max_norm: float) -> torch.Tensor:
        norm = my_copy(parameters, max_norm)
        for p in parameters:
            p.grad.nan_to_num_()
        return norm

    assert f"{NORM}/D7" in failed(function_target(zeros, NORM, "torch"), NORM)


def test_gradclip_itself_is_right_only_as_it_departs() -> None:
    native = native_target("torch")
    assert native.strict
    assert f"{NORM}/D7" in failed(native, NORM, select="*/D*")


def test_a_copy_without_the_epsilon_does_not() -> None:
    assert failed(function_target(without_epsilon, NORM, "torch"), NORM, like="native:torch") != []


@pytest.mark.parametrize("first", ["grads", "gradients", "tensors"])
def test_the_first_argument_says_what_is_taken(first: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def clip({first}, clip_value):\n    return [g.clamp(-clip_value, clip_value) for g in {first}]", scope)
    target = function_target(scope["clip"], VALUE, "torch")
    assert failed(target, VALUE, select="*/all-clipped") == []


def test_what_is_taken_can_be_said() -> None:
    def clip(them: Any, clip_value: float) -> list[torch.Tensor]:
        return [them_.clamp(-clip_value, clip_value) for them_ in them]

    assert failed(function_target(clip, VALUE, "torch", takes="gradients"), VALUE, select="*/all-clipped") == []

    def over(them: Any, clip_value: float) -> None:
        for one in them:
            one.grad.clamp_(-clip_value, clip_value)

    assert failed(function_target(over, VALUE, "torch", takes="parameters"), VALUE, select="*/all-clipped") == []
