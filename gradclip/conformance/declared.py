"""Expected failures: the cases that a target is known to fail, with reasons. A declared case that passes is an error."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from gradclip.core.errors import ArgumentError, shown

__all__ = ["check_cases", "check_targets", "read_xfails", "reasons_of", "shipped_xfails", "xfails_of_run"]

_FORM = '{"torch *": {"torch.clip_grad_norm_/E2": "the reason"}}.'
Xfails = Mapping[str, Mapping[str, str]]  #: pattern of target names -> pattern of case ids -> reason


def reasons_of(xfails: Xfails, target: str, known: list[str]) -> dict[str, str]:
    """Case -> the reason for the target's known failure of it.

    Raises:
        ValueError: for a case that does not exist.
    """
    found: dict[str, str] = {}
    for pattern, cases in xfails.items():
        if fnmatch.fnmatchcase(target, pattern):
            for case, reason in cases.items():
                found.update(dict.fromkeys(_matching(case, pattern, known), reason))
    return found


def _matching(case: str, target: str, known: list[str]) -> list[str]:
    """The cases that a pattern names."""
    ids = [case] if case in known else fnmatch.filter(known, case)
    if not ids:
        what = "An expected failure names a case that does not exist."
        raise ArgumentError(what, f"{shown(case)} of {shown(target)}", "gradclip conformance --list shows all cases.")
    return ids


def check_cases(xfails: Xfails, known: list[str]) -> None:
    """Check that each case exists, also for targets that are not tested.

    Raises:
        ValueError: for a case that does not exist.
    """
    for target, cases in xfails.items():
        for case in cases:
            _matching(case, target, known)


def check_targets(xfails: Xfails, names: Iterable[str]) -> None:
    """Check that each pattern of targets matches one that was tested: a misspelt one would expect nothing.

    Raises:
        ValueError: for a pattern that matches none.
    """
    names = list(names)
    for pattern in xfails:
        if not fnmatch.filter(names, pattern) and pattern not in names:
            what = "An expected failure names a target that is not tested."
            raise ArgumentError(what, shown(pattern), f"the targets are {', '.join(names)}.")


def read_xfails(path: str | Path) -> dict[str, dict[str, str]]:
    """Read a file of expected failures: JSON, ``{"pattern of targets": {"pattern of cases": "reason"}}``.

    Raises:
        ValueError: for a file of another form.
    """
    what = "This is not a file of expected failures."
    if not Path(path).is_file():  # each target's process reads it, and a pipe can be read once
        raise ArgumentError(what, f"{shown(str(path))}: not a file", _FORM)
    try:
        return _checked(json.loads(Path(path).read_text(encoding="utf-8")), str(path))
    except RecursionError:
        raise ArgumentError(what, f"{shown(str(path))}: nested too deeply", _FORM) from None
    except ArgumentError:
        raise
    except ValueError as error:  # not JSON, not UTF-8, or a number of more than 4300 digits
        raise ArgumentError(what, f"{shown(str(path))}: {str(error).partition(';')[0]}", _FORM) from None


def shipped_xfails() -> dict[str, dict[str, str]]:
    """The known failures of the natives: where they depart from their own documentation."""
    folder = resources.files("gradclip.conformance").joinpath("xfails")
    found: dict[str, dict[str, str]] = {}
    files = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    for file in files:
        if file.name.endswith(".json"):
            for target, cases in _checked(json.loads(file.read_text(encoding="utf-8")), file.name).items():
                found.setdefault(target, {}).update(cases)
    return found


def xfails_of_run(shipped: bool, path: str | Path | None) -> dict[str, dict[str, str]]:
    """The failures of a file, and with ``shipped`` those of the natives; the file's reason overrides."""
    found = shipped_xfails() if shipped else {}
    for target, cases in (read_xfails(path) if path else {}).items():
        found[target] = {**found.get(target, {}), **cases}
    return found


def _checked(xfails: Any, name: str) -> dict[str, dict[str, str]]:
    what = "This is not a file of expected failures."
    if not isinstance(xfails, dict):
        raise ArgumentError(what, name, _FORM)
    for target, cases in xfails.items():
        if not isinstance(cases, dict):
            raise ArgumentError(what, f"{name}: {shown(target)}", _FORM)
        for case, reason in cases.items():
            if not isinstance(reason, str) or not reason.strip():
                raise ArgumentError("An expected failure needs a reason.", f"{name}: {shown(target)}: {shown(case)}", _FORM)
    return xfails
