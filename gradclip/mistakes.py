"""Wrong arguments in the place of gradients or of a rule. Each error names the argument and says what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from gradclip.backend import Backend
from gradclip.errors import ArgumentError, ArgumentTypeError, NotWritableError, TensorTypeError, shown
from gradclip.rule import EXAMPLE, Rule
from gradclip.spelling import same

__all__ = ["advice", "check_rule", "is_keras_variable", "keras_variable", "not_a_rule", "refuse_states"]

_KERAS = "A Keras variable is a weight, not a gradient."
_KERAS_HINT = (
    "pass the gradients: tape.gradient(loss, model.trainable_variables) on TensorFlow, the result of jax.grad on JAX, "
    "[v.value for v in model.trainable_variables] after loss.backward() on PyTorch."
)
_GRADIENTS = "loss.backward() and model.parameters(), tape.gradient(loss, variables) or jax.grad(loss)(params) give gradients."

#: a method's name -> a call of it
_CALLS = {
    "parameters": "{}.parameters()",
    "named_parameters": "dict({}.named_parameters())",
    "gradient": "tape.gradient(loss, variables)",
    "backward": "loss.backward(), and pass model.parameters()",
}


def is_keras_variable(kind: type) -> bool:
    """Whether a type is Keras 3's variable, on any framework."""
    bases = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    return any(root == "keras" and name in ("Variable", "KerasVariable") for root, name in bases)


def keras_variable(x: object) -> TensorTypeError:
    """The error for a variable of Keras in the place of a gradient."""
    return TensorTypeError(_KERAS, f"a variable named {getattr(x, 'name', None)!r}", _KERAS_HINT)


# ---- in the place of gradients -------------------------------------------------------------------------------------------


def advice(x: object, tree: object = None) -> TensorTypeError | None:
    """The error for an object that is not a tensor, if its type shows the mistake; else None.

    Args:
        x: the object.
        tree: the container with ``x`` in it.
    """
    kind = type(x)
    if is_keras_variable(kind):
        return keras_variable(x)
    return _of_container(tree) or _of_gradclip(x) or _of_value(x) or _of_optimizer(x) or _of_model(x) or _of_function(x)


def _of_container(tree: object) -> TensorTypeError | None:
    """The error for a container that an optimizer makes, of settings or of functions."""
    if {"init", "apply"} <= set(getattr(tree, "_fields", ())):  # haiku's model
        return _functions_of(tree)
    if {"init", "update"} <= set(getattr(tree, "_fields", ())):
        hint = "clip the gradients first, and give them to optimizer.update; or put gradclip's rule into optax.chain: "
        hint += "gradclip.backends.jax.gradient_transformation(rule)."
        return TensorTypeError("An optimizer is no gradient.", f"optax's {type(tree).__name__}", hint)
    first = tree[0] if isinstance(tree, list) and tree else tree
    if not isinstance(first, Mapping):
        return None
    if {"state", "param_groups"} <= first.keys():
        hint = "pass model.parameters()."
        return TensorTypeError("The state of an optimizer is no gradient.", "a state_dict with param_groups", hint)
    if "params" in first and len(first) > 1:
        what = "The param_groups of an optimizer hold its settings beside the parameters."
        alone = 'group["params"]' if first is tree else '[p for group in optimizer.param_groups for p in group["params"]]'
        return TensorTypeError(what, "a dict of " + ", ".join(map(str, list(first)[:3])) + ", ...", f"pass {alone}.")
    return None


def _of_gradclip(x: object) -> TensorTypeError | None:
    kind = type(x)
    if kind.__module__.startswith("gradclip.") and kind.__name__ == "ClipResult":
        return TensorTypeError("A result is not a gradient: it has them.", "a gradclip.ClipResult", "pass result.grads.")
    if isinstance(x, Rule) or kind.__module__ == "gradclip.groups":
        received = f"rule={x}" if isinstance(x, Rule) else "a gradclip.Group"
        return TensorTypeError("A rule is no gradient.", received, "the gradients come first: gradclip.clip(grads, rule).")
    return None


def _of_value(x: object) -> TensorTypeError | None:
    if isinstance(x, (str, bytes)):
        hint = "pass the tensors without their names, or as a dict: dict(model.named_parameters())."
        return TensorTypeError("A name is no tensor.", shown(x), hint)
    if isinstance(x, (bool, int, float, complex)):
        hint = f"pass tensors; a limit comes second: gradclip.clip(grads, rule). {_GRADIENTS}"
        return TensorTypeError("A number is no gradient.", shown(x), hint)
    return None


