"""Run the cases on a target: a case is unclaimed, passes, fails, or fails as declared."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradclip
from gradclip.conformance.cases import Case, Plan, plan
from gradclip.conformance.checks import Bench, Mismatch
from gradclip.conformance.declared import read_xfails, reasons_of
from gradclip.conformance.like import as_native
from gradclip.conformance.protocol import claims_of, described, faults_of_claims, faults_of_target, name_of
from gradclip.conformance.result import Report, Result
from gradclip.conformance.timed import Hung, Timed
from gradclip.conformance.vector import MOST, Finding, Garbage, run_vector, words_of

__all__ = ["Session", "check_target", "failed", "judged", "new_report", "run_plan", "unclaimed"]


def check_target(
    target: Any,
    *,
    dialects: Iterable[str] | None = None,
    select: str | Iterable[str] | None = None,
    xfails: Mapping[str, Mapping[str, str]] | str | Path | None = None,
    seconds: float = 60.0,
    vectors: str | Path | None = None,
    like: str | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> Report:
    """Test a target in this process.

    Args:
        target: see :class:`gradclip.conformance.Target`.
        dialects: only these dialects ("torch") or operations ("torch.clip_grad_norm_").
        select: only the cases whose id matches one of these patterns ("torch.*/E*").
        xfails: the known failures: ``{"pattern of target names": {"pattern of case ids": "reason"}}``, or a JSON file of them.
            A case that does not exist is an error, and one that passes makes the target not conformant.
        seconds: the time limit of a case.
        vectors: a vector file, or a folder of them, instead of the suite's own; they are checked
            against their schema, which needs jsonschema.
        like: "native:torch", for a copy of another native than the one of its name: its outcome is right too where gradclip
            departs from it.
        on_result: called with every result.

    Returns:
        The report. A target's mistakes are in it and raise nothing.

    Raises:
        ValueError: for a dialect or a declared case that does not exist.

    >>> import numpy as np
    >>> from gradclip.conformance import check_target, function_target
    >>> def halved(grads, max_delta):
    ...     return [g / 2 for g in grads]
    >>> report = check_target(function_target(halved, "optax.clip"), select="optax.clip/all-clipped")
    >>> report.conformant, report.results[0].message.partition(",")[0]
    (False, 'gradient 0[3] is -3.5')
    """
    made = as_native(plan(dialects, select, vectors), like)
    declared = read_xfails(xfails) if isinstance(xfails, (str, Path)) else xfails or {}
    report = new_report(made)
    for result in run_plan(target, made, declared, report, seconds):
        if on_result is not None:
            on_result(result)
    return report


def new_report(made: Plan) -> Report:
    """A report without results."""
    versions = {operation: made.files[operation].version for operation in made.operations if operation in made.files}
    return Report(gradclip.__version__, versions, {})


def run_plan(
    target: Any,
    made: Plan,
    xfails: Mapping[str, Mapping[str, str]],
    report: Report,
    seconds: float = 60.0,
    skip: int = 0,
    on_start: Callable[[int], None] = lambda index: None,
    hopeless: str = "",
) -> Iterator[Result]:
    """Run the cases of a plan, and add each result to the report as it is yielded.

    Args:
        skip: the number of cases that an earlier process ran; it also reported the target's faults.
        on_start: called with the index of each case before it runs.
        hopeless: why no more cases are tried.
    """
    begun, session = time.perf_counter(), Session(target, made, xfails, seconds)
    entry = report.targets[session.name] = {**session.described, "seconds": 0.0}

    def results() -> Iterator[Result]:
        if skip == 0 or not session.is_target:
            yield from session.faults
        for index, case in enumerate(made.cases):
            if index >= skip and session.can_run(case):
                on_start(index)
                yield session.unclaimed(case) or session.run(case, hopeless)

    for result in results():
        report.results.append(result)
        entry["seconds"] = time.perf_counter() - begun
        yield result
    session.close()


class Session:
    """One target under test.

    Attributes:
        name, described: the target's name; its versions and its device.
        is_target: whether it has the members of a target, and claims that can be read.
        faults: a result for each of its faults, and for each vector file that cannot be used.
        declared: case -> the reason for its expected failure.
    """

    def __init__(self, target: Any, made: Plan, xfails: Mapping[str, Mapping[str, str]], seconds: float = 60.0) -> None:
        self.name = name_of(target)
        self.declared = reasons_of(xfails, self.name, made.known)
        self.described: dict[str, Any] = {"versions": {}, "device": ""}
        self._target, self._timed = target, Timed(seconds)
        self._claims: dict[str, Any] = {}
        self._is_strict = getattr(target, "strict", False) is True
        faults: list[tuple[str, str]] = []
        try:
            self._claims = self._timed(lambda: claims_of(target))
            self.described = self._timed(lambda: described(target))
            faults = faults_of_claims(target, self._claims, made.operations)
            fault = faults_of_target(target)
        except Hung as error:
            fault = f"its claims {error}"
        except (Exception, SystemExit) as error:
            fault = f"its claims cannot be read: {words_of(error)}"
        self.is_target = not fault
        self._unusable = {operation for operation, _ in faults}
        self.faults = [failed(self.name, "target", "protocol", fault)] if fault else []
        if not fault:
            self.faults += [failed(self.name, operation, "vectors", message) for operation, message in made.broken]
            self.faults += [failed(self.name, operation, "claims", message) for operation, message in faults]

    def can_run(self, case: Case) -> bool:
        """Whether its claims about the case's operation are usable."""
        return self.is_target and case.operation not in self._unusable

    def unclaimed(self, case: Case) -> Result | None:
        """The result of a case that needs a feature which the target does not claim; None for a claimed one."""
        claims = frozenset(self._claims.get(case.operation, ()))
        missing = [need for need in case.needs if need not in claims] if claims else ["the operation"]
        return unclaimed(self.name, case, missing) if missing else None

    def run(self, case: Case, hopeless: str = "") -> Result:
        """Run a claimed case, or say why it is not tried."""
        if hopeless:
            return judged(self.name, case, Finding(hopeless, "crashed"), self.declared)
        begun, finding = time.perf_counter(), self._finding(case)
        if finding.message and finding.reason in ("", "raised") and case.of_native and not self._is_strict:
            again = self._finding(case.of_native)
            why = case.of_native.allowed if again.message else "as the native"
            finding = dataclasses.replace(finding, as_native=why)
        return judged(self.name, case, finding, self.declared, time.perf_counter() - begun)

    def _finding(self, case: Case) -> Finding:
        claims = frozenset(self._claims[case.operation])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings are not tested
            try:
                found: Finding = self._timed(lambda: _found(self._target, case, claims))
            except Hung as error:
                found = Finding(str(error), "hung")
        return found

    def close(self) -> None:
        """Let its thread end."""
        self._timed.close()


