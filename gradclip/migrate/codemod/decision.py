"""A rewrite: a decision with its edits, and the imports that they need."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from gradclip.source.found import Decision
from gradclip.source.source import Edit

__all__ = ["Need", "Rewrite"]


@dataclass(frozen=True, slots=True)
class Need:
    """An import that a rewritten call needs."""

    statement: str  #: "import gradclip"
    anchor: cst.CSTNode | None  #: the import that the call used; the new import goes beside it
    at: cst.CSTNode  #: the call: on every path, the import runs before it
    beside: cst.ImportAlias | None = None  #: for a from-import: insert ``statement``, a name, next to this alias
    local: bool = False  #: stay in the block of the anchor, even if this block is not at the top level


@dataclass(frozen=True, slots=True)
class Rewrite(Decision):
    """The outcome for a place that is rewritten."""

    edits: tuple[Edit, ...] = ()
    released: tuple[cst.CSTNode, ...] = ()  #: the names that the edits remove
    needs: tuple[Need, ...] = ()  #: the imports that the edits need
    uses: str = ""  #: the existing import that the edits use
    comment: str = ""  #: a comment to write above: the effect of a permitted change
    assumption: str = ""  #: the assumption that the rewrite makes
    lacks: str = ""  #: the framework of ``to`` if it has no native that clips alike
