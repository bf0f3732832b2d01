"""One native: a framework's own clip, or its own norm. Its meaning is the rule that its dialect's function returns."""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gradclip.core.errors import GradclipError
from gradclip.core.rule import Rule, Scope
from gradclip.core.spelling import same
from gradclip.dialects import FUNCTIONS as DIALECTS
from gradclip.dialects import parameters, required

__all__ = ["DIALECTS", "KERAS_BACKENDS", "KNOWN_NORM", "NO_EFFECT", "Applied", "Kind", "Native", "clips_of"]

#: the arguments of dialects' functions that do not change the rule
NO_EFFECT = frozenset({"name", "foreach", "group_name", "use_norm"})
#: the first part of a name -> its framework, where that has another name
_FRAMEWORKS = {"tf_slim": "tensorflow", "tf_keras": "keras", "accelerate": "torch", "timm": "torch"}
KNOWN_NORM = ("use_norm", "total_norm")  #: the parameters for a norm that the caller knows
_LIBRARIES = ("accelerate", "timm")
KERAS_BACKENDS = ("tensorflow", "torch", "jax")


class Kind(enum.Enum):
    """How a call takes effect, and so what a rewrite must preserve."""

    IN_PLACE = "in place"  #: writes the parameters' gradients; the result is a norm or None
    RETURNED = "returned"  #: returns new tensors; a call whose result is ignored clips nothing
    MEASURE = "measure"  #: returns only a norm
    OBJECT = "object"  #: makes an object for an optimizer's slot or a transformation for a chain
    KEYWORD = "keyword"  #: a keyword of an optimizer's constructor
    GLOBAL_STATE = "global state"  #: changes what later optimizers do


class Applied(enum.Enum):
    """How a program applies a native."""

    PARAMETERS = "a call that writes the gradients of parameters"
    TENSOR = "a function of one tensor"
    TENSORS = "a function of several tensors"
    PAIRS = "a function of (gradient, variable) pairs"
    SLOT = "an object for an optimizer's grad_clip="
    CHAIN = "a transformation for a chain"
    KEYWORD = "a keyword of an optimizer"
    OPTIMIZER = "an optimizer that clips, or a function that makes one clip"
    NORM = "a norm, and no clip"
    SETTER = "a setting for the optimizers that follow"


