"""What is decided for a place in a source."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from gradclip.code.codes import CODES
from gradclip.code.found import Finding
from gradclip.code.model import Outcome
from gradclip.natives import Native

__all__ = ["Decision", "manual", "unchanged"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one place."""

    node: cst.CSTNode
    code: str
    outcome: Outcome
    reason: str = ""
    advice: str = ""
    api: Native | None = None


def manual(node: cst.CSTNode, finding: Finding, api: Native | None = None) -> Decision:
    """A place for a person to migrate; for the linter, a mistake."""
    code = CODES[finding.code]
    return Decision(node, finding.code, Outcome.MANUAL, finding.reason or code.reason, finding.advice or code.advice, api)


def unchanged(node: cst.CSTNode, code: str, reason: str = "", api: Native | None = None) -> Decision:
    """A place that needs no change."""
    return Decision(node, code, Outcome.UNCHANGED, reason or CODES[code].reason, api=api)
