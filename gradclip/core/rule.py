"""A clip as data: its scope, its norm, its limit and its coefficient.

A dialect is a set of functions that return a :class:`Rule`; :mod:`gradclip.clip` applies it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.reprs import number

__all__ = ["AXES", "EXAMPLE", "GLOBAL", "TENSOR", "VALUE", "EachRule", "Rule", "Scope", "number_or_tensor"]


#: parts of the names of dtypes that no limit can have: complex numbers, truth values, text, dates, Python objects
_NOT_REAL = ("complex", "bool", "str", "<U", "|S", "time", "object")

_PLAIN = (float, bool, str, tuple, type(None))  #: the types of a rule's fields that are not tensors
_NORM_FOLLOWS = "give a number, or use a rule with one norm (torch.clip_grad_norm) or one for each gradient (keras.clipnorm)."
_MEASURES = "clip by a norm, or measure one first: gradclip.norm(grads, dialects.torch.clip_grad_norm(math.inf))."
_GRADIENTS_FIRST = "gradients are not a limit: they come first in a call that clips, and a dialect's function takes none."


class Scope(enum.Enum):
    """The elements that share one norm.

    >>> from gradclip.dialects import optax, tensorflow
    >>> optax.clip_by_global_norm(1.0).scope, tensorflow.clip_by_norm(1.0).scope
    (<Scope.GLOBAL: 'global'>, <Scope.TENSOR: 'tensor'>)
    """

    GLOBAL = "global"  #: all gradients together, as one vector
    TENSOR = "tensor"  #: each gradient separately
    AXES = "axes"  #: each slice of each gradient, reduced over some of its axes
    EXAMPLE = "example"  #: all gradients together, for each index of their first axis; the result is summed over it
    VALUE = "value"  #: no norm: each element separately, between two bounds


# what runs in each call takes these names: in Python 3.11 to look up a member takes five times as long
GLOBAL, TENSOR, AXES, EXAMPLE, VALUE = Scope


class NoTransformationError(ArgumentTypeError, AttributeError):
    """A rule in a chain of optax; an AttributeError, so that ``hasattr`` tells the truth."""


# not frozen: that would take three times as long to make, at every step
@dataclass(slots=True, kw_only=True, unsafe_hash=True, repr=False)
class Rule:
    """A complete description of a clip: ``gradclip.clip(grads, rule)``. Do not change a rule: use ``dataclasses.replace``.

    Rules come from a dialect (:mod:`gradclip.dialects`), which describes a framework's functions. The fields are all that
    differs between the frameworks' clips:

    ``g * c, with c = 1 if n + eps <= L else L / max(n + eps, min_divisor)``

    with the norm ``n`` over ``scope`` and the limit ``L``. For :attr:`Scope.VALUE` it is
    ``max(min(g, upper), lower)``.

    >>> from gradclip.dialects import torch, tensorflow
    >>> torch.clip_grad_norm(max_norm=1.0).scope
    <Scope.GLOBAL: 'global'>
    >>> tensorflow.clip_by_norm(clip_norm=5.0, axes=[0])
    Rule('tensorflow.clip_by_norm', scope='axes', clip_norm=5, axes=(0,), negative_is_zero=True)
    """

    name: str  #: the native function's name, with its framework: "torch.clip_grad_norm"
    scope: Scope
    limit: Any = math.inf  #: a number, or a tensor of one element (of a broadcasting shape in TensorFlow's dialect)
    limit_name: str = "limit"  #: the native's name of the limit, for messages
    order: float = 2.0  #: p of the p-norm; 0 counts non-zeros, -inf is the smallest magnitude
    axes: tuple[int, ...] | None = None  #: for Scope.AXES: the axes to reduce; None for all
    unit_axes: bool = False  #: for Scope.AXES: choose the axes by the number of dimensions, as optax does
    eps: float = 0.0  #: added to the norm before the comparison and the division
    min_divisor: float = 0.0  #: the smallest divisor
    mean: bool = False  #: the norm is a root mean square
    relative_to: float | None = None  #: the limit multiplies the parameter's norm, which counts as at least this
    nan_if_infinite: bool = False  #: an infinite norm makes every gradient NaN (else finite elements become 0)
    keep_if_nan: bool = False  #: a NaN norm clips nothing (else: it makes every gradient NaN)
    negative_is_zero: bool = False  #: a negative limit counts as 0 (else it is an error)
    lower: Any = -math.inf  #: of Scope.VALUE
    upper: Any = math.inf  #: of Scope.VALUE
    stored_only: bool = False  #: bounds that exclude 0 clip the rows that a sparse gradient stores (else they are an error)
    error_if_nonfinite: bool = False  #: raise an error with the culprits' names if the norm is not finite
    if_nonfinite: str = "propagate"  #: if the norm is not finite: "raise" is error_if_nonfinite, "zero" makes its gradients 0,
    #: and "skip" skips the step
    skip_above: Any = None  #: a larger norm, or one that is not finite, skips the step: a number, a tensor or an Adaptive

    def __post_init__(self) -> None:
        if self.if_nonfinite != "propagate":
            self._check_if_nonfinite()
        if self.skip_above is not None:
            self._check_skip_above()
        if isinstance(self.limit, float) and not self.limit >= 0:
            self.check_limit(self.limit)
            self.limit = 0.0

    def _check_if_nonfinite(self) -> None:
        if self.if_nonfinite not in ("raise", "zero", "skip"):
            what = 'if_nonfinite must be "propagate", "raise", "zero" or "skip".'
            raise ArgumentError(what, f"if_nonfinite={self.if_nonfinite!r}")
        if self.if_nonfinite == "raise":
            self.error_if_nonfinite = True
        elif self.scope is VALUE:
            what = f'if_nonfinite="{self.if_nonfinite}" is for a rule with a norm.'
            raise ArgumentError(what, f"rule={self.name}", _MEASURES)
        elif self.if_nonfinite == "skip":
            self._check_skips()

    def _check_skip_above(self) -> None:
        self._check_skips()
        self.skip_above = number_or_tensor("skip_above", self.skip_above, follows=True)
        if isinstance(self.skip_above, float) and self.skip_above < 0:
            raise ArgumentError("skip_above must not be negative.", f"skip_above={self.skip_above}")
        if self.skip_above is self.limit and follows_run(self.limit):
            what = "One Adaptive cannot be both the limit and skip_above: it would count each norm twice."
            raise ArgumentError(what, f"skip_above={self.skip_above!r}", "make another one.")

    def _check_skips(self) -> None:
        if self.scope is VALUE:
            raise ArgumentError("A rule by value has no norm that could skip a step.", f"rule={self.name}", _MEASURES)
        if self.scope is EXAMPLE:
            hint = 'if_nonfinite="zero" leaves out such an example.'
            raise ArgumentError("A rule per example skips no step.", f"rule={self.name}", hint)

    # Properties, and no constants that other modules import: Dynamo guards every name that it traced.
    @property
    def is_by_value(self) -> bool:
        """Whether it clips by value, without a norm."""
        return self.scope is VALUE

    @property
    def is_total(self) -> bool:
        """Whether it has one norm over all gradients."""
        return self.scope is GLOBAL

    @property
    def is_plain(self) -> bool:
        """Whether it has only numbers and no axes: such a rule fits any dense gradient."""
        if self.scope is VALUE:
            return type(self.lower) is float and type(self.upper) is float
        if self.skip_above is not None or self.if_nonfinite in ("zero", "skip"):
            return False
        return type(self.limit) is float and (self.scope is GLOBAL or self.scope is TENSOR)

    @property
    def skips(self) -> bool:
        """Whether a norm can skip the step."""
        return self.skip_above is not None or self.if_nonfinite == "skip"

    @property
    def init(self) -> Any:
        """Nothing: ``optax.chain(rule)`` asks for it, as if the rule were a transformation."""
        hint = "gradclip.clipped(optax.adam(1e-3), rule); a link is gradclip.backends.jax.gradient_transformation(rule)."
        raise NoTransformationError("A rule is not an optax transformation.", f"rule={self.name}", hint)

    def check_limit(self, value: float) -> None:
        """Refuse a limit that the rule does not allow."""
        if value != value:  # not math.isnan, which torch.compile cannot trace
            raise not_a_number(self.limit_name)
        if value < 0 and not self.negative_is_zero:
            raise ArgumentError(
                f"{self.limit_name} must not be negative.",
                f"{self.limit_name}={value}",
                "a limit of 0 gives zeros and a limit of infinity measures the norm without clipping.",
            )

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        """The native's name, and the fields without their defaults."""
        shown = [repr(self.name), f"scope={self.scope.value!r}"]
        if not self.is_by_value:
            shown.append(f"{self.limit_name}={number(self.limit)}")
        for known in fields(self):
            value = getattr(self, known.name)
            is_usual = known.name in ("name", "scope", "limit", "limit_name")
            if not is_usual and (not isinstance(value, _PLAIN) or value != known.default):
                shown.append(f"{known.name}={repr(value) if isinstance(value, _PLAIN) else number(value)}")
        return f"Rule({', '.join(shown)})"


