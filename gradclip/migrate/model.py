"""What the parts of the migration helper hand each other: options in, a new source and its sites out."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["FRAMEWORKS", "Migrated", "Options", "Outcome", "Site", "SourceError"]

FRAMEWORKS = ("torch", "tensorflow", "keras", "paddle", "optax", "jax")  #: of ``--from``; of ``--to`` also "gradclip"


class Outcome(enum.Enum):
    """How a site ends: exactly one of these."""

    REWRITTEN = "rewritten"
    MANUAL = "manual"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for."""

    to: str = "gradclip"  #: "gradclip", or the framework whose current, native form is wanted
    sources: frozenset[str] = frozenset()  #: only the calls of these frameworks; empty: of all
    select: frozenset[str] = frozenset()  #: only these codes, or prefixes of codes; empty: all
    ignore: frozenset[str] = frozenset()  #: not these
    annotate: bool = False  #: write a comment at each MANUAL site
    allow_semantic_change: bool = False  #: rewrite also where training would change, with a comment that says so
    lint: bool = False  #: look for mistakes only, all of them, and rewrite nothing
    norms: bool = False  #: rewrite also what only measures a norm
    kept: frozenset[str] = frozenset()  #: the names that other files import from this one; "*" for all
    sparse: str = ""  #: what makes gradients sparse in another file of the run
    stars: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: star import -> name -> qualified, or "" for its own


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One place that clips gradients, or looks like it."""

    line: int  #: from 1
    column: int  #: from 1, in characters
    code: str  #: stable: "GT101"
    outcome: Outcome = field(compare=False)
    text: str = field(compare=False)  #: the source of the call, its first line
    reason: str = field(compare=False)  #: one sentence
    advice: str = field(default="", compare=False)  #: what to do, for MANUAL
    link: str = field(default="", compare=False)  #: into the documentation
    assumption: str = field(default="", compare=False)  #: what a rewrite takes for granted; most often nothing


@dataclass(frozen=True, slots=True)
class Migrated:
    """One source, migrated."""

    source: str
    sites: tuple[Site, ...] = ()


class SourceError(ValueError):
    """A source that cannot be read: not Python 3, or not Python."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column
