"""Expected failures: the cases that a target is known to fail, with reasons. A declared case that passes is an error."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from gradclip.errors import ArgumentError

__all__ = ["Declared", "read_xfails", "shipped_xfails", "xfails_of_run"]

Xfails = Mapping[str, Mapping[str, str]]  #: pattern of target names -> pattern of case ids -> reason


class Declared:
    """The expected failures of one target."""

    def __init__(self, xfails: Xfails, target: str, known: Iterable[str]) -> None:
        """Find the expected failures of this target.

        Raises:
            ValueError: for a case that does not exist.
        """
        known = list(known)
        self._reasons: dict[str, str] = {}
        for pattern, cases in xfails.items():
            if not fnmatch.fnmatchcase(target, pattern):
                continue
            for case, reason in cases.items():
                ids = [case] if case in known else fnmatch.filter(known, case)
                if not ids:
                    hint = "gradclip conformance --list shows all cases."
                    raise ArgumentError(
                        "An expected failure names a case that does not exist.", f"{case!r} of {pattern!r}", hint
                    )
                self._reasons.update(dict.fromkeys(ids, reason))

    def reason(self, case: str) -> str | None:
        """The reason for the target's known failure of the case; None if it must pass."""
        return self._reasons.get(case)


def read_xfails(path: str | Path) -> dict[str, dict[str, str]]:
    """Read a file of expected failures: JSON, ``{"pattern of targets": {"pattern of cases": "reason"}}``.

    Raises:
        ValueError: for a file of another form.
    """
    return _checked(json.loads(Path(path).read_text(encoding="utf-8")), str(path))


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
    what, hint = "This is not a file of expected failures.", '{"torch *": {"torch.clip_grad_norm_/E2": "the reason"}}.'
    if not isinstance(xfails, dict):
        raise ArgumentError(what, name, hint)
    for target, cases in xfails.items():
        if not isinstance(cases, dict):
            raise ArgumentError(what, f"{name}: {target!r}", hint)
        for case, reason in cases.items():
            if not isinstance(reason, str) or not reason.strip():
                raise ArgumentError("An expected failure needs a reason.", f"{name}: {target!r}: {case!r}", hint)
    return xfails
