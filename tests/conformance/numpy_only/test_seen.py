"""The cause of a failure is read from its output; one exception that is nearly all is the verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradclip.conformance import Report, check_target, function_target
from gradclip.conformance.report import lay_out
from gradclip.conformance.report.text import lines

OPERATION = "optax.clip_by_global_norm"
SELECT = ["*/A[1-4]", "*/B[1-4]", "*/nine"]


def total(grads: Any) -> Any:
    return np.sqrt(sum(np.sum(g * g) for g in grads))


def scaled(grads: Any, factor: Any) -> list[Any]:
    return [(g * factor).astype(g.dtype) for g in grads]


def each(grads: Any, max_norm: Any) -> Any:
    return [g * np.float32(min(1, max_norm / max(total([g]), 1e-30))) for g in grads]


def squared(grads: Any, max_norm: Any) -> Any:
    norm = total(grads) ** 2
    return grads if norm <= max_norm else scaled(grads, max_norm / norm)


def always(grads: Any, max_norm: Any) -> Any:
    return scaled(grads, max_norm / max(total(grads), 1e-30))


def none(grads: Any, max_norm: Any) -> Any:
    return grads


def by_value(grads: Any, max_norm: Any) -> Any:
    return [np.clip(g, -max_norm / 2, max_norm / 2) for g in grads]


def other_sign(grads: Any, max_norm: Any) -> Any:
    norm = total(grads)
    return grads if norm <= max_norm else scaled(grads, -max_norm / norm)


def double(grads: Any, max_norm: Any) -> Any:
    return [g.astype(np.float64) for g in grads]


def changes(grads: Any, max_norm: Any) -> Any:
    norm = total(grads)
    for g in grads:
        g *= min(1, max_norm / max(norm, 1e-30))
    return [g.copy() for g in grads]


def report_of(function: Callable[..., Any], operation: str = OPERATION, select: Any = SELECT) -> Report:
    return check_target(function_target(function, operation), dialects=[operation], select=select)


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (each, "each by itself"),
        (squared, "wrong factor"),
        (always, "scaled up"),
        (none, "nothing scaled"),
        (by_value, "other direction"),
        (other_sign, "reversed"),
        (double, "other dtype"),
        (changes, "changed input"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_the_function_does_is_a_cause(function: Callable[..., Any], cause: str) -> None:
    kinds = lay_out(report_of(function)).kinds("fail")
    assert (cause,) in [kind.names for kind in kinds[:2]]  # the other: what is nearly right


def no_norm(grads: Any, max_norm: Any) -> Any:
    raise KeyError("limit")


def test_an_exception_that_is_nearly_all_is_said_once_and_is_the_verdict() -> None:
    report = report_of(no_norm, select=None)
    seen = lay_out(report)
    ((kind, *_), (cell, *_)) = seen.kinds("fail"), seen.cells.values()
    assert kind.names == ("raised",)
    assert kind.count == report.counts()["fail"] > 60
    assert len([group for group in seen.cells["no_norm", OPERATION].groups if group.status == "fail"]) == 1
    said = " ".join(line for line, _ in lines(seen, 110))
    assert f"✗ no_norm does not conform: it raises KeyError: 'limit' ({kind.count} of" in said
    assert cell.claimed >= kind.count


def test_an_exception_in_few_cases_is_not_the_verdict() -> None:
    def some(grads: Any, max_norm: Any) -> Any:
        if len(grads) > 1:
            raise TypeError("one only")
        return none(grads, max_norm)

    said = [line for line, _ in lines(lay_out(report_of(some)), 110)]
    assert any(line.startswith("✗ some does not conform: of ") for line in said)
    assert any("raised: TypeError: one only" in line for line in said)
