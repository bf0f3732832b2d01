"""gradclip itself as a target, on any framework's arrays; and the natives."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gradclip
from gradclip import dialects
from gradclip.conformance.array import DTYPES
from gradclip.conformance.target import FEATURES, MEMBERS, OPERATIONS, OPTIONS, ComposedTarget, Run, load_arrays
from gradclip.core.errors import ArgumentError, GradclipError
from gradclip.natives import Applied, Native

__all__ = ["claims_of", "features_of", "gradclip_target", "native_target", "natives_of", "scoped"]

#: features that depend on the arrays or on the operation
_CONDITIONAL = {*DTYPES, *MEMBERS, "in place", "functional", "norm"}


def gradclip_target(arrays: Any, *, name: str | None = None) -> ComposedTarget:
    """gradclip on a framework's arrays, as a target that claims all operations, and all features that the arrays can have.

    Args:
        arrays: the name of a framework ("torch"). For a backend of your own: an object with ``make`` and ``read`` like those of
            :class:`Target`, and any of its optional members; ``lacks`` lists features that the arrays do not have, such as
            "subnormal". A target is such an object too.
        name: for the report.

    Returns:
        A target. torch's, TensorFlow's and Paddle's operations use gradclip's functions of these names, the others
        use :func:`gradclip.clip`.

    Raises:
        ValueError: for a framework without arrays here, or that is not installed.

    >>> from gradclip.conformance import gradclip_target
    >>> target = gradclip_target("numpy")
    >>> [feature for feature in ("in place", "traced") if feature in target.claims["torch.clip_grad_norm_"]]
    ['in place']
    """
    arrays = load_arrays(arrays)
    if name is None:
        of = getattr(arrays, "name", type(arrays).__name__)
        name = f"gradclip on {of}"
    can_write = _can_write(arrays)
    features = features_of(arrays)
    claims, runs = {}, {}
    for operation, native in OPERATIONS.items():
        claims[operation] = _claims(native, features, can_write and native.in_place)
        if can_write and native.framework == "torch":
            claims[operation] -= frozenset(getattr(arrays, "held_lacks", ()))
        runs[operation] = scoped(arrays, _run(native, arrays, can_write))
    target = ComposedTarget(name, arrays, claims, runs)
    target.strict = True
    return target


def native_target(framework: str) -> ComposedTarget:
    """The framework's own functions as a target: "torch", "tensorflow", "paddle", "optax", or "keras" on its current backend.

    Raises:
        ValueError: for a framework without a clip of its own, or that is not installed.
    """
    module = "jax" if framework == "optax" else framework
    try:
        native = importlib.import_module(f"gradclip.backends.targets.{module}").native
    except (ModuleNotFoundError, AttributeError) as error:
        hint = "torch, tensorflow, paddle, optax or keras, where it is installed."
        raise ArgumentError("There is no native of this name.", f"framework={framework!r} ({error})", hint) from error
    target: ComposedTarget = native()
    target.strict = True  # what it does in another way is declared
    return target


def features_of(arrays: Any) -> frozenset[str]:
    """The features that arrays can have: it tries each dtype; the others follow from the optional members."""
    found = {dtype for dtype in DTYPES if _holds(arrays, dtype)}
    found |= {feature for feature, member in MEMBERS.items() if getattr(arrays, member, None) is not None}
    return frozenset(found | (FEATURES.keys() - _CONDITIONAL)) - frozenset(getattr(arrays, "lacks", ()))


def _holds(arrays: Any, dtype: str) -> bool:
    one: Any = True if dtype == "bool" else 1 if dtype.startswith("int") else 1.0 + 0j if dtype.startswith("complex") else 1.0
    try:
        values, shape, name = arrays.read(arrays.make([one], [1], dtype))
    except Exception:  # a framework may raise anything for an unknown dtype
        return False
    return name == dtype and list(values) == [one] and list(shape) == [1]


def _can_write(arrays: Any) -> bool:
    """Whether gradclip clips these arrays in place; it tries."""
    array = arrays.make([4.0], [1], "float32")
    try:
        gradclip.clip_([array], dialects.optax.clip(1.0))
    except GradclipError:
        return False
    return list(arrays.read(array)[0]) == [1.0]


def _are_gradients(arrays: Any) -> bool:
    """Whether torch's functions treat these arrays as gradients, not as parameters; it tries."""
    array = arrays.make([4.0], [1], "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that no parameter has a gradient
        gradclip.clip_grad_value_([array], 1.0)
    return list(arrays.read(array)[0]) == [1.0]


def _claims(native: Native, features: Collection[str], in_place: bool) -> frozenset[str]:
    claims = set(claims_of(native, features, in_place))
    if in_place:
        claims -= {"traced", "differentiable", "expanded"}  # a pure function; writable memory
    if native.applied is Applied.SLOT:
        claims.discard("differentiable")  # Paddle calls these objects without autograd
    if native.applied is Applied.TENSOR:
        claims.discard("none")
    if native.rule().scope is gradclip.Scope.EXAMPLE:
        claims.discard("sparse")  # sparse gradients have no examples along their first axis
    return frozenset(claims)


def claims_of(native: Native, features: Collection[str], in_place: bool) -> frozenset[str]:
    """The claims of an implementation of a native: the features, with the options that the native has."""
    claims = set(features) - (OPTIONS - set(native.arguments)) - {"in place", "functional"}
    return frozenset(claims | {"in place" if in_place else "functional"} | ({"norm"} if native.returns_norm else set()))


def natives_of(framework: str, features: Collection[str]) -> tuple[dict[str, Native], dict[str, frozenset[str]]]:
    """A framework's natives by their operations, and the claims of each."""
    found = {operation: native for operation, native in OPERATIONS.items() if native.framework == framework}
    return found, {operation: claims_of(native, features, native.in_place) for operation, native in found.items()}


def scoped(arrays: Any, run: Run) -> Run:
    """The function under the arrays' own ``scope(gradients, arguments)``, if they have one: JAX's 64 bits."""
    scope: Callable[..., AbstractContextManager[Any]] = getattr(arrays, "scope", lambda gradients, arguments: nullcontext())

    def scoped(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        listed = list(gradients)
        with scope(listed, arguments):
            return run(iter(listed) if isinstance(gradients, Iterator) else listed, arguments)

    return scoped


# ---- gradclip's functions ---------------------------------------------------------------------------------------------------


def _run(native: Native, arrays: Any, can_write: bool) -> Run:
    """How gradclip runs a native's operation."""
    function: Any = getattr(gradclip, native.last, None)
    if function is not None:
        if native.framework == "torch" and can_write and (hasattr(arrays, "hold") or _are_gradients(arrays)):
            return lambda gradients, arguments: _on_holders(arrays, function, gradients, arguments)
        if native.applied is Applied.SLOT:
            return lambda gradients, arguments: _on_pairs(function, gradients, arguments)
        if native.applied is Applied.TENSOR:
            return lambda gradients, arguments: ([function(g, **arguments) for g in gradients], None)
        if native.applied is Applied.TENSORS and native.returns_norm:
            return lambda gradients, arguments: function(gradients, **arguments)
    in_place = can_write and native.in_place

    def by_rule(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        clipped, norm = _by_rule(native, in_place, gradients, arguments)
        return clipped, norm if native.returns_norm else None

    return by_rule


def _by_rule(native: Native, in_place: bool, gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
    params = arguments.pop("parameters", None)
    rule = native.function(**arguments)
    result = (gradclip.clip_ if in_place else gradclip.clip)(gradients, rule, params=params)
    return list(result.grads), result.norm


def _on_pairs(kind: Any, gradients: Iterable[Any], arguments: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
    """Clip ``(parameter, gradient)`` pairs; the result lacks those without a gradient."""
    listed = list(gradients)
    pairs = [(f"parameter {i}", gradient) for i, gradient in enumerate(listed)]
    clipped = dict(kind(**arguments)(iter(pairs) if isinstance(gradients, Iterator) else pairs))
    return [clipped.get(f"parameter {i}") for i in range(len(listed))], None


def _on_holders(
    arrays: Any, function: Any, gradients: Iterable[Any], arguments: Mapping[str, Any]
) -> tuple[Sequence[Any], Any]:
    """Clip parameters that hold their gradient, if the framework has such parameters; else the gradients."""
    listed = list(gradients)
    hold = getattr(arrays, "hold", None)
    parameters = listed if hold is None else hold(listed)
    norm = function(iter(parameters) if isinstance(gradients, Iterator) else parameters, **arguments)
    return (listed if hold is None else [parameter.grad for parameter in parameters]), norm