def _of_optimizer(x: object) -> TensorTypeError | None:
    """The error for an optimizer, or for a gradient tape."""
    kind = type(x)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if hasattr(kind, "step") and isinstance(getattr(x, "param_groups", None), list):
        hint = 'pass its parameters: [p for group in optimizer.param_groups for p in group["params"]].'
        return TensorTypeError("An optimizer is no gradient.", name, hint)
    if hasattr(kind, "apply_gradients"):
        hint = "pass the parameters: model.parameters()." if hasattr(kind, "step") else _KERAS_HINT  # Paddle's has both
        return TensorTypeError("An optimizer is no gradient.", name, hint)
    if kind.__name__ == "GradientTape":
        return TensorTypeError("A tape is no gradient.", name, "call tape.gradient(loss, variables).")
    return None


def _functions_of(x: object) -> TensorTypeError:
    """The error for a model without parameters of its own, as in haiku and flax.linen."""
    hint = "params = model.init(...) makes its parameters, and jax.grad(loss)(params) their gradients: pass these."
    return TensorTypeError("A model is no gradient.", f"an object of type {type(x).__module__}.{type(x).__qualname__}", hint)


def _of_model(x: object) -> TensorTypeError | None:
    kind = type(x)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not isinstance(x, type) and callable(getattr(x, "init", None)) and callable(getattr(x, "apply", None)):
        return _functions_of(x)
    if isinstance(x, type):
        hint = "make one, and pass its gradients." if hasattr(x, "parameters") else f"pass gradients: {_GRADIENTS}"
        return TensorTypeError("A class is no gradient.", f"the class {x.__qualname__}", hint)
    is_keras = any(base.__module__.partition(".")[0] == "keras" for base in kind.__mro__)  # on PyTorch it is a module too
    if callable(getattr(x, "parameters", None)) and not (is_keras and hasattr(kind, "trainable_variables")):
        what = f"A {name} is neither a tensor nor a container of tensors."
        return TensorTypeError(what, name, "pass its parameters: model.parameters().")
    if hasattr(kind, "trainable_variables"):
        what = "A Keras model or layer is no gradient." if is_keras else "A module of variables is no gradient."
        return TensorTypeError(what, name, _KERAS_HINT)
    return None


def _of_function(x: object) -> TensorTypeError | None:
    """The error for a function, or for a method without its call."""
    owner, name = getattr(x, "__self__", None), getattr(x, "__name__", "")
    if callable(x) and owner is not None and not isinstance(owner, ModuleType):
        is_model = hasattr(owner, "parameters") or hasattr(owner, "trainable_variables")
        of = type(owner).__name__
        call = _CALLS.get(name, "{}." + name + "()").format("model" if is_model else of.lower())
        hint = f"call it: {call}." if name in _CALLS else f"if it returns gradients, call it: {call}."
        return TensorTypeError("A method is no gradient: it was not called.", f"the method {of}.{name}", hint)
    if callable(x):
        hint = "call it: jax.grad(loss)(params). equinox.filter(model, equinox.is_inexact_array) keeps the arrays of a model."
        return TensorTypeError("A function is no gradient.", _function_name(x), hint)
    return None


def _function_name(x: object) -> str:
    kind = type(x)
    return shown(x) if hasattr(x, "__qualname__") else f"a {kind.__module__}.{kind.__qualname__}"


def refuse_states(backend: Backend, tree: Any, present: Sequence[Any], owners: Sequence[Any]) -> None:
    """Refuse to write to weights, to an optimizer's state or to a loss, as far as gradclip can recognise them.

    Args:
        backend: of the tensors.
        tree: the container that the caller gave.
        present, owners: the gradients and their owners, as in :class:`gradclip.gradients.Gradients`.

    Raises:
        TypeError, ValueError, RuntimeError: one exception that is all three.
    """
    if type(tree) not in (list, tuple) and isinstance(tree, Mapping):
        if len(tree) and backend.is_tensor(next(iter(tree))):  # torch 2.6 cannot compile next with a default
            hint = "pass model.parameters()."
            raise NotWritableError("The state of an optimizer is no gradient.", f"a {type(tree).__name__}", hint)
        if hasattr(tree, "_metadata"):  # torch's Module.state_dict has it; its tensors share the weights' memory
            hint = "pass model.parameters(), or dict(model.named_parameters())."
            raise NotWritableError("A state_dict holds weights, not gradients.", f"a {type(tree).__name__}", hint)
        if any(x is None for x in owners) and any(x is not None for x in owners):
            hint = "pass only the parameters, and other gradients in a separate call."
            raise NotWritableError("Among parameters, any other tensor is a buffer.", f"a {type(tree).__name__} of both", hint)
    if len(present) != 1 or len(owners) != 1 or owners[0] is not None or backend.shape(present[0]) != ():
        return
    if backend.can_look(present[0]) and getattr(present[0], "is_leaf", True) is False:
        hint = "call loss.backward(), and pass model.parameters()."
        raise NotWritableError("A loss is no gradient.", "a tensor without axes that operations have made", hint)


