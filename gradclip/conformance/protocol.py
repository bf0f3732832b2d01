"""Whether an object is a target: its members and its claims. It describes any object."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gradclip.conformance.target import FEATURES, MEMBERS, OPERATIONS

__all__ = ["claims_of", "described", "faults_of_claims", "faults_of_target", "name_of", "printable"]


def name_of(target: Any) -> str:
    """The target's name; its type's, if it has none."""
    try:
        name = target.name
    except Exception:  # a target may fail in any way
        name = None
    return printable(name if isinstance(name, str) and name.strip() else type(target).__name__)


def printable(text: str) -> str:
    r"""Text for any report: it escapes terminal controls and characters that UTF-8 lacks.

    >>> printable("bold \x1b[1m")
    'bold \\x1b[1m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def claims_of(target: Any) -> dict[str, Any]:
    """A copy of the claims as a dict.

    Raises:
        TypeError: if they are not a mapping.
    """
    claims = target.claims
    if not isinstance(claims, Mapping):
        raise TypeError(f"claims must be a mapping of operations to features, not {type(claims).__name__}")
    return dict(claims)


def described(target: Any) -> dict[str, Any]:
    """The versions and the device that a report's header names."""
    versions, device = getattr(target, "versions", None), getattr(target, "device", None)
    return {
        "versions": {printable(str(k)): printable(str(v)) for k, v in versions.items()}
        if isinstance(versions, Mapping)
        else {},
        "device": "" if device is None else printable(str(device)),
    }


def faults_of_target(target: Any) -> str:
    """The missing members of a target, in words; "" if none."""
    lacking = [member for member in ("make", "read", "run") if not callable(getattr(target, member, None))]
    faults = [f"it has no method {member}" for member in lacking]
    name = getattr(target, "name", None)
    if not isinstance(name, str) or not name.strip():
        faults.append(f"its name must be text, not {name!r}")
    return "; ".join(faults)


def faults_of_claims(target: Any, claims: Mapping[Any, Any], operations: Collection[str]) -> list[tuple[str, str]]:
    """The faults of the claims, by operation, for the selected operations and for those that do not exist."""
    faults = []
    for operation, features in claims.items():
        if operation not in OPERATIONS:
            near = difflib.get_close_matches(str(operation), OPERATIONS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; one of {', '.join(OPERATIONS)}"
            faults.append(("target", f"it claims an operation that does not exist: {operation!r}{hint}"))
        elif operation in operations and (fault := _fault(target, features)):
            faults.append((operation, fault))
    return faults


def _fault(target: Any, features: Any) -> str:
    if isinstance(features, (str, bytes)) or not isinstance(features, Collection):
        return f"the claims must be a collection of features, not {features!r}"
    unknown: Sequence[str] = sorted(str(feature) for feature in features if feature not in FEATURES)
    if unknown:
        near = difflib.get_close_matches(unknown[0], FEATURES, 1)
        return f"it claims features that do not exist: {', '.join(unknown)}" + (f"; did you mean {near[0]!r}?" if near else "")
    if ("in place" in features) == ("functional" in features):
        return "it must claim one of 'in place' and 'functional', and not both"
    for feature in sorted(features):
        member = MEMBERS.get(feature)
        if member is not None and not callable(getattr(target, member, None)):
            return f"it claims {feature!r} and has no method {member}"
    return ""
