"""What people pass in the place of gradients: weights, states, losses. Each error names it, and says what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradclip.backend import Backend
from gradclip.errors import NotWritableError, TensorTypeError

__all__ = ["advice", "is_keras_variable", "keras_variable", "refuse_states"]

_KERAS = "A Keras variable is a weight, not a gradient."
_KERAS_HINT = (
    "pass the gradients: tape.gradient(loss, model.trainable_variables) on TensorFlow, the result of jax.grad on JAX, "
    "[v.value for v in model.trainable_variables] after loss.backward() on PyTorch."
)


def is_keras_variable(kind: type) -> bool:
    """Whether a type is that of Keras 3's variables, on whichever framework Keras runs."""
    bases = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    return any(root == "keras" and name in ("Variable", "KerasVariable") for root, name in bases)


def keras_variable(x: object) -> TensorTypeError:
    """The error for a variable of Keras in the place of a gradient."""
    return TensorTypeError(_KERAS, f"a variable named {getattr(x, 'name', None)!r}", _KERAS_HINT)


def advice(x: object) -> TensorTypeError | None:
    """The error for something that is no tensor, where its type says what was meant; None for all else."""
    kind = type(x)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_keras_variable(kind):
        return keras_variable(x)
    if isinstance(x, (str, bytes)):
        hint = "pass the tensors without their names, or as a dict: dict(model.named_parameters())."
        return TensorTypeError("A name is no tensor.", repr(x), hint)
    if callable(getattr(x, "parameters", None)):
        what = f"A {name} is neither a tensor nor a container of tensors."
        return TensorTypeError(what, name, "pass its parameters: model.parameters().")
    if any(base.__module__.partition(".")[0] == "keras" for base in kind.__mro__) and hasattr(x, "trainable_variables"):
        return TensorTypeError("A Keras model or layer is no gradient.", name, _KERAS_HINT)
    if callable(x):
        hint = (
            "pass the gradients: jax.grad(loss)(params). equinox.filter(model, equinox.is_inexact_array) keeps the arrays only."
        )
        return TensorTypeError("A function is no gradient.", name, hint)
    return None


def refuse_states(backend: Backend, tree: Any, present: Sequence[Any], owners: Sequence[Any]) -> None:
    """Refuse to write to weights, to an optimizer's state or to a loss, as far as these can be told from gradients.

    Args:
        backend: of the tensors.
        tree: the container that the caller gave.
        present, owners: what was found in it, as :class:`gradclip.registry.Gradients` has it.

    Raises:
        TypeError, ValueError, RuntimeError: one exception that is all three.
    """
    if type(tree) not in (list, tuple) and isinstance(tree, Mapping):
        if backend.is_tensor(next(iter(tree), None)):
            hint = "pass model.parameters()."
            raise NotWritableError("The state of an optimizer is no gradient.", f"a {type(tree).__name__}", hint)
        if hasattr(tree, "_metadata"):  # torch's Module.state_dict leaves it there; its tensors are the weights' own memory
            hint = "pass model.parameters(), or dict(model.named_parameters())."
            raise NotWritableError("A state_dict holds weights, not gradients.", f"a {type(tree).__name__}", hint)
        if any(x is None for x in owners) and any(x is not None for x in owners):
            hint = "pass the parameters alone; gradients that stand beside them belong in a call of their own."
            raise NotWritableError(
                "Beside parameters a tensor that is none is a buffer.", f"a {type(tree).__name__} of both", hint
            )
    if len(present) != 1 or len(owners) != 1 or owners[0] is not None or backend.shape(present[0]) != ():
        return
    if backend.can_look(present[0]) and getattr(present[0], "is_leaf", True) is False:
        hint = "call loss.backward(), and pass model.parameters()."
        raise NotWritableError("A loss is no gradient.", "a tensor without axes that operations have made", hint)
