"""The data that the modules of the codemod exchange: the context of a source, a call, a finding, a decision."""

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
    """One source and the user's options."""

    source: Source
    resolver: Resolver
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
    api: Api
    name: str  #: the qualified name that the call uses
    arguments: Mapping[str, cst.Arg]
    target: Target | None

    @property
    def limits(self) -> Mapping[str, cst.BaseExpression]:
        """The given limits and bounds, by parameter."""
        given = {self.api.keyword} if self.api.kind is Kind.KEYWORD else _LIMITS
        return {name: argument.value for name, argument in self.arguments.items() if name in given}

    @property
    def tensors(self) -> cst.BaseExpression | None:
        """The parameters or gradients that the call clips."""
        return next((self.arguments[name].value for name in _TENSORS if name in self.arguments), None)

    @property
    def clips_by_value(self) -> bool:
        return self.api.dialect.endswith(_BY_VALUE)

    @property
    def crosses(self) -> bool:
        """Whether the user wants the call in another framework."""
        return self.context.options.to not in ("gradclip", family(self.api.framework))


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one place."""

    node: cst.CSTNode
    code: str
    outcome: Outcome
    reason: str = ""
    advice: str = ""
    api: Api | None = None
    edits: tuple[Edit, ...] = ()
    released: tuple[cst.CSTNode, ...] = ()  #: the names that the edits remove
    needs: tuple[Need, ...] = ()  #: the imports that the edits need
    uses: str = ""  #: the existing import that the edits use
    comment: str = ""  #: a comment to write above: the effect of a permitted change
    assumption: str = ""  #: the assumption that the rewrite makes


def family(framework: str) -> str:
    """The framework of ``--to`` for a framework of the table."""
    return {"optax": "jax", "keras": "tensorflow"}.get(framework, framework)
