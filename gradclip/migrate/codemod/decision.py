"""What the migration decides for a place, with the edits and the imports of a rewrite."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from gradclip.code.model import Outcome
from gradclip.code.source import Edit
from gradclip.natives import Native

__all__ = ["Decision", "Need"]


@dataclass(frozen=True, slots=True)
class Need:
    """An import that a rewritten call needs."""

    statement: str  #: "import gradclip"
    anchor: cst.CSTNode | None  #: the import that the call used; the new import goes beside it
    at: cst.CSTNode  #: the call: on every path, the import runs before it
    beside: cst.ImportAlias | None = None  #: for a from-import: insert ``statement``, a name, next to this alias
    local: bool = False  #: stay in the block of the anchor, even if this block is not at the top level


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one place."""

    node: cst.CSTNode
    code: str
    outcome: Outcome
    reason: str = ""
    advice: str = ""
    api: Native | None = None
    edits: tuple[Edit, ...] = ()
    released: tuple[cst.CSTNode, ...] = ()  #: the names that the edits remove
    needs: tuple[Need, ...] = ()  #: the imports that the edits need
    uses: str = ""  #: the existing import that the edits use
    comment: str = ""  #: a comment to write above: the effect of a permitted change
    assumption: str = ""  #: the assumption that the rewrite makes
    lacks: str = ""  #: the framework of ``to`` if it has no native that clips alike
