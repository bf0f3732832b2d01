"""The linter without LibCST: the mistakes that a training step shows, read with Python's own parser.

It knows no mistake of a single call, such as an iterator that a clip uses up, and no clip that is written by hand.
"""

from __future__ import annotations

from gradclip.source.hidden import may_clip
from gradclip.source.model import Migrated, Options
from gradclip.source.parsing import tree
from gradclip.source.reading import Place, follow, reading, told

__all__ = ["linted"]

_BOM = "\ufeff"


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
    places = [(one, one.event.where) for one in read.found if isinstance(one.event.where, Place)]
    sites = [told.mistake(one, place, lines) for one, place in places]
    wrong = {(one.line, one.column) for one in sites}
    clips = (told.clip(place, lines, is_followed=place in read.followed) for place in read.clips)
    return Migrated(source, tuple(sorted([*sites, *(x for x in clips if (x.line, x.column) not in wrong)])))