# ---- in the place of a rule ----------------------------------------------------------------------------------------------

#: each rule -> the arguments of an example
_RULES = {
    "torch.clip_grad_norm": "max_norm=1.0",
    "torch.clip_grad_value": "clip_value=1.0",
    "tensorflow.clip_by_norm": "clip_norm=1.0",
    "tensorflow.clip_by_global_norm": "clip_norm=1.0",
    "tensorflow.clip_by_value": "clip_value_min=-1.0, clip_value_max=1.0",
    "paddle.clip_grad_by_norm": "clip_norm=1.0",
    "paddle.clip_grad_by_global_norm": "clip_norm=1.0",
    "paddle.clip_grad_by_value": "max=1.0",
    "paddle.clip_grad_norm": "max_norm=1.0",
    "paddle.clip_grad_value": "clip_value=1.0",
    "optax.clip_by_global_norm": "max_norm=1.0",
    "optax.clip": "max_delta=1.0",
    "optax.clip_by_block_rms": "threshold=1.0",
    "optax.adaptive_grad_clip": "clipping=0.01",
    "optax.per_example_global_norm_clip": "l2_norm_clip=1.0",
    "keras.clipnorm": "clipnorm=1.0",
    "keras.global_clipnorm": "global_clipnorm=1.0",
    "keras.clipvalue": "clipvalue=1.0",
}
_EXAMPLE = "gradclip.dialects.torch.clip_grad_norm(max_norm=1.0)"


def check_rule(rule: object, *, keeps_shape: bool = False) -> None:
    """Refuse an object that is not a rule, and for gradients that must keep their shape a rule that changes it."""
    if not isinstance(rule, Rule):
        raise not_a_rule(rule)
    if keeps_shape and rule.scope is EXAMPLE:
        what = "A rule that sums over examples changes the shape of a gradient."
        hint = "gradclip.clip(per_example_gradients, rule) returns new ones, for the optimizer to step with."
        raise ArgumentError(what, f"rule={rule}", hint)


def not_a_rule(given: object, what: str = "rule must be a gradclip.Rule.") -> ArgumentTypeError:
    """The error for something else in the place of a rule, with a line to copy."""
    received = f"rule={shown(given)}"
    if isinstance(given, (bool, int, float)):
        hint = f"name the rule of the limit: {_EXAMPLE.replace('1.0', str(given))}."
    elif isinstance(given, ModuleType) and given.__name__.startswith("gradclip.dialects."):
        received, hint = f"rule={given.__name__}", f"call one of its functions: {', '.join(given.__all__)}."
    elif isinstance(own := getattr(given, "rule", None), Rule):
        hint = f"pass the rule itself: {own!r}."
    elif native := _native(given):
        hint = f"{'call it' if _is_of_dialect(given) else 'the rule that does the same'}: {native}."
    else:
        hint = f"a dialect's function returns one: {_EXAMPLE}. gradclip.Group(rule, 'encoder.*') is for some gradients."
    return ArgumentTypeError(what, received, hint)


def _is_of_dialect(given: object) -> bool:
    return str(getattr(given, "__module__", "")).startswith("gradclip.dialects.")


def _native(given: object) -> str:
    """The call that makes a rule, for a dialect's function or for a framework's own clip; "" for anything else."""
    name = given if isinstance(given, str) else _qualified(given)
    root, _, rest = name.removeprefix("gradclip.").removeprefix("dialects.").removeprefix("dropins.").partition(".")
    rule = same(f"{root}.{rest.rpartition('.')[2]}", _RULES)
    return f"gradclip.dialects.{rule}({_RULES[rule]})" if rule else ""


def _qualified(given: object) -> str:
    """The module and the name of a function, of an object's class, or of the function that made an optax transformation."""
    update = getattr(given, "update", None)
    if isinstance(given, tuple) and update is not None:
        return f"{update.__module__}.{update.__qualname__.partition('.')[0]}"
    named = given if hasattr(given, "__qualname__") else type(given)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
