"""Objects for a framework's slot as targets: Paddle's for ``grad_clip=``, optax's transformations, Keras's optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gradclip.conformance.adapted import features_of, scoped
from gradclip.conformance.calling import parameters_of
from gradclip.conformance.target import DEFAULT_CLAIMS, FEATURES, OPERATIONS, ComposedTarget, load_arrays

__all__ = ["makes_slot", "slot_target"]


def makes_slot(function: Callable[..., Any], operation: str) -> bool:
    """Whether a callable takes an operation's limit and no gradients: it makes an object, such as ``optax.clip(max_delta)``."""
    parameters = list(parameters_of(function).values())
    limit = OPERATIONS[operation].arguments[0]
    needed = [one for one in parameters if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if [one.name for one in needed] == [limit] or (not needed and any(one.name == limit for one in parameters)):
        return True
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return (
        isinstance(function, type) and not needed and takes_any
    )  # an optimizer of Keras: SGD(learning_rate=0.01, ..., **kwargs)


def slot_target(make: Callable[..., Any], operation: str, arrays: Any = "numpy") -> ComposedTarget:
    """A target from a function that makes an object for a slot.

    Args:
        make: takes the operation's arguments by their names. Its result has ``init`` and ``update``, like optax's
            transformations; ``_clip_gradients``, like Keras's optimizers; or is called with ``(parameter, gradient)`` pairs,
            like Paddle's ``grad_clip=``.
        operation: the one that the object claims to be.
        arrays: the name of a framework, or an object with ``make`` and ``read``.

    >>> from gradclip.conformance.slots import makes_slot
    >>> makes_slot(lambda max_norm: None, "optax.clip_by_global_norm"), makes_slot(lambda grads, max_norm: grads, "optax.clip")
    (True, False)
    """
    arrays = load_arrays(arrays)
    options = {one for one in OPERATIONS[operation].arguments[1:] if one in FEATURES and one in parameters_of(make)}
    claims = (DEFAULT_CLAIMS & features_of(arrays)) | options | {"in place" if OPERATIONS[operation].in_place else "functional"}

    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        parameters = arguments.pop("parameters", None)
        return _through(make(**arguments), gradients, parameters, arrays), None

    name = str(getattr(make, "__name__", type(make).__name__))
    return ComposedTarget(name, arrays, {operation: claims}, {operation: scoped(arrays, run)})


def _through(slot: Any, gradients: Iterable[Any], parameters: Sequence[Any] | None, arrays: Any) -> Sequence[Any]:
    listed = list(gradients)
    if hasattr(slot, "init") and hasattr(slot, "update"):
        given = listed if parameters is None else list(parameters)
        updates, _ = slot.update(listed, slot.init(given), given)
        return list(updates)
    if hasattr(slot, "_clip_gradients") and hasattr(slot, "apply_gradients"):  # Paddle's objects have the former too
        return list(slot._clip_gradients(listed))
    hold = getattr(arrays, "hold", None)
    first = hold(listed) if hold is not None else [f"parameter {number}" for number in range(len(listed))]
    pairs = list(zip(first, listed, strict=True))
    clipped = iter([g for _, g in slot(iter(pairs) if isinstance(gradients, Iterator) else pairs) if g is not None])
    return [None if gradient is None else next(clipped) for gradient in listed]
