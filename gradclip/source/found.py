"""The data of the checks: the context of a source, a call, a finding, and what is decided for a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from gradclip.natives import NATIVES, Kind, Native
from gradclip.natives.own import BY_RULE
from gradclip.natives.targets import Target
from gradclip.source.codes import CODES
from gradclip.source.gradients import Gradients
from gradclip.source.model import Options, Verdict
from gradclip.source.resolve import Resolver
from gradclip.source.source import Source
from gradclip.source.values import Values

__all__ = ["IN_PLACE", "ApiCall", "Context", "Decision", "Finding", "family", "manual", "unchanged"]

#: the last names of the natives that write gradients; Accelerate's and Fabric's methods are called alike
IN_PLACE = frozenset(native.last for native in NATIVES if native.kind is Kind.IN_PLACE)


@dataclass(frozen=True, slots=True)
class Context:
    """One source and the user's options."""

    source: Source
    resolver: Resolver
    values: Values
    gradients: Gradients
    options: Options
    replaced: Mapping[cst.CSTNode, str]  #: places that replace a function -> its qualified name


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason not to rewrite, or to rewrite only with a comment."""

    code: str
    reason: str = ""  #: if empty, the reason of the code applies
    advice: str = ""
    changes: bool = False  #: the code does what its author meant, but a rewrite would change training
    prefix: str = ""  #: text to insert before the call if a change is allowed


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call of one function of the table, or of gradclip's own of the same meaning, with its arguments bound."""

    context: Context
    call: cst.Call
    api: Native
    name: str  #: the qualified name that the call uses
    arguments: Mapping[str, cst.Arg]  #: by the parameters of ``api``; those of a rule are among them
    target: Target | None
    framework: str  #: whose tensors it gets

    @property
    def is_own(self) -> bool:
        """Whether it is a call of gradclip."""
        return self.name.startswith("gradclip.")

    @property
    def is_by_rule(self) -> bool:
        """Whether it is a call of gradclip that takes a rule, and returns a ``ClipResult``."""
        return self.name in BY_RULE

    @property
    def limits(self) -> Mapping[str, cst.BaseExpression]:
        """The given limits and bounds, by parameter."""
        given = (self.api.keyword,) if self.api.kind is Kind.KEYWORD else self.api.bounds
        return {name: argument.value for name, argument in self.arguments.items() if name in given}

    @property
    def tensors(self) -> cst.BaseExpression | None:
        """The parameters or gradients that the call clips."""
        first = next(iter(self.api.signature.parameters), "") if self.api.takes_tensors else ""
        return self.arguments[first].value if first in self.arguments else None

    @property
    def clips_by_value(self) -> bool:
        return self.api.is_exact

    @property
    def crosses(self) -> bool:
        """Whether the user wants the call in another framework."""
        return self.context.options.to not in ("gradclip", family(self.api.framework))


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one place."""

    node: cst.CSTNode
    code: str
    outcome: Verdict
    reason: str = ""
    advice: str = ""
    api: Native | None = None
    is_followed: bool = True  #: False: a clip whose step the reading did not find


def manual(node: cst.CSTNode, finding: Finding, api: Native | None = None) -> Decision:
    """A place for a person to migrate; for the linter, a mistake."""
    code = CODES[finding.code]
    return Decision(node, finding.code, Verdict.MANUAL, finding.reason or code.reason, finding.advice or code.advice, api)


def unchanged(node: cst.CSTNode, code: str, reason: str = "", api: Native | None = None) -> Decision:
    """A place that needs no change."""
    return Decision(node, code, Verdict.UNCHANGED, reason or CODES[code].reason, api=api)


def family(framework: str) -> str:
    """The framework of ``--to`` for a framework of the table."""
    return {"optax": "jax", "keras": "tensorflow"}.get(framework, framework)
