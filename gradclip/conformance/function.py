"""A target from one function: its arguments, its results, and its claims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gradclip
from gradclip.conformance.calling import FORMS, HELD, TAKES, bound, formed, main_of, options_of, required_roles, role_of
from gradclip.conformance.target import DEFAULT_CLAIMS, OPERATIONS, ComposedTarget, load_arrays, named_like
from gradclip.conformance.timed import Hung, Timed
from gradclip.core.errors import ArgumentError, ArgumentTypeError
from gradclip.natives import Applied

__all__ = ["FunctionTarget", "function_target"]

_TRIAL = 5.0  # seconds for a trial call of a function


@dataclass(frozen=True)
class _Tried:
    """What a trial call did."""

    error: str = ""  #: the exception
    norm: Any = None
    returned: bool = False  #: gradients
    wrote: bool = False  #: into the gradients' own memory
    clipped: bool = False


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
        tries: bool = True,
    ) -> None:
        super().__init__(name, arrays, {}, {operation: self._call})
        self._function, self._operation, self._native = function, operation, OPERATIONS[operation]
        self._takes, self._said, self._in_place = takes, claims, in_place
        self._tries = tries
        self._choice: tuple[str, _Tried] | None = None

    @cached_property
    def claims(self) -> Mapping[str, Collection[str]]:
        """The given claims; else the defaults, the function's optional arguments, and "norm" if it returns one."""
        if self._said is not None:
            return {self._operation: frozenset(self._said)}
        tried = self._chosen[1]
        claims = {*DEFAULT_CLAIMS, "in place" if self._writes(tried) else "functional"}
        claims |= options_of(self._function, self._native)
        if self._native.returns_norm and tried.norm is not None:
            claims.add("norm")
        return {self._operation: frozenset(claims)}

    @property
    def error(self) -> str:
        """The exception of a trial call; "" if there was none."""
        return self._chosen[1].error

    def _writes(self, tried: _Tried) -> bool:
        """Whether it clips in place: by the option, else by the trial call."""
        if self._in_place is not None:
            return self._in_place
        if self._chosen[0] in HELD:
            return tried.wrote or not tried.clipped
        return not (tried.error or tried.returned)

    # ---- the form of the gradients ------------------------------------------------------------------------------------------

    @property
    def _chosen(self) -> tuple[str, _Tried]:
        """The form that the function takes, and the trial call in it.

        That of the option; else that of the names, if the call does not raise; else the first in which something is clipped.
        """
        if self._choice is None:
            is_each = self._native.rule().scope not in (gradclip.Scope.GLOBAL, gradclip.Scope.EXAMPLE)
            forms = [form for form in FORMS if self._can_make(form) and (is_each or not form.startswith("each "))]
            main = main_of(self._function, self._native)
            named = self._takes or ("" if main is None else role_of(main))
            usual = named or ("parameters" if self._native.applied is Applied.PARAMETERS else "gradients")
            first = usual if usual in forms else "gradients"
            self._choice = first, _Tried("a trial call hangs")  # for a case that starts meanwhile
            if not self._tries:
                return self._choice
            if self._takes is not None:
                forms = []
            elif named in HELD and named in forms:  # its name says that it takes no gradients
                forms = [form for form in forms if form in HELD]
            self._choice = self._first_that_clips(first, bool(named), forms)
        return self._choice

    def _first_that_clips(self, first: str, is_named: bool, forms: Iterable[str]) -> tuple[str, _Tried]:
        known = tried = self._tried(first)
        if tried.clipped or (is_named and not tried.error):
            return first, tried
        for form in forms:
            if form != first and not tried.error.startswith(Hung.__name__):
                tried = self._tried(form)
                if tried.clipped:
                    return form, tried
        return first, known

    def _can_make(self, form: str) -> bool:
        if form not in HELD:
            return True
        return hasattr(self.arrays, "hold") and (form not in ("model", "optimizer") or hasattr(self.arrays, form))

    def _tried(self, form: str) -> _Tried:
        """A trial call, with two gradients of different shapes."""
        timed = Timed(_TRIAL)
        try:
            found: _Tried = timed(lambda: self._trial(form))
        except (Exception, SystemExit) as error:  # each case will report the error
            return _Tried(f"{type(error).__name__}: {error}")
        finally:
            timed.close()
        return found

    def _trial(self, form: str) -> _Tried:
        front = (1,) if self._native.rule().scope is gradclip.Scope.EXAMPLE else ()
        values = [[3.0, -4.0], [12.0, -84.0, 5.0]]
        gradients = [self.make(one, [*front, len(one)], "float32") for one in values]
        *lower, limit = self._native.needed
        arguments: dict[str, Any] = {limit: 1.0, **dict.fromkeys(lower, -1.0)}
        if "parameters" in self._native.arguments:
            arguments["parameters"] = [self.make([1.0] * len(one), [len(one)], "float32") for one in values]
        returned, held, norm = self._results(form, gradients, arguments)
        wrote = self._values(gradients) != values
        result = gradients if held is None else [parameter.grad for parameter in held]
        if returned is not None and self._values(result) == values:
            listed = list(returned)
            if form.startswith("each ") and list(map(len, self._values(listed))) != list(map(len, values)):
                raise ValueError("The result has another size.")
            return _Tried("", norm, True, wrote, self._values(listed) != values)
        is_input = returned is not None and all(a is b for a, b in zip(returned, gradients, strict=False))
        is_result = held is None and returned is not None and not (is_input and self._native.in_place)
        return _Tried("", norm, is_result, wrote, self._values(result) != values)

    def _values(self, arrays: Iterable[Any]) -> list[list[float]]:
        return [list(map(float, self.read(array)[0])) for array in arrays]

    # ---- a call -------------------------------------------------------------------------------------------------------------

    def _call(self, gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        form, tried = self._chosen
        listed = list(gradients)
        given = iter(listed) if isinstance(gradients, Iterator) else gradients
        returned, held, norm = self._results(form, given, arguments, listed)
        if held is not None and not (tried.returned and returned is not None):
            return [parameter.grad for parameter in held], norm
        is_written = returned is None and held is None and self._in_place is not False
        return (listed if is_written else returned), norm  # type: ignore[return-value]  # the suite reports what is no list

    def _results(
        self, form: str, given: Any, arguments: dict[str, Any], listed: list[Any] | None = None
    ) -> tuple[Sequence[Any] | None, list[Any] | None, Any]:
        """The gradients that the function returns, the parameters that hold them, and the norm; each may be None."""
        listed = given if listed is None else listed
        held, values = None, arguments.get("parameters")
        if form in HELD:
            arguments = {name: value for name, value in arguments.items() if name != "parameters"}
            held = list(self.arrays.hold(listed) if values is None else self.arrays.hold(listed, values))
        if form.startswith("each "):
            return self._each(listed, held, arguments), held, None
        if form == "parameters":
            first = iter(held or ()) if isinstance(given, Iterator) else held
        else:
            first = given if form == "gradients" else formed(form, self.arrays, listed, held)
        clipped, norm = self._parts(self._called(first, arguments, listed, held, values))
        if held is not None and clipped is not None and any(one is parameter for one in clipped for parameter in held):
            clipped = None  # the parameters themselves
        return clipped, held, norm

    def _each(self, listed: list[Any], held: list[Any] | None, arguments: dict[str, Any]) -> list[Any] | None:
        """The results of a function that takes one tensor."""
        values, found = arguments.get("parameters", [None] * len(listed)), []
        for number, gradient in enumerate(listed):
            ours = {**arguments, "parameters": values[number]} if "parameters" in arguments else arguments
            if gradient is not None:
                first = gradient if held is None else held[number]
                one = self._called(first, ours, [gradient], None if held is None else [first], values[number])
                gradient = one[0] if isinstance(one, tuple) and one else one
            found.append(gradient)
        nothing = all(one is None for one in found) and any(one is not None for one in listed)
        return None if nothing or held is not None else found

    def _called(
        self, first: Any, arguments: Mapping[str, Any], listed: list[Any], held: list[Any] | None, values: Any = None
    ) -> Any:
        others: dict[str, Any] = {}
        for role in required_roles(self._function, self._native):
            if role == "parameters" and held is None and values is not None:
                others[role] = values
                arguments = {name: value for name, value in arguments.items() if name != "parameters"}
            elif role in HELD and self._can_make(role):
                others[role] = formed(role, self.arrays, listed, self.arrays.hold(listed) if held is None else held)
        positional, named = bound(self._function, self._native, first, arguments, others)
        return self._function(*positional, **named)

    def _parts(self, result: Any) -> tuple[Sequence[Any] | None, Any]:
        """The function's result: its gradients or None, and its norm or None."""
        if isinstance(result, tuple) and len(result) == 2:
            for one, other in (result, result[::-1]):
                if (one is None or isinstance(one, (list, tuple, Mapping))) and not isinstance(other, (list, tuple, Mapping)):
                    return _listed(one), other
        return (None, result) if self._is_norm(result) else (_listed(result), None)

    def _is_norm(self, result: Any) -> bool:
        """Whether it is one number, or None."""
        if result is None or isinstance(result, (int, float)):
            return True
        try:
            return not isinstance(result, (list, tuple, Mapping)) and len(self.read(result)[0]) == 1
        except Exception:  # it is not an array
            return False


def _listed(gradients: Any) -> Any:
    return list(gradients.values()) if isinstance(gradients, Mapping) else gradients


def function_target(
    function: Callable[..., Any],
    operation: str,
    arrays: Any = "numpy",
    claims: Collection[str] | None = None,
    in_place: bool | None = None,
    name: str | None = None,
    takes: str | None = None,
    tries: bool = True,
) -> FunctionTarget:
    """A target from one function, such as ``def my_clip(grads, max_norm): ...``.

    Args:
        function: takes the gradients, then the operation's arguments: by their native names if it has parameters of
            these names, else in the native's order. It returns the clipped gradients, or the gradients and the norm. A
            function that clips in place may return only the norm, or None.
        operation: the one of :data:`OPERATIONS` that the function claims to be.
        arrays: its arrays: the name of a framework, or an object with ``make`` and ``read`` as :class:`Target` has them.
        claims: some of :data:`FEATURES`; if None :data:`DEFAULT_CLAIMS`, the optional arguments that the function names, and
            "norm" where a trial call returns one.
        in_place: whether it clips in place; if None, a trial call tells: it does if it writes into the gradients, or
            returns none.
        name: for the report; the function's own if None.
        takes: a list of "gradients", or of "parameters" that hold them in ``grad``; a "model" or an "optimizer" with such
            parameters, or pairs of names and parameters ("named parameters"). If None, the name and the annotation of the
            function's first argument tell, else the operation: torch's functions and Paddle's ``clip_grad_norm_`` take
            parameters. A function that raises in a trial call is tried with the others.
        tries: whether trial calls are made, in this process; without them the names and the operation tell.

    Raises:
        ValueError: for an unknown operation, or an unknown word in ``takes``.
        TypeError: for an object that is not callable.

    >>> from gradclip.conformance import function_target
    >>> function_target(lambda grads, max_norm: grads, "optax.clip_by_global_norm", name="no clip").name
    'no clip'
    """
    operation = named_like(operation, OPERATIONS, "There is no operation of this name.", "operation")
    if not callable(function):
        raise ArgumentTypeError("function must be callable.", f"function={function!r}")
    if takes is not None and takes not in TAKES:
        raise ArgumentError("A function takes something else.", f"takes={takes!r}", f"one of {', '.join(TAKES)}.")
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    name = name or str(getattr(plain, "__name__", type(plain).__name__))
    return FunctionTarget(function, operation, load_arrays(arrays), claims, in_place, name, takes, tries)
