"""The suite catches every mutant, an implementation with one mistake, and every check catches at least one mutant."""

from __future__ import annotations

import dataclasses
import functools
import zlib

import pytest
from conformance.mutants import coefficients, containers, norms, transforms
from conformance.mutants.reference import Reference
from conformance.mutants.registry import MUTANTS

from gradclip.conformance.cases import Case, plan
from gradclip.conformance.checks import CHECKS
from gradclip.conformance.engine import new_report, run_plan
from gradclip.conformance.result import Result
from gradclip.conformance.target import OPERATIONS

FILES = (coefficients, norms, containers, transforms)  # each module registers its mutants on import
NAMES = [kind.__name__ for kind in MUTANTS]
PLAN = plan()


@functools.cache
def results(kind: type[Reference], operation: str, large_vectors: bool = True) -> list[Result]:
    """Return the results of one target for one operation."""
    cases = [case for case in PLAN.cases if case.operation == operation]
    if not large_vectors:
        cases = [case for case in cases if case.kind == "check" or "large" not in case.needs]
    return _run(kind, (operation,), cases)


@functools.cache
def of_mutant(kind: type[Reference]) -> list[Result]:
    """Return the results for all operations of a mutant: of every check, and of a third of the vectors, its own.

    One that these do not catch is tried on all.
    """
    known = [case for case in PLAN.cases if case.operation in kind.operations]
    drawn = [case for case in known if case.kind == "check" or _number(f"{kind.__name__} {case.id}") % 3 == 0]
    found = _run(kind, kind.operations, drawn)
    return found if any(map(_is_caught, found)) else _run(kind, kind.operations, known)


def _number(text: str) -> int:
    return zlib.crc32(text.encode())


def _run(kind: type[Reference], operations: tuple[str, ...], cases: list[Case]) -> list[Result]:
    made = dataclasses.replace(PLAN, cases=cases, operations=list(operations))
    return list(run_plan(kind(), made, {}, new_report(made)))


def _is_caught(result: Result) -> bool:
    return result.status == "fail" and result.reason != "malformed"


def caught(kind: type[Reference]) -> list[Result]:
    return list(filter(_is_caught, of_mutant(kind)))


def by_checks(kind: type[Reference]) -> set[str]:
    """Return the checks that found the mistake itself; a check that failed with an exception does not count."""
    return {result.case.partition("/")[2] for result in caught(kind) if result.kind == "check" and not result.reason}


# ---- the reference ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_right_implementation_passes(operation: str) -> None:
    # the large vectors take most of the time, and are the same few arrays for every norm: one operation is enough
    found = results(Reference, operation, large_vectors=operation == "torch.clip_grad_norm_")
    assert [f"{result.case}: {result.message}" for result in found if result.status not in ("pass", "unclaimed")] == []
    assert sum(result.status == "pass" for result in found) > 4 * sum(result.status == "unclaimed" for result in found)


def test_the_reference_claims_every_operation_and_tries_every_check() -> None:
    tried = {result.case.partition("/")[2] for name in OPERATIONS for result in _passed(name) if result.kind == "check"}
    assert tried == set(CHECKS)


def _passed(operation: str) -> list[Result]:
    found = results(Reference, operation, large_vectors=operation == "torch.clip_grad_norm_")
    return [result for result in found if result.status == "pass"]


# ---- the mutants ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MUTANTS, ids=NAMES)
def test_a_mutant_is_caught(kind: type[Reference]) -> None:
    assert caught(kind), f"{kind.__name__} ({kind.__doc__}) passes all {len(of_mutant(kind))} cases"


@pytest.mark.parametrize("kind", MUTANTS, ids=NAMES)
def test_a_mutant_is_wrong_in_one_thing(kind: type[Reference]) -> None:
    """A mutant that fails everywhere would prove nothing about the checks."""
    tried = [result for result in of_mutant(kind) if result.status != "unclaimed"]
    assert sum(result.status == "pass" for result in tried) > len(tried) / 4


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_catches_a_mutant(name: str) -> None:
    assert any(name in by_checks(kind) for kind in MUTANTS), f"no mutant is caught by {name}"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_vectors_of_an_operation_catch_a_mutant(operation: str) -> None:
    of_operation = [result for kind in MUTANTS for result in caught(kind) if result.operation == operation]
    assert any(result.kind == "vector" for result in of_operation)


def test_there_are_mutants_of_every_operation() -> None:
    assert {operation for kind in MUTANTS for operation in kind.operations} == set(OPERATIONS)
    assert len(set(NAMES)) == len(NAMES) >= 25
    assert all(kind.__doc__ for kind in MUTANTS)


def test_print_the_kill_table() -> None:
    """``pytest -s`` prints for each mutant how many vectors catch it, and which checks."""
    width = max(map(len, NAMES))
    print(f"\n{'mutant':{width}}  vectors  checks")
    for kind in MUTANTS:
        vectors = sum(result.kind == "vector" for result in caught(kind))
        names = sorted({result.case.partition("/")[2] for result in caught(kind) if result.kind == "check"})
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        print(f"{kind.__name__:{width}}  {vectors:7}  {shown or '-'}")
        print(f"{'':{width}}           ({kind.__doc__})")
    survivors = [kind.__name__ for kind in MUTANTS if not caught(kind)]
    idle = sorted(set(CHECKS) - {name for kind in MUTANTS for name in by_checks(kind)})
    print(f"{len(MUTANTS)} mutants, {len(survivors)} survive; {len(CHECKS)} checks, {len(idle)} catch none")
    assert (survivors, idle) == ([], [])
