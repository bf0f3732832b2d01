"""What is put to the test: the protocol, the names of operations and features, and a target made of one function."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from gradclip.conformance.timed import Timed
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.spelling import did_you_mean, nearest, same

__all__ = [
    "DEFAULT_CLAIMS",
    "FEATURES",
    "OPERATIONS",
    "OPTIONAL_MEMBERS",
    "OPTIONS",
    "REPORTS_NORM",
    "ComposedTarget",
    "Run",
    "Target",
    "dialect_of",
    "function_target",
    "load_arrays",
    "named_like",
]

#: operation -> the names of its arguments, in the native's order; gradients apart
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "torch.clip_grad_norm_": ("max_norm", "norm_type", "error_if_nonfinite"),
    "torch.clip_grad_value_": ("clip_value",),
    "tensorflow.clip_by_norm": ("clip_norm", "axes"),
    "tensorflow.clip_by_global_norm": ("clip_norm", "use_norm"),
    "tensorflow.clip_by_value": ("clip_value_min", "clip_value_max"),
    "paddle.ClipGradByNorm": ("clip_norm",),
    "paddle.ClipGradByGlobalNorm": ("clip_norm", "auto_skip_clip"),
    "paddle.ClipGradByValue": ("max", "min"),
    "paddle.clip_grad_norm_": ("max_norm", "norm_type", "error_if_nonfinite"),
    "optax.clip_by_global_norm": ("max_norm",),
    "optax.clip": ("max_delta",),
    "optax.clip_by_block_rms": ("threshold",),
    "optax.adaptive_grad_clip": ("clipping", "eps", "axis", "parameters"),
    "optax.per_example_global_norm_clip": ("l2_norm_clip",),
    "keras.clipnorm": ("clipnorm",),
    "keras.global_clipnorm": ("global_clipnorm",),
    "keras.clipvalue": ("clipvalue",),
}

_ALIASES: Mapping[str, str] = {"tf": "tensorflow", "pytorch": "torch", "jax": "optax"}

#: the operations whose native returns the norm
REPORTS_NORM = ("torch.clip_grad_norm_", "tensorflow.clip_by_global_norm", "paddle.clip_grad_norm_")

#: feature -> what a target that claims it can do
FEATURES: Mapping[str, str] = {
    **{
        dtype: f"gradients of {dtype}"
        for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int32", "int64", "bool")
    },
    "norm_type": "the order of the norm",
    "error_if_nonfinite": "to raise where the norm is not finite",
    "axes": "the norm over some of a gradient's axes",
    "axis": "the axes of a unit",
    "eps": "the least norm of a parameter",
    "use_norm": "a norm that is known already",
    "auto_skip_clip": "to clip only where the norm is above the limit",
    "min": "a lower bound of its own",
    "array limit": "the limit as an array of the framework",
    "numpy limit": "the limit as a NumPy number",
    "text limit": "the limit as text",
    "none": "None among the gradients",
    "several": "more than one gradient",
    "empty": "no gradients, or gradients without elements",
    "twice": "the same gradient listed twice",
    "iterator": "the gradients from an iterator",
    "mixed": "several dtypes in one call",
    "sparse": "sparse gradients, duplicate rows included",
    "transposed": "gradients that lie transposed in memory",
    "strided": "gradients that lie apart in memory",
    "expanded": "gradients that are one value in memory",
    "scalar": "gradients without axes",
    "extreme": "gradients whose squares leave the dtype",
    "subnormal": "subnormal numbers",
    "large": "more than 2**20 elements",
    "in place": "the inputs themselves are clipped",
    "functional": "the inputs stay as they are",
    "norm": "the norm before the clip is returned, as a 0-d tensor (gradclip's own on every device) or as a number",
    "traced": "the clip can be traced (compiled)",
    "differentiable": "derivatives through the clip",
}

#: the features that are optional arguments, each claimed for the operations that have it
OPTIONS = frozenset({"norm_type", "error_if_nonfinite", "axes", "axis", "eps", "use_norm", "auto_skip_clip", "min"})

#: what a plain function claims unless it is said; with "functional" or "in place", and "norm" if it returns one
DEFAULT_CLAIMS = frozenset({"float32", "several"})

_OF_PARAMETERS = ("torch.clip_grad_norm_", "torch.clip_grad_value_", "paddle.clip_grad_norm_")  # natively
_TRIAL = 5.0  # seconds for the trial call of a plain function

#: what a target may have beside its five members, where it claims a feature that needs it
OPTIONAL_MEMBERS = ("versions", "device", "make_layout", "make_sparse", "trace", "derivative")


#: carries an operation out: (gradients, arguments) -> (gradients, norm or None)
Run = Callable[[Iterable[Any], dict[str, Any]], tuple[Sequence[Any], Any]]


class Target(Protocol):
    """An implementation of some operations. Structural: any object with these members is one, and needs no gradclip.

    Optional members, used where a feature is claimed: ``versions`` (a mapping of names to versions) and ``device`` (text), for
    the report; ``make_layout(values, shape, dtype, layout)`` for "transposed", "strided" and "expanded"; ``make_sparse(rows,
    values, shape, dtype)``, of which ``read`` gives the dense values; ``trace(function)``, the traced form of a function from a
    list of arrays to a list of arrays; ``derivative(function, arrays)``, that of the sum of all its outputs by each array.
    """

    name: str  #: "torch 2.13.0", "my_clip"
    claims: Mapping[str, Collection[str]]  #: operation -> the features it claims; an operation not in it is unclaimed

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> Any:
        """An array. ``values``: Python numbers row by row; ``dtype``: its common name ("float32", "bfloat16")."""

    def read(self, array: Any) -> tuple[Sequence[Any], Sequence[int], str]:
        """The same back, exactly: values, shape, dtype."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
        """Clip.

        Args:
            operation: one of ``OPERATIONS``.
            gradients: a list, or for the feature "iterator" an iterator, of arrays and None.
            arguments: by the native's own names: numbers, text, lists of ints, None, arrays.

        Returns:
            The gradients after the clip in the same order, None where None was; and the norm, or None if there is none.
        """


