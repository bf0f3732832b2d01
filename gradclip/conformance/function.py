"""A target from one function: its arguments, its results, and its claims."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from gradclip.conformance.target import (
    DEFAULT_CLAIMS,
    FEATURES,
    OPERATIONS,
    ComposedTarget,
    load_arrays,
    named_like,
)
from gradclip.conformance.timed import Timed
from gradclip.errors import ArgumentTypeError
from gradclip.natives import Applied

__all__ = ["FunctionTarget", "function_target", "parameters_of"]

_TRIAL = 5.0  # seconds for the trial call of a function


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
        self._native = OPERATIONS[operation]
        # a trial call tells nothing about the others
        self._is_tried = self._native.returns_norm or self._native.applied is Applied.PARAMETERS
        self._said, self._in_place = claims, in_place if self._is_tried else bool(in_place)

    @cached_property
    def claims(self) -> Mapping[str, Collection[str]]:
        """The given claims; else the defaults, the function's optional arguments, and "norm" if it returns one."""
        if self._said is not None:
            return {self._operation: frozenset(self._said)}
        clipped, norm = self._tried() if self._is_tried else ((), None)
        in_place = clipped is None if self._in_place is None else self._in_place
        claims = {*DEFAULT_CLAIMS, "in place" if in_place else "functional"}
        claims |= parameters_of(self._function).keys() & set(self._native.arguments[1:]) & FEATURES.keys()
        if self._native.returns_norm and norm is not None:
            claims.add("norm")
        return {self._operation: frozenset(claims)}

    @cached_property
    def hint(self) -> str:
        """A hint for each failure: a function that returns 0 for gradients, or raises, may take parameters."""
        if not self._can_hold or not self._is_tried:
            return ""
        try:
            _, norm = Timed(_TRIAL)(lambda: self._trial())
            nothing = norm is not None and float(self.read(norm)[0][0] if not isinstance(norm, (int, float)) else norm) == 0
        except (Exception, SystemExit):
            nothing = True
        return "if the function takes parameters, pass --takes parameters" if nothing else ""

    def _trial(self) -> tuple[Any, Any]:
        gradients, arguments = [self.make([3.0, 4.0], [2], "float32")], {self._native.arguments[0]: 1.0}
        return self._parts(self._called(gradients if self._hold is None else self._hold(gradients), arguments))

    def _tried(self) -> tuple[Any, Any]:
        """The result of a trial call: gradients and norm, as :meth:`_parts` returns them."""
        try:
            found: tuple[Any, Any] = Timed(_TRIAL)(self._trial)
        except (Exception, SystemExit):  # each case will report the error
            return None if self._hold else (), None
        return (None, found[1]) if self._hold else found

    def _call(self, gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        listed, is_iterator = list(gradients), isinstance(gradients, Iterator)
        if self._hold is None:
            clipped, norm = self._parts(self._called(iter(listed) if is_iterator else gradients, arguments))
            return (listed if clipped is None and self._in_place is not False else clipped), norm
        parameters = self._hold(listed)
        _, norm = self._parts(self._called(iter(parameters) if is_iterator else parameters, arguments))
        return [parameter.grad for parameter in parameters], norm

    def _called(self, first: Any, arguments: dict[str, Any]) -> Any:
        positional, named = _bound(self._function, self._operation, arguments)
        return self._function(first, *positional, **named)

    def _parts(self, result: Any) -> tuple[Any, Any]:
        """The function's result: its gradients or None, and its norm or None."""
        if isinstance(result, tuple) and len(result) == 2 and (result[0] is None or isinstance(result[0], (list, tuple))):
            return result
        return (None, result) if self._is_norm(result) else (result, None)

    def _is_norm(self, result: Any) -> bool:
        """Whether it is one number, or None."""
        if result is None or isinstance(result, (int, float)):
            return True
        try:
            return not isinstance(result, (list, tuple)) and len(self.read(result)[0]) == 1
        except Exception:  # it is not an array
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
    """A target from one function, such as ``def my_clip(grads, max_norm): ...``.

    Args:
        function: takes a list of gradients, then the operation's arguments: by their native names if it has parameters of
            these names, else in the native's order. It returns the clipped gradients, or the gradients and the norm. A
            function that clips in place may return only the norm, or None.
        operation: the one of :data:`OPERATIONS` that the function claims to be.
        arrays: its arrays: the name of a framework, or an object with ``make`` and ``read`` as :class:`Target` has them.
        claims: some of :data:`FEATURES`; if None :data:`DEFAULT_CLAIMS`, the optional arguments that the function names, and
            "norm" where a trial call returns one.
        in_place: whether it clips in place; if None, it does if the native does and a trial call returns
            no gradients.
        name: for the report; the function's own if None.
        takes: "gradients", or "parameters" that hold them in ``grad``; if None, the name of the function's first argument
            decides, else the operation: torch's functions and Paddle's ``clip_grad_norm_`` take parameters, if the
            framework has them.

    Raises:
        ValueError: for an unknown operation.
        TypeError: for an object that is not callable.

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
    """What a function takes, from its first argument's name or its operation."""
    first = next(iter(parameters_of(function)), "")
    if re.search(r"param|weight|model|module", first):
        return "parameters"
    if re.search(r"grad|^gs?$|tensor|update|tree|^t_list$|^t$|^x$", first):
        return "gradients"
    return "parameters" if OPERATIONS[operation].applied is Applied.PARAMETERS else "gradients"


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, by name; none where it does not show them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


def _bound(function: Callable[..., Any], operation: str, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the keyword arguments."""
    parameters = parameters_of(function)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    named = {
        name
        for name in arguments
        if takes_any or (name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY)
    }
    known = OPERATIONS[operation].arguments
    if any(name in arguments and name not in named for name in known):
        return [arguments[name] for name in known if name in arguments], {}
    return [], dict(arguments)