#: the kind of a native, what it returns and what it does with None; a record may say otherwise
_USUAL: Mapping[Applied, tuple[Kind, str, str]] = {
    Applied.PARAMETERS: (Kind.IN_PLACE, "None", "a parameter without a gradient is left out"),
    Applied.TENSOR: (Kind.RETURNED, "a new tensor", "an error: it takes one tensor"),
    Applied.TENSORS: (Kind.RETURNED, "a list of new tensors", "it stays None"),
    Applied.PAIRS: (Kind.RETURNED, "a list of new (gradient, variable) pairs", "it stays None"),
    Applied.SLOT: (Kind.OBJECT, "an object for grad_clip= of an optimizer", "a pair without a gradient is left out"),
    Applied.CHAIN: (Kind.OBJECT, "a transformation for optax.chain", "it stays None"),
    Applied.KEYWORD: (Kind.KEYWORD, "an optimizer", "a variable without a gradient is left out"),
    Applied.OPTIMIZER: (Kind.OBJECT, "an optimizer", "it stays None"),
    Applied.NORM: (Kind.MEASURE, "the norm", "it counts for nothing"),
    Applied.SETTER: (Kind.GLOBAL_STATE, "None", ""),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Native:
    """One native. A field holds only what its name, its rule and ``applied`` do not say; the properties say the rest."""

    code: str  #: stable: "GT101"
    names: tuple[str, ...]  #: every qualified name, the usual one first; a keyword's end in "(keyword=)"
    applied: Applied
    note: str  #: one sentence
    link: str  #: the upstream documentation
    source: str  #: "torch 2.13.0, torch/nn/utils/clip_grad.py": the file that this was read from
    tensors: str = ""  #: the parameter for the gradients; the others are those of the dialect's function
    signature_text: str = ""  #: the signature, if it is a different one
    dialect_name: str | None = None  #: the function that has the meaning, if the name does not say it; "" if none has
    called: Mapping[str, str] = field(default_factory=dict)  #: its parameter -> the dialect's, if the names differ
    status: str = "current"  #: "current", "deprecated" or "removed"
    since: str = ""  #: the version since which it has that status
    now: str = ""  #: the code of the same function under its present name
    returns_norm: bool = False  #: whether it returns the norm before the clip
    writes: bool = False  #: whether it writes the gradients that it is given, if ``applied`` does not say it
    returned: str = ""  #: what it returns, if ``applied`` does not say it
    none: str = ""  #: what it does with None, if ``applied`` does not say it
    does_more: bool = False  #: whether it also does what no rule describes, such as adding noise
    ours: str = ""  #: the code in gradclip, if ``applied`` does not say it, with ``{clip_norm}`` for its parameters
    advice: str = ""  #: one sentence for a program that replaces it
    caution: str = ""  #: one sentence for a program that takes it instead of another
    departs: Mapping[str, str] = field(default_factory=dict)  #: key of a departure -> what it does there, in a few words
    departs_also: tuple[str, ...] = ()  #: keys of departures that say themselves what it does
    backends: Mapping[str, str] = field(default_factory=dict)  #: key of a departure -> Keras's backends, if not all depart

    # ---- the names ----------------------------------------------------------------------------------------------------------

    @property
    def framework(self) -> str:
        """The framework that has it."""
        root = self.names[0].partition(".")[0]
        return _FRAMEWORKS.get(root, root)

    @property
    def family(self) -> str:
        """The framework whose programs it belongs to: optax's and JAX's are "jax"."""
        return "jax" if self.framework == "optax" else self.framework

    @property
    def is_of_library(self) -> bool:
        """Whether it belongs to a library around a framework."""
        return self.names[0].startswith(_LIBRARIES)

    @property
    def stays(self) -> bool:
        """Whether a program of its framework keeps it: it is neither old nor a library's."""
        return self.status == "current" and self.framework != "jax" and not self.is_of_library

    @property
    def keyword(self) -> str:
        """The parameter of a constructor that clips; "" if it is no keyword."""
        return self.names[0].partition("(")[2].rstrip("=)")

    @property
    def last(self) -> str:
        """The name without its module."""
        return self.keyword or self.names[0].rpartition(".")[2]

    @property
    def shown(self) -> str:
        """Its name as its users write it."""
        return self.names[0].replace("tensorflow.", "tf.", 1)

    @property
    def variants(self) -> tuple[str, ...]:
        """Its names among the recorded cases: Keras has one for each backend, which clips with its own arithmetic."""
        return tuple(f"keras[{on}] {self.keyword}" for on in KERAS_BACKENDS) if self.framework == "keras" else (self.shown,)

    def departing(self, key: str) -> tuple[str, ...]:
        """Its variants from which gradclip departs for a reason."""
        if key not in self.departs and key not in self.departs_also:
            return ()
        backends = self.backends.get(key, " ".join(KERAS_BACKENDS)).split()
        return tuple(name for name in self.variants if self.framework != "keras" or name[6 : name.index("]")] in backends)

    # ---- its application ----------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> Kind:
        """How a call takes effect."""
        return _USUAL[self.applied][0]

    @property
    def returns(self) -> str:
        """What a call returns."""
        usual = self.returned or _USUAL[self.applied][1]
        if not self.returns_norm:
            return usual
        return "the norm before clipping" if self.kind is Kind.IN_PLACE else f"{usual}, and the norm before clipping"

    @property
    def returns_pair(self) -> bool:
        """Whether a call returns the gradients and something beside them."""
        return self.kind is Kind.RETURNED and ", and " in self.returns

    @property
    def nones(self) -> str:
        """What it does with a gradient that is None; "" if no rule describes it."""
        return self.none or (_USUAL[self.applied][2] if self.dialect else "")

    @property
    def takes_tensors(self) -> bool:
        """Whether its first parameter is for gradients, or for what holds them."""
        return self.kind in (Kind.IN_PLACE, Kind.RETURNED, Kind.MEASURE)

    @property
    def in_place(self) -> bool:
        """Whether it writes the gradients that it is given."""
        return self.writes or self.kind is Kind.IN_PLACE

    # ---- its rule -----------------------------------------------------------------------------------------------------------

    @cached_property
    def dialect(self) -> str:
        """The dialect's function that has its meaning: "torch.clip_grad_norm"; "" if none has."""
        if self.dialect_name is not None:
            return self.dialect_name
        return same(f"{self.framework}.{self.last}", DIALECTS) or ""

    @property
    def is_own(self) -> bool:
        """Whether the dialect's function is named after it."""
        return self.dialect_name is None and self.dialect != "" and self.status == "current"

    @property
    def function(self) -> Callable[..., Rule]:
        """The dialect's function; call it only if ``dialect`` is not ""."""
        return DIALECTS[self.dialect]

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The parameters that its dialect's function requires, the limit or the upper bound last."""
        return required(self.function)

    @property
    def limit(self) -> str:
        """Its parameter that is the limit, or the upper bound."""
        natively = {dialect: native for native, dialect in self.called.items()}
        return natively.get(self.needed[-1], self.needed[-1])

    @cached_property
    def signature(self) -> inspect.Signature:
        """Its signature, without types."""
        if self.signature_text:
            return _signature(self.signature_text)
        if self.applied is Applied.KEYWORD:
            return _signature(f"(*args, {self.keyword}=None, **kwargs)")
        natively = {dialect: native for native, dialect in self.called.items()}
        taken = [p.replace(annotation=p.empty, name=natively.get(p.name, p.name)) for p in parameters(self.function).values()]
        if self.applied is Applied.NORM:
            del taken[0]
        if self.tensors:
            taken.insert(0, inspect.Parameter(self.tensors, inspect.Parameter.POSITIONAL_OR_KEYWORD))
        return inspect.Signature(taken)

    def rule(self, limit: Any = 1.0) -> Rule:
        """Its rule with a limit; a lower bound is the limit negated."""
        *lower, upper = self.needed
        return self.function(**{upper: limit, **dict.fromkeys(lower, -limit)})

    @property
    def operation(self) -> str:
        """Its name in the conformance suite; "" if the suite does not test it."""
        return f"{self.framework}.{self.last}" if self.is_own else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that the result depends on, in its order, without the gradients; call it only for an operation."""
        names = tuple(p for p in inspect.signature(self.function).parameters if p not in NO_EFFECT or p == "use_norm")
        return names if self.rule().relative_to is None else (*names, "parameters")

    @property
    def bounds(self) -> tuple[str, ...]:
        """Its parameters that are a limit or a bound, the lower bound first."""
        if not self.dialect or self.applied is Applied.NORM:
            return ()
        known = {*self.needed, *(LOWER | UPPER if self.rule().is_by_value else ())}
        found = [p for p in self.signature.parameters if self.called.get(p, p) in known]
        return tuple(sorted(found, key=lambda p: self.called.get(p, p) not in LOWER))

    @property
    def is_exact(self) -> bool:
        """Whether gradclip gives the same to the last bit: its rule has no norm."""
        return self.dialect != "" and self.applied is not Applied.NORM and self.rule().scope is Scope.VALUE

    @cached_property
    def at_zero(self) -> str:
        """The effect of a limit of 0: "zeros", "off" or "error"."""
        try:
            rule = self.rule(0.0)
        except GradclipError:
            return "error"
        return "off" if (rule.upper if rule.is_by_value else rule.limit) == math.inf else "zeros"


#: the names of bounds in dialects' functions
LOWER, UPPER = frozenset({"min", "clip_value_min"}), frozenset({"max", "clip_value_max"})


def clips_of(natives: Iterable[Native]) -> frozenset[str]:
    """The names of the natives that clip, as a script calls them."""
    return frozenset(native.last for native in natives if "clip" in native.last.lower())


def _signature(text: str) -> inspect.Signature:
    """A signature from its text; defaults are literals."""
    scope: dict[str, Any] = {}
    exec(f"def f{text}: ...", scope)
    return inspect.signature(scope["f"])
