"""From a source to rounds, with Python's own ``ast``: functions and methods are entered, and each way through tests taken.

``machine`` runs the statements of one way, ``expressions`` and ``calls`` say what an expression stands for, ``gradients`` and
``functional`` make events of what libraries do, and ``ways`` tries the ways. Nothing of the source is executed.
"""

from __future__ import annotations

import ast

from gradclip.source.reading.files import follow
from gradclip.source.reading.machine import Place
from gradclip.source.reading.program import File, Follow
from gradclip.source.reading.told import reason
from gradclip.source.reading.ways import Reading, read

__all__ = ["File", "Place", "Reading", "follow", "read", "reading", "reason"]


def reading(text: str, path: str = "", other: Follow | None = None, tree: ast.Module | None = None) -> Reading:
    """What a source shows; nothing for one that Python cannot parse.

    Args:
        text: the source.
        path: of its file, if it has one.
        other: finds the files that it imports.
        tree: of the source, if it has been parsed.
    """
    try:
        return read(File(text, path, other, tree))
    except (SyntaxError, ValueError, RecursionError):
        return Reading()