def dialect_of(operation: str) -> str:
    """Whose operation it is.

    >>> dialect_of("torch.clip_grad_norm_")
    'torch'
    """
    return operation.partition(".")[0]


def named_like(name: str, known: Iterable[str], what: str, argument: str) -> str:
    """The known dialect or operation of a name, which may be spelt as the rule is, ``torch.clip_grad_norm``, or ``tf.``.

    Raises:
        ValueError: ``what``, with the nearest names, if there is none.
    """
    first, dot, rest = name.partition(".")
    full = f"{_ALIASES.get(first, first)}{dot}{rest}"
    found = same(full, known)
    if found is None:
        hint = did_you_mean(nearest(full, known)) or f"one of {', '.join(known)}."
        raise ArgumentError(what, f"{argument}={name!r}", hint)
    return found


def load_arrays(arrays: Any) -> Any:
    """The arrays of a framework by its name; anything else that has ``make`` and ``read`` is itself."""
    if not isinstance(arrays, str):
        return arrays
    try:
        module = importlib.import_module(f"gradclip.backends.targets.{arrays}")
    except ModuleNotFoundError as error:
        hint = "numpy, torch, tensorflow, paddle, jax or keras, where it is installed; or an object with make and read."
        raise ArgumentError("There are no arrays of this name.", f"arrays={arrays!r} ({error})", hint) from error
    return module.arrays


