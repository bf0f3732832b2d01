"""The linter without LibCST: the mistakes that a training step shows, read with Python's own parser.

It knows no mistake of a single call, such as an iterator that a clip uses up, and no clip that is written by hand.
"""

from __future__ import annotations

from gradclip.core.errors import more
from gradclip.source.codes import CODES
from gradclip.source.hidden import may_clip
from gradclip.source.model import Migrated, Options, Site, Verdict
from gradclip.source.parsing import tree
from gradclip.source.reading import Place, follow, reading, reason

__all__ = ["linted"]

_BOM = "\ufeff"
_CLIP = "GM001"  #: the code of a clip without a mistake


def linted(source: str, options: Options) -> Migrated:
    """The mistakes in a source that its training steps show, and the clips in them; the source stays as it is.

    Args:
        source: Python 3.
        options: the user's options.

    Raises:
        SourceError: if the source is not Python 3.
    """
    if not may_clip(source, lint=True):
        return Migrated(source)
    text = source.removeprefix(_BOM)
    read = reading(text, options.path, follow(options.path), tree(text))
    lines = text.encode().splitlines()
    sites = []
    for one in read.found:
        if isinstance(one.event.where, Place):
            told = (reason(one), one.advice or CODES[one.code].advice, more(one.code))
            sites.append(_site(one.event.where, lines, one.code, Verdict.MANUAL, *told))
    wrong = {(one.line, one.column) for one in sites}
    for place in read.clips:
        site = _site(place, lines, _CLIP, Verdict.UNCHANGED, is_followed=place in read.followed)
        sites += [site] if (site.line, site.column) not in wrong else []
    return Migrated(source, tuple(sorted(sites)))


def _site(place: Place, lines: list[bytes], code: str, outcome: Verdict, *told: str, is_followed: bool = True) -> Site:
    line = lines[place.line - 1]
    stop = place.end[1] if place.end[0] == place.line else len(line)
    text, before = line[place.column : stop].decode(), line[: place.column].decode()
    reason, advice, page = told or ("", "", "")
    return Site(place.line, len(before) + 1, code, outcome, text.rstrip(), reason, advice, page, is_followed=is_followed)
