"""Wrong arguments in the place of gradients or of a rule. Each error names the argument and says what to pass instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from gradclip.core.backend import Backend
from gradclip.core.errors import ArgumentTypeError, NotWritableError, TensorTypeError, shown, with_article
from gradclip.core.rule import Rule

__all__ = [
    "advice",
    "has_no_length",
    "is_keras_variable",
    "keras_variable",
    "not_a_rule",
    "on_look_up",
    "refuse_states",
    "symbolic",
]

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


def has_no_length(kind: type) -> bool:
    """Whether a type stands for values that do not exist yet. Each iteration over it fails."""
    return _is_proxy(kind) or _is_keras_tensor(kind)


def _is_proxy(kind: type) -> bool:
    """Whether a type is torch.fx's stand-in for any value. It has every attribute."""
    return any(base.__module__ == "torch.fx.proxy" and base.__name__ == "Proxy" for base in kind.__mro__)


def _is_keras_tensor(kind: type) -> bool:
    return any(base.__module__.partition(".")[0] == "keras" and base.__name__ == "KerasTensor" for base in kind.__mro__)


def symbolic(x: object) -> TensorTypeError | None:
    """The error for an object that stands for values that do not exist yet; None for any other."""
    kind = type(x)
    if _is_keras_tensor(kind):
        what = "A KerasTensor has no values: it describes the input or output of a layer, and has no gradient."
        hint = f"{_KERAS_HINT} In a model, gradclip.clipped(optimizer, rule) clips them."
        return TensorTypeError(what, f"a {kind.__name__}, shape={getattr(x, 'shape', None)}", hint)
    if _is_proxy(kind):
        what = "torch.fx.symbolic_trace records only names: its values have neither a dtype nor a length."
        hint = "torch.export.export, torch.compile and make_fx trace a clip; torch.fx.wrap records a function as one call."
        return TensorTypeError(what, f"a {kind.__module__}.{kind.__name__}", hint)
    return None


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
        return TensorTypeError("An optimizer is not a gradient.", f"optax's {type(tree).__name__}", hint)
    first = tree[0] if isinstance(tree, list) and tree else tree
    if not isinstance(first, Mapping):
        return None
    if {"state", "param_groups"} <= first.keys():
        hint = "pass model.parameters()."
        return TensorTypeError("The state of an optimizer is not a gradient.", "a state_dict with param_groups", hint)
    if "params" in first and len(first) > 1:
        what = "The param_groups of an optimizer hold its settings beside the parameters."
        alone = 'group["params"]' if first is tree else '[p for group in optimizer.param_groups for p in group["params"]]'
        return TensorTypeError(what, "a dict of " + ", ".join(map(str, list(first)[:3])) + ", ...", f"pass {alone}.")
    return None


def _of_gradclip(x: object) -> TensorTypeError | None:
    kind = type(x)
    if kind.__module__.startswith("gradclip.") and kind.__name__ == "ClipResult":
        return TensorTypeError("A result is not a gradient: it has them.", "a gradclip.ClipResult", "pass result.grads.")
    if isinstance(x, Rule) or kind.__module__ == "gradclip.core.groups":
        received = f"rule={x}" if isinstance(x, Rule) else "a gradclip.Group"
        return TensorTypeError("A rule is not a gradient.", received, "the gradients come first: gradclip.clip(grads, rule).")
    return None


def _of_value(x: object) -> TensorTypeError | None:
    if isinstance(x, (str, bytes)):
        hint = "pass the tensors without their names, or as a dict: dict(model.named_parameters())."
        return TensorTypeError("A name is not a tensor.", shown(x), hint)
    if isinstance(x, (bool, int, float, complex)):
        hint = f"pass tensors; a limit comes second: gradclip.clip(grads, rule). {_GRADIENTS}"
        return TensorTypeError("A number is not a gradient.", shown(x), hint)
    return None


def _of_optimizer(x: object) -> TensorTypeError | None:
    """The error for an optimizer, or for a gradient tape."""
    kind = type(x)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if hasattr(kind, "step") and isinstance(getattr(x, "param_groups", None), list):
        hint = 'pass its parameters: [p for group in optimizer.param_groups for p in group["params"]].'
        return TensorTypeError("An optimizer is not a gradient.", name, hint)
    if hasattr(kind, "apply_gradients"):
        hint = "pass the parameters: model.parameters()." if hasattr(kind, "step") else _KERAS_HINT  # Paddle's has both
        return TensorTypeError("An optimizer is not a gradient.", name, hint)
    if kind.__name__ == "GradientTape":
        return TensorTypeError("A tape is not a gradient.", name, "call tape.gradient(loss, variables).")
    return None


def _functions_of(x: object) -> TensorTypeError:
    """The error for a model without parameters of its own, as in haiku and flax.linen."""
    hint = "params = model.init(...) makes its parameters, and jax.grad(loss)(params) their gradients: pass these."
    return TensorTypeError("A model is not a gradient.", f"an object of type {type(x).__module__}.{type(x).__qualname__}", hint)