def number_or_tensor(name: str, value: Any, *, text: bool = False, one_element: bool = True, follows: bool = False) -> Any:
    """A limit as a rule keeps it: a float, or the tensor that was given.

    Args:
        name: the native's name of it.
        value: a number or a tensor.
        text: whether to accept ``"1.0"``, as natives do that call ``float`` on their limit.
        one_element: whether a tensor must have one element.
        follows: whether it may be a :class:`gradclip.Adaptive`: for a rule with one norm, or one for each gradient.
    """
    if isinstance(value, float) or (isinstance(value, int) and -(2**1023) < value < 2**1023):
        return _number(name, float(value))  # first: torch.compile cannot test a symbolic number later
    if follows_run(value):
        if not follows:
            raise ArgumentTypeError(f"{name} cannot follow the run.", f"{name}={value!r}", _NORM_FOLLOWS)
        return value
    shape = getattr(value, "shape", None)
    if shape is None or callable(shape) or (type(value).__module__ == "numpy" and not tuple(shape)):
        is_complex = "complex" in str(getattr(value, "dtype", ""))  # NumPy would drop the imaginary part
        try:
            if is_complex or (isinstance(value, (str, bytes)) and not text):
                raise TypeError
            number = float(value)
        except OverflowError:
            raise ArgumentError(f"{name} must fit in a float.", "a number beyond 1.8e308") from None
        except (TypeError, ValueError) as error:
            kind = ArgumentTypeError if isinstance(error, TypeError) else ArgumentError
            raise kind(f"{name} must be a number or a tensor.", f"{name}={shown(value)}", _instead(value)) from None
        return _number(name, number)
    dtype = str(getattr(value, "dtype", ""))
    if any(kind in dtype for kind in _NOT_REAL):
        raise ArgumentTypeError(f"{name} must be of a real dtype.", f"{name} of dtype {dtype}")
    if one_element and any(size != 1 for size in shape):
        raise ArgumentError(f"{name} must have one element.", f"{name} of shape {tuple(shape)}", _GRADIENTS_FIRST)
    return value