def unclaimed(name: str, case: Case, missing: Sequence[str]) -> Result:
    """The result of a case that needs features which the target does not claim."""
    return Result(name, case.operation, case.id, case.kind, "unclaimed", "", ", ".join(missing), case.needs, case.flags)


def _found(target: Any, case: Case, claims: frozenset[str]) -> Finding:
    try:
        if case.kind == "vector":
            return run_vector(target, case.content, claims)
        case.content.run(Bench(target, case.operation))
    except Mismatch as mismatch:
        expected = None if mismatch.expected is None else [mismatch.expected.as_json(MOST)]
        got = None if mismatch.got is None else mismatch.got.as_json(MOST)
        return Finding(str(mismatch) or "the property does not hold", "", got, mismatch.ulps, expected)
    except Garbage as garbage:
        return Finding(str(garbage), "garbage")
    except BaseException as error:  # in this thread an exit, an interrupt or a skip of pytest comes from the target
        return Finding(words_of(error), "raised")
    return Finding()


def judged(name: str, case: Case, finding: Finding, declared: Mapping[str, str], seconds: float = 0.0) -> Result:
    """The result of a case, with the declarations applied."""
    status, message, why = "fail" if finding.message else "pass", finding.message, declared.get(case.id)
    if why is not None:
        status = "expected" if message else "unexpected"
        message = f"{why}: {message}" if message else f"it passes, and was declared to fail: {why}"
    elif message and case.allowed:
        status, message = "expected", f"{case.allowed}: {message}"
    elif message and finding.as_native:
        status, message = "native", f"{finding.as_native}: {message}"
    return Result(
        target=name,
        operation=case.operation,
        case=case.id,
        kind=case.kind,
        status=status,
        reason=finding.reason,
        message=message,
        needs=case.needs,
        flags=case.flags,
        expected=finding.expected,
        got=finding.got,
        ulps=finding.ulps,
        seconds=seconds,
    )


def failed(target: str, operation: str, name: str, message: str) -> Result:
    """A result without a case: for a target or a file that cannot be used."""
    return Result(target, operation, f"{operation}/{name}", "check", "fail", "malformed", message)
