"""What the rooms of the codemod hand each other: the context of a source, a known call, what was found about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from gradclip.migrate.apis.model import Api, Kind, Target
from gradclip.migrate.codemod.flow import Flow
from gradclip.migrate.codemod.gradients import Gradients
from gradclip.migrate.codemod.imports import Need
from gradclip.migrate.codemod.resolve import Resolver
from gradclip.migrate.codemod.source import Edit, Source, words
from gradclip.migrate.model import Options, Outcome

__all__ = ["ApiCall", "Context", "Decision", "Finding", "family"]

_LIMITS = words(
    "max_norm clip_norm clip_value clipnorm global_clipnorm clipvalue max_delta threshold clipping l2_norm_clip "
    "global_l2_norm_clip max_global_norm max min clip_value_min clip_value_max min_value max_value "
    "clip_gradients clip_gradient_norm"
)
_TENSORS = ("parameters", "tensors", "t_list", "t", "x", "grads", "grad_tree", "updates", "gradients_to_variables")
_BY_VALUE = ("clip_grad_value", "clip_by_value", "clipvalue", "optax.clip", "clip_grad_by_value")


@dataclass(frozen=True, slots=True)
class Context:
    """One source and what the user asked for."""

    source: Source
    resolver: Resolver
    gradients: Gradients
    flow: Flow
    options: Options
    replaced: Mapping[cst.CSTNode, str]  #: the places that replace a function, with its qualified name

    def keeps(self, code: str) -> bool:
        """Whether a finding counts: not one of a trap that the user asked to ignore."""
        return not (code.startswith("GM1") and code.startswith(tuple(self.options.ignore)))


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason not to rewrite, or not without a word."""

    code: str
    reason: str = ""  #: the code's own where it is empty
    advice: str = ""
    changes: bool = False  #: the code is as its author meant it, but a rewrite would change what training does
    prefix: str = ""  #: what to put before the call where a change is allowed


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call that is known to be of one function of the table, with its arguments bound."""

    context: Context
    call: cst.Call
    api: Api
    name: str  #: the qualified name that it was called by
    arguments: Mapping[str, cst.Arg]
    target: Target | None

    @property
    def limits(self) -> Mapping[str, cst.BaseExpression]:
        """The limits and bounds that are given, by parameter."""
        given = {self.api.keyword} if self.api.kind is Kind.KEYWORD else _LIMITS
        return {name: argument.value for name, argument in self.arguments.items() if name in given}

    @property
    def tensors(self) -> cst.BaseExpression | None:
        """The parameters or gradients that are handed to it."""
        return next((self.arguments[name].value for name in _TENSORS if name in self.arguments), None)

    @property
    def clips_by_value(self) -> bool:
        return self.api.dialect.endswith(_BY_VALUE)

    @property
    def crosses(self) -> bool:
        """Whether it is to go to another framework than its own."""
        return self.context.options.to not in ("gradclip", family(self.api.framework))


@dataclass(frozen=True, slots=True)
class Decision:
    """How one place ends."""

    node: cst.CSTNode
    code: str
    outcome: Outcome
    reason: str = ""
    advice: str = ""
    api: Api | None = None
    edits: tuple[Edit, ...] = ()
    released: tuple[cst.CSTNode, ...] = ()  #: the names that an edit removes
    needs: tuple[Need, ...] = ()  #: the imports that the edits want
    uses: str = ""  #: the import that they use, which is there already
    comment: str = ""  #: to be written above: what a permitted change does
    assumption: str = ""  #: what the rewrite takes for granted


def family(framework: str) -> str:
    """The framework of ``--to`` that a framework of the table belongs to."""
    return {"optax": "jax", "keras": "tensorflow"}.get(framework, framework)