def _of_model(x: object) -> TensorTypeError | None:
    kind = type(x)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not isinstance(x, type) and callable(getattr(x, "init", None)) and callable(getattr(x, "apply", None)):
        return _functions_of(x)
    if isinstance(x, type):
        hint = "make one, and pass its gradients." if hasattr(x, "parameters") else f"pass gradients: {_GRADIENTS}"
        return TensorTypeError("A class is not a gradient.", f"the class {x.__qualname__}", hint)
    is_keras = any(base.__module__.partition(".")[0] == "keras" for base in kind.__mro__)  # on PyTorch it is a module too
    if callable(getattr(x, "parameters", None)) and not (is_keras and hasattr(kind, "trainable_variables")):
        what = f"A {name} is neither a tensor nor a container of tensors."
        return TensorTypeError(what, name, "pass its parameters: model.parameters().")
    if hasattr(kind, "trainable_variables"):
        what = "A Keras model or layer is not a gradient." if is_keras else "A module of variables is not a gradient."
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
        return TensorTypeError("A method is not a gradient: it was not called.", f"the method {of}.{name}", hint)
    if callable(x):
        hint = "call it: jax.grad(loss)(params). equinox.filter(model, equinox.is_inexact_array) keeps the arrays of a model."
        return TensorTypeError("A function is not a gradient.", _function_name(x), hint)
    return None


def _function_name(x: object) -> str:
    kind = type(x)
    return shown(x) if hasattr(x, "__qualname__") else f"a {kind.__module__}.{kind.__qualname__}"


def refuse_states(backend: Backend, tree: Any, present: Sequence[Any], params: Sequence[Any]) -> None:
    """Refuse to write to weights, to an optimizer's state or to a loss, as far as gradclip can recognise them.

    Args:
        backend: of the tensors.
        tree: the container that the caller gave.
        present, params: the gradients and their parameters, as in :class:`gradclip.core.gradients.Gradients`.

    Raises:
        TypeError, ValueError, RuntimeError: one exception that is all three.
    """
    if type(tree) not in (list, tuple) and isinstance(tree, Mapping):
        if len(tree) and backend.is_tensor(next(iter(tree))):  # torch 2.6 cannot compile next with a default
            hint = "pass model.parameters()."
            raise NotWritableError("The state of an optimizer is not a gradient.", with_article(type(tree).__name__), hint)
        if hasattr(tree, "_metadata"):  # torch's Module.state_dict has it; its tensors share the weights' memory
            hint = "pass model.parameters(), or dict(model.named_parameters())."
            raise NotWritableError("A state_dict holds weights, not gradients.", with_article(type(tree).__name__), hint)
        if any(x is None for x in params) and any(x is not None for x in params):
            hint = "pass only the parameters, and other gradients in a separate call."
            raise NotWritableError(
                "Among parameters, any other tensor is a buffer.", f"{with_article(type(tree).__name__)} of both", hint
            )
    if len(present) != 1 or len(params) != 1 or params[0] is not None or backend.shape(present[0]) != ():
        return
    if backend.can_read(present[0]) and getattr(present[0], "is_leaf", True) is False:
        hint = "call loss.backward(), and pass model.parameters()."
        raise NotWritableError("A loss is not a gradient.", "a tensor without axes that operations have made", hint)


# ---- in the place of a rule ----------------------------------------------------------------------------------------------

_look_ups: list[Callable[[str], str]] = []  # a native's name -> the call of the rule that does the same, or ""


def on_look_up(look_up: Callable[[str], str]) -> None:
    """The dialects say which of their functions makes the rule of a native: the core does not know them."""
    _look_ups.append(look_up)


_EXAMPLE = "gradclip.dialects.torch.clip_grad_norm(max_norm=1.0)"


def not_a_rule(given: object, what: str = "rule must be a gradclip.Rule.") -> ArgumentTypeError:
    """The error for something else in the place of a rule, with a line to copy."""
    received = f"rule={shown(given)}"
    if isinstance(given, (bool, int, float)):
        hint = f"name the rule of the limit: {_EXAMPLE.replace('1.0', str(given))}."
    elif isinstance(given, ModuleType) and given.__name__.startswith("gradclip.dialects."):
        received, hint = f"rule={given.__name__}", f"call one of its functions: {', '.join(given.__all__)}."
    elif isinstance(given, Mapping) and given and all(isinstance(x, Rule) for x in given.values()):
        hint = "a group has its own rule: [Group(rule, name) for name, rule in rules.items()]."
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
    name = name.removeprefix("gradclip.").removeprefix("dialects.").removeprefix("dropins.")
    return next(filter(None, (look_up(name) for look_up in _look_ups)), "")


def _qualified(given: object) -> str:
    """The module and the name of a function, of an object's class, or of the function that made an optax transformation."""
    update = getattr(given, "update", None)
    if isinstance(given, tuple) and update is not None:
        return f"{update.__module__}.{update.__qualname__.partition('.')[0]}"
    named = given if hasattr(given, "__qualname__") else type(given)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
