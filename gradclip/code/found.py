"""The data of the checks: the context of a source, a call, a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from gradclip.code.flow import Flow
from gradclip.code.functions import Functions
from gradclip.code.gradients import Gradients
from gradclip.code.model import Options
from gradclip.code.reaching import Reaching
from gradclip.code.resolve import Resolver
from gradclip.code.source import Source
from gradclip.natives import Kind, Native
from gradclip.natives.targets import Target

__all__ = ["ApiCall", "Context", "Finding", "family"]


@dataclass(frozen=True, slots=True)
class Context:
    """One source and the user's options."""

    source: Source
    resolver: Resolver
    reaching: Reaching
    functions: Functions
    gradients: Gradients
    flow: Flow
    options: Options
    replaced: Mapping[cst.CSTNode, str]  #: places that replace a function -> its qualified name

    def keeps(self, code: str) -> bool:
        """Whether a finding counts: the user did not ask to ignore its trap."""
        return not (code.startswith("GM1") and code.startswith(tuple(self.options.ignore)))


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
    """A call of one function of the table, with its arguments bound."""

    context: Context
    call: cst.Call
    api: Native
    name: str  #: the qualified name that the call uses
    arguments: Mapping[str, cst.Arg]
    target: Target | None

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


def family(framework: str) -> str:
    """The framework of ``--to`` for a framework of the table."""
    return {"optax": "jax", "keras": "tensorflow"}.get(framework, framework)