class ComposedTarget:
    """A target put together: the arrays of a framework, with functions that carry operations out on them."""

    def __init__(
        self,
        name: str,
        arrays: Any,
        claims: Mapping[str, Collection[str]],
        runs: Mapping[str, Run],
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.make, self.read = arrays.make, arrays.read
        self.arrays, self.runs = arrays, runs
        self._claims = claims
        if versions is not None:
            self.versions = versions

    @property
    def claims(self) -> Mapping[str, Collection[str]]:
        return self._claims

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONAL_MEMBERS:  # they are those of the arrays
            return getattr(self.arrays, name)
        raise AttributeError(name)

    def run(self, operation: str, gradients: Iterable[Any], arguments: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
        return self.runs[operation](gradients, dict(arguments))


class FunctionTarget(ComposedTarget):
    """One function, as a target."""

    def __init__(
        self,
        function: Callable[..., Any],
        operation: str,
        arrays: Any,
        claims: Collection[str] | None,
        in_place: bool | None,
        name: str,
        takes: str | None = None,
    ) -> None:
        super().__init__(name, arrays, {}, {operation: self._call})
        self._hold = getattr(arrays, "hold", None) if (takes or _taken(function, operation)) == "parameters" else None
        self._can_hold = self._hold is None and hasattr(arrays, "hold")
        self._function, self._operation = function, operation
        self._is_tried = operation in REPORTS_NORM or operation.endswith("_")  # others have nothing to find out
        self._said, self._in_place = claims, in_place if self._is_tried else bool(in_place)

    @cached_property
    def claims(self) -> Mapping[str, Collection[str]]:
        """What was said, else the defaults, the optional arguments that the function has, and "norm" where it returns one."""
        if self._said is not None:
            return {self._operation: frozenset(self._said)}
        clipped, norm = self._tried() if self._is_tried else ((), None)
        in_place = clipped is None if self._in_place is None else self._in_place
        claims = {*DEFAULT_CLAIMS, "in place" if in_place else "functional"}
        claims |= _parameters(self._function).keys() & set(OPERATIONS[self._operation][1:]) & FEATURES.keys()
        if self._operation in REPORTS_NORM and norm is not None:
            claims.add("norm")
        return {self._operation: frozenset(claims)}

    @cached_property
    def hint(self) -> str:
        """What to say with each failure: that a function of gradients returns 0 for some, or raises, may take parameters."""
        if not self._can_hold or not self._is_tried:
            return ""
        try:
            _, norm = Timed(_TRIAL)(lambda: self._trial())
            nothing = norm is not None and float(self.read(norm)[0][0] if not isinstance(norm, (int, float)) else norm) == 0
        except (Exception, SystemExit):
            nothing = True
        return "a function of parameters is handed these with --takes parameters" if nothing else ""

    def _trial(self) -> tuple[Any, Any]:
        gradients, arguments = [self.make([3.0, 4.0], [2], "float32")], {OPERATIONS[self._operation][0]: 1.0}
        return self._parts(self._result(gradients, arguments))

    def _tried(self) -> tuple[Any, Any]:
        """What a trial call returns: gradients and norm, as :meth:`_parts` has them."""
        try:
            found: tuple[Any, Any] = Timed(_TRIAL)(self._trial)
        except (Exception, SystemExit):  # what is wrong with it, the cases say one by one
            return None if self._hold else (), None
        return (None, found[1]) if self._hold else found

    def _call(self, gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        held = list(gradients)
        if self._hold is not None:
            return self._on_parameters(held, isinstance(gradients, Iterator), arguments)
        clipped, norm = self._parts(self._result(iter(held) if isinstance(gradients, Iterator) else gradients, arguments))
        return (held if clipped is None and self._in_place is not False else clipped), norm

    def _on_parameters(self, held: list[Any], is_iterator: bool, arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        """Through parameters that hold the gradients."""
        assert self._hold is not None
        parameters = self._hold(held)
        _, norm = self._parts(self._called(iter(parameters) if is_iterator else parameters, arguments))
        return [parameter.grad for parameter in parameters], norm

    def _result(self, gradients: Iterable[Any], arguments: dict[str, Any]) -> Any:
        return self._called(gradients if self._hold is None else self._hold(list(gradients)), arguments)

    def _called(self, first: Any, arguments: dict[str, Any]) -> Any:
        positional, named = _bound(self._function, self._operation, arguments)
        return self._function(first, *positional, **named)

    def _parts(self, result: Any) -> tuple[Any, Any]:
        """What the function returned: its gradients, or None where it returns none; and its norm, or None."""
        if isinstance(result, tuple) and len(result) == 2 and (result[0] is None or isinstance(result[0], (list, tuple))):
            return result
        return (None, result) if self._is_norm(result) else (result, None)

    def _is_norm(self, result: Any) -> bool:
        """Whether it is one number, or nothing."""
        if result is None or isinstance(result, (int, float)):
            return True
        try:
            return not isinstance(result, (list, tuple)) and len(self.read(result)[0]) == 1
        except Exception:  # it is no array
            return False


def function_target(
    function: Callable[..., Any],
    operation: str,
    arrays: Any = "numpy",
    claims: Collection[str] | None = None,
    in_place: bool | None = None,
    name: str | None = None,
    takes: str | None = None,
) -> FunctionTarget:
    """A target made of one function, such as ``def my_clip(grads, max_norm): ...``.

    Args:
        function: takes a list of gradients, then the operation's arguments: by their native names where it has parameters
            of these names, else in the native's order. Returns the clipped gradients, or them and the norm; one that clips in
            place may return the norm alone, or None.
        operation: one of :data:`OPERATIONS`: what the function claims to mean.
        arrays: what it takes: the name of a framework, or an object with ``make`` and ``read`` as :class:`Target` has them.
        claims: some of :data:`FEATURES`; if None :data:`DEFAULT_CLAIMS`, the optional arguments that the function names, and
            "norm" where a trial call returns one.
        in_place: whether it clips the gradients themselves; if None it does where the native does too and a trial call returns
            no gradients.
        name: for the report; the function's own if None.
        takes: "gradients", or "parameters" that hold them in ``grad``; if None the name of the function's first argument says,
            else the operation: torch's functions and Paddle's ``clip_grad_norm_`` take parameters, where the arrays have such.

    Raises:
        ValueError: for an operation that is not known.
        TypeError: for what cannot be called.

    >>> from gradclip.conformance import function_target
    >>> function_target(lambda grads, max_norm: grads, "optax.clip_by_global_norm", name="no clip").name
    'no clip'
    """
    operation = named_like(operation, OPERATIONS, "There is no operation of this name.", "operation")
    if not callable(function):
        raise ArgumentTypeError("function must be callable.", f"function={function!r}")
    name = name or str(getattr(function, "__name__", type(function).__name__))
    return FunctionTarget(function, operation, load_arrays(arrays), claims, in_place, name, takes)


def _taken(function: Callable[..., Any], operation: str) -> str:
    """What a function is handed, by its first argument's name or its operation."""
    first = next(iter(_parameters(function)), "")
    if re.search(r"param|weight|model|module", first):
        return "parameters"
    if re.search(r"grad|^gs?$|tensor|update|tree|^t_list$|^t$|^x$", first):
        return "gradients"
    return "parameters" if operation in _OF_PARAMETERS else "gradients"


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have none
        return {}


def _bound(function: Callable[..., Any], operation: str, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that go by position, and those that go by name."""
    parameters = _parameters(function)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    named = {
        name
        for name in arguments
        if takes_any or (name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY)
    }
    if any(name in arguments and name not in named for name in OPERATIONS[operation]):
        return [arguments[name] for name in OPERATIONS[operation] if name in arguments], {}
    return [], dict(arguments)
