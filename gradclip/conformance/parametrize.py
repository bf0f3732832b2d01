"""The suite as pytest's tests: one for each case, with the case's name in reports. Needs pytest."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradclip.conformance.cases import Plan, plan
from gradclip.conformance.checks import CHECKS
from gradclip.conformance.declared import check_targets, read_xfails
from gradclip.conformance.engine import Session, new_report
from gradclip.conformance.like import as_native
from gradclip.conformance.load import VectorFile
from gradclip.conformance.protocol import name_of
from gradclip.conformance.report.text import describe
from gradclip.conformance.report.view import explained
from gradclip.conformance.result import Report, Result
from gradclip.core.errors import ArgumentError

__all__ = ["ConformanceCase", "NotConformant", "parametrize_with_checks"]

Xfails = Mapping[str, Mapping[str, str]]


class NotConformant(AssertionError):
    """A failed case, with the call, the expected outcome and the outcome."""


class ConformanceCase:
    """One case of one target.

    Attributes:
        id: its name, "torch.clip_grad_norm_/E4".
        result: the result of the run; None before.
        about: the report of its target without this result: the target's versions and its unclaimed cases. One for
            all cases of the target.
    """

    def __init__(self, id: str, run: Callable[[], Result], about: Report, files: Mapping[str, VectorFile]) -> None:
        self.id, self.about = id, about
        self.result: Result | None = None
        self._run, self._files = run, files

    def run(self, target: Any = None) -> None:
        """Run the case on its target.

        Raises:
            AssertionError: if it fails, as declared or not.
        """
        __tracebackhide__ = True
        self.result = self._run()
        if self.result.status in ("fail", "expected"):
            raise NotConformant(describe(explained(self.result, self._files.get(self.result.operation), CHECKS)))


def parametrize_with_checks(
    targets: Iterable[Any],
    *,
    dialects: Iterable[str] | None = None,
    select: str | Iterable[str] | None = None,
    xfails: Xfails | str | Path | None = None,
    seconds: float = 60.0,
    vectors: str | Path | None = None,
) -> pytest.MarkDecorator:
    """A decorator for a function of ``target`` and ``case``: it makes one test for each case that a target claims.

    Unclaimed cases make no test; the terminal summary counts them.

    Args:
        targets: see :class:`gradclip.conformance.Target`.
        dialects, select, xfails, seconds, vectors: as in :func:`gradclip.conformance.check_target`. Expected failures are
            strict: one that passes fails the test.

    Raises:
        ValueError: for a dialect or a declared case that does not exist, and if the targets claim none of the cases.

    >>> from gradclip.conformance import function_target, parametrize_with_checks
    >>> def no_clip(grads, max_delta):
    ...     return grads
    >>> @parametrize_with_checks([function_target(no_clip, "optax.clip")], xfails={"no_clip": {"optax.clip/*": "not yet"}})
    ... def test_conformance(target, case):
    ...     case.run(target)
    """
    targets = list(targets)
    names = [name_of(target) for target in targets]
    if len(set(names)) < len(names):  # a report distinguishes targets by their names
        raise ArgumentError("Two targets have the same name.", f"targets={', '.join(names)}", "function_target(..., name=...).")
    made = as_native(plan(dialects, select, vectors), None)
    declared = read_xfails(xfails) if isinstance(xfails, (str, Path)) else xfails or {}
    check_targets(declared, names)
    parameters = []
    for name, target in zip(names, targets, strict=True):
        session = Session(target, made, declared, seconds)
        for case in _cases(session, made):
            reason = session.declared.get(case.id)
            marks = () if reason is None else (pytest.mark.xfail(reason=reason, strict=True),)
            parameters.append(pytest.param(target, case, marks=marks, id=f"{name}-{case.id}" if targets[1:] else case.id))
    if not parameters:
        raise ArgumentError("The targets claim none of the selected cases.", f"targets={', '.join(names) or 'none'}")
    return pytest.mark.parametrize(("target", "case"), parameters)


def _cases(session: Session, made: Plan) -> Iterator[ConformanceCase]:
    """The target's own faults, then the cases that it claims."""
    about = new_report(made)
    about.targets[session.name] = {**session.described, "seconds": 0.0}
    for fault in session.faults:
        yield ConformanceCase(fault.case, functools.partial(dataclasses.replace, fault), about, made.files)
    for case in filter(session.can_run, made.cases):
        unclaimed = session.unclaimed(case)
        if unclaimed is None:
            yield ConformanceCase(case.id, functools.partial(session.run, case), about, made.files)
        else:
            about.results.append(unclaimed)
