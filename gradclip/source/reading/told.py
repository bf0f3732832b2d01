"""The lines of a report: where a mistake is, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence

from gradclip.core.errors import more
from gradclip.rounds import Found
from gradclip.rounds.table import MISTAKES
from gradclip.source.model import Site, Verdict
from gradclip.source.reading.machine import Place

__all__ = ["clip", "mistake", "reason"]

_CLIP = "GM001"  #: the code of a clip without a mistake


def reason(one: Found) -> str:
    """What happens, in a sentence; a second one names the place in another file."""
    where = one.event.where
    other = where.file if isinstance(where, Place) else None
    told = f" It is in {other.name}, line {where.inner[0]}." if isinstance(where, Place) and other is not None else ""
    return (one.reason or MISTAKES[one.code].reason) + told


def mistake(one: Found, place: Place, lines: Sequence[bytes]) -> Site:
    """A mistake at a place of a source with these lines."""
    told = (reason(one), one.advice or MISTAKES[one.code].advice, more(one.code))
    return _site(place, lines, one.code, Verdict.MANUAL, *told)


def clip(place: Place, lines: Sequence[bytes], *, is_followed: bool) -> Site:
    """A clip without a mistake."""
    return _site(place, lines, _CLIP, Verdict.UNCHANGED, is_followed=is_followed)


def _site(place: Place, lines: Sequence[bytes], code: str, outcome: Verdict, *told: str, is_followed: bool = True) -> Site:
    line = lines[place.line - 1]
    stop = place.end[1] if place.end[0] == place.line else len(line)
    text, before = line[place.column : stop].decode(), line[: place.column].decode()
    said, advice, page = told or ("", "", "")
    return Site(place.line, len(before) + 1, code, outcome, text.rstrip(), said, advice, page, is_followed=is_followed)