def _instead(value: object) -> str:
    """What to pass instead of this limit."""
    if value is None:
        return 'for no limit leave the clip out; float("inf") measures the norm and clips nothing.'
    if isinstance(value, Rule):
        return "give a number; gradclip.clip_(grads, rule) takes the rule."
    if isinstance(value, type) and getattr(value, "follows_the_run", False):
        return "make one: gradclip.Adaptive(gradclip.limits.quantile(0.9))."
    if callable(getattr(value, "observe", None)):
        return "gradclip.Adaptive(limit) has the state of a limit that follows the run."
    if isinstance(value, Mapping) and value and all(map(_is_limit, value.values())):
        return "a group has its own limit: [Group(rule(l), name) for name, l in limits.items()]."
    if isinstance(value, (list, tuple)) and value and all(map(_is_limit, value)):
        return "a group has its own limit: [Group(rule(l), str(i)) for i, l in enumerate(limits)]."
    return _GRADIENTS_FIRST if isinstance(value, (list, tuple, dict)) or callable(value) else ""


def _is_limit(x: object) -> bool:
    is_number = isinstance(x, (int, float)) or getattr(x, "shape", None) == ()  # else a gradient
    return is_number or follows_run(x)


def _number(name: str, value: float) -> float:
    if value != value:
        raise not_a_number(name)
    return value


def not_a_number(name: str) -> ArgumentError:
    """The error for a limit or a bound of NaN."""
    return ArgumentError(f"{name} must be a number, not NaN.", f"{name}=nan")


def follows_run(limit: object) -> bool:
    """Whether a limit follows the run: :class:`gradclip.Adaptive` does."""
    return getattr(limit, "follows_the_run", False) is True and not isinstance(limit, type)


if TYPE_CHECKING:

    class EachRule(Rule):
        """A rule without one norm over all gradients: it has one for each gradient, slice or example, or none."""

else:
    EachRule = Rule
