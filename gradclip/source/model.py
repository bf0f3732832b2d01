"""The data that the modules of the migration helper exchange: options in, a new source and its sites out."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["FRAMEWORKS", "About", "Migrated", "Options", "Site", "SourceError", "Verdict"]

FRAMEWORKS = ("torch", "tensorflow", "keras", "paddle", "optax", "jax")  #: for ``--from``; ``--to`` also accepts "gradclip"


class Verdict(enum.Enum):
    """The outcome of a site: exactly one of these."""

    REWRITTEN = "rewritten"
    MANUAL = "manual"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class About:
    """The facts from the other files of a run that concern one file."""

    sparse: str = ""  #: the code there that makes gradients sparse: "`tf.nn.embedding_lookup` in modeling.py"
    stars: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: module as written -> name -> qualified, or ""
    kept: frozenset[str] = frozenset()  #: the names that they import from the file; "*" for all
    modules: frozenset[str] = frozenset()  #: the top-level modules that it imports from the project
    limits: Mapping[str, str] = field(default_factory=dict)  #: a limit that they set by hand -> where: "`opt.clipnorm` in a.py"
    own: str = ""  #: the module or the package of the project that `import gradclip` would import there


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options."""

    to: str = "gradclip"  #: "gradclip", or the framework whose current native form to write
    sources: frozenset[str] = frozenset()  #: only calls of these frameworks; empty: of all
    select: frozenset[str] = frozenset()  #: only these codes, or prefixes of codes; empty: all
    ignore: frozenset[str] = frozenset()  #: exclude these codes, or prefixes of codes
    annotate: bool = False  #: write a comment at each MANUAL site
    allow_semantic_change: bool = False  #: rewrite even if training changes, with a comment that says so
    lint: bool = False  #: only report mistakes, all of them, and rewrite nothing
    strict: bool = False  #: leave a call if the framework of ``to`` has no native that clips alike
    norms: bool = False  #: also rewrite calls that only measure a norm
    about: About = About()
    path: str = ""  #: of the file, to find others of its project


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One place that clips gradients, or looks like a clip."""

    line: int  #: from 1
    column: int  #: from 1, in characters
    code: str  #: stable: "GT101"
    outcome: Verdict = field(compare=False)
    text: str = field(compare=False)  #: the first line of the call's source
    reason: str = field(compare=False)  #: one sentence
    advice: str = field(default="", compare=False)  #: what to do, for MANUAL
    more: str = field(default="", compare=False)  #: the command that prints more of the code
    assumption: str = field(default="", compare=False)  #: the assumption of a rewrite; usually ""
    is_followed: bool = field(default=True, compare=False)  #: False: the linter found no step of these gradients
    lacks: str = field(
        default="", compare=False
    )  #: "Paddle" if it has no equivalent, so that gradclip's was written; usually ""


@dataclass(frozen=True, slots=True)
class Migrated:
    """One source, migrated."""

    source: str
    sites: tuple[Site, ...] = ()


class SourceError(ValueError):
    """A source that Python 3 cannot parse."""

    def __init__(self, message: str, line: int = 0, column: int = 0, cell: int = 0) -> None:
        super().__init__(message)
        self.message, self.line, self.column, self.cell = message, line, column, cell
