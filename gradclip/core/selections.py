"""Which gradients a selection names: by patterns, functions, parameters, or lists of these. It knows no rule."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from gradclip.core.containers import DEEPEST
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.gradients import Gradients
from gradclip.core.mistakes import is_keras_variable
from gradclip.core.names import dotted, matching, own_name
from gradclip.core.registry import find

__all__ = ["Lookup", "Selection", "check_selection", "frozen", "missing_match", "names_of", "selected_by"]

Selection = str | re.Pattern[str] | Callable[[str, Any], Any] | Sequence[Any] | None


def check_selection(name: str, given: Any, depth: int = 0) -> None:
    """Refuse what selects no gradients; ``name`` is the argument's."""
    if isinstance(given, Mapping) and "params" in given:
        given = given["params"]
    if isinstance(given, (list, tuple)):
        if depth > DEEPEST:
            what = f"A selection contains itself, or lists in more than {DEEPEST} levels."
            raise ArgumentTypeError(what, f"{name}={shown(given)}", "one list of patterns is enough.")
        for part in given:
            if part is None:
                raise ArgumentTypeError("None cannot be part of a selection.", f"{name}={shown(given)}", "leave it out.")
            check_selection(name, part, depth + 1)
    elif given is not None and not _is_selection(given):
        hint = "a pattern for names, an re.compile(...), a function of name and tensor, a parameter, or a list of these."
        if isinstance(given, Iterator) or _is_module(given):
            hint = "list(module.parameters()) selects those of a module, and so does a pattern: 'encoder.*'."
        elif is_keras_variable(type(given)):
            hint = "select by paths, in gradclip.clipped(optimizer, rule): [variable.path for variable in variables]."
        raise ArgumentTypeError(f"{name} must select gradients.", f"{name}={shown(given)}", hint)


def _is_selection(given: Any) -> bool:
    if isinstance(given, re.Pattern):
        return isinstance(given.pattern, str)
    if is_keras_variable(type(given)):  # an optimizer knows the path of its gradient, and no call the variable
        return False
    if isinstance(given, (str, _Chosen)) or find(given) is not None:
        return True
    return callable(given) and not isinstance(given, type) and not _is_module(given)


def _is_module(given: object) -> bool:
    """Whether this is a module or a layer, which is called with its inputs."""
    return any(hasattr(given, name) for name in ("parameters", "trainable_variables"))


class _Chosen:
    """A tensor in a selection: it equals only itself, and has a hash, which a tensor of JAX has not."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __repr__(self) -> str:
        return shown(self.tensor)


def frozen(selection: Any) -> Any:
    """The selection with tuples for lists, and tensors as they are themselves: a static argument of ``jax.jit`` has a hash."""
    if isinstance(selection, Mapping):
        return frozen(selection["params"])
    if isinstance(selection, (list, tuple)):
        return tuple(map(frozen, selection))
    return selection if selection is None or find(selection) is None else _Chosen(selection)


def names_of(grads: Gradients) -> list[str]:
    """The name of each leaf, for the patterns of groups."""
    return Lookup(grads).names()


def selected_by(grads: Gradients, selection: Any, name: str) -> list[int]:
    """The places that one selection selects; ``name`` is the argument's. A pattern may match none."""
    check_selection(name, selection)
    return list(range(len(grads.leaves))) if selection is None else Lookup(grads).places(frozen(selection))


def missing_match(pattern: str | int, names: list[str]) -> ArgumentError:
    """The error for a pattern that matches no name, or for a number of tensors that are not there."""
    if isinstance(pattern, int):
        what, hint = "None of the selected tensors is in this call.", "pass the parameters to the call, or select by name."
        return ArgumentError(what, f"{pattern} selected, {len(names)} gradients", hint)
    close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4)
    among = ", ".join(map(repr, close or names[:3])) + (", ..." if len(names) > 3 else ".")
    hint = f"there {'is 1 name' if len(names) == 1 else f'are {len(names)} names'}: {among}"
    if pattern in names:
        hint = "[ begins a set of characters in a pattern; write [[] for the character itself."
    elif all(name.isdecimal() for name in names):
        hint = f"these have numbers, '0' to '{len(names) - 1}', for names; pass a dict: dict(model.named_parameters())."
    return ArgumentError("A pattern matches the name of no gradient.", f"pattern={pattern!r}", hint)


class Lookup:
    """Looks up selections in one container; it makes the names when a selection first needs them."""

    def __init__(self, grads: Gradients) -> None:
        self.grads = grads
        self.unmatched: list[str | int] = []  # patterns, and how many tensors are none of these
        self._firsts: list[int] | None = None
        self._names: list[str] | None = None
        self._own: list[str] = []  # the parameters' own names, if they differ

    def names(self) -> list[str]:
        if self._names is None:
            names, params = dotted(self.grads.places()), self.grads.params
            own = list(map(own_name, params)) if any(param is not None for param in params) else [""] * len(names)
            if self.grads.container.names_params:
                self._names = [mine or name for mine, name in zip(own, names, strict=True)]
            else:
                self._names, self._own = names, own if any(own) else []
        return self._names

    def places(self, selection: Any) -> list[int]:
        """The places that a selection selects, with every other place of the same gradients."""
        if self._firsts is None:
            self._firsts = self.grads.firsts()
        firsts = self._firsts
        chosen = {firsts[i] for i in self._selected(selection)}
        return [i for i, first in enumerate(firsts) if first in chosen]

    def _selected(self, selection: Any) -> Collection[int]:
        if isinstance(selection, (list, tuple)):
            chosen = [part for part in selection if isinstance(part, _Chosen)]
            found = {i for part in selection if not isinstance(part, _Chosen) for i in self._selected(part)}
            return found | self._chosen(chosen)
        if isinstance(selection, _Chosen):
            return self._chosen([selection])
        names = self.names()
        if not isinstance(selection, (str, re.Pattern)):
            given = enumerate(zip(self.grads.leaves, self.grads.params, strict=True))
            tensors = {i: x if param is None else param for i, (x, param) in given}
            return [i for i, x in tensors.items() if x is not None and selection(names[i], x)]
        text, flags = (selection, None) if isinstance(selection, str) else (selection.pattern, selection.flags)
        matches = matching(text, flags, names)
        if self._own:
            matches += [i for i in matching(text, flags, self._own) if self._own[i]]
        if not matches:
            self.unmatched.append(text)
        return matches

    def _chosen(self, selected: Sequence[_Chosen]) -> set[int]:
        """The places of tensors, as parameters or as gradients."""
        ids = {id(one.tensor) for one in selected}
        params = {i: id(param) for i, param in enumerate(self.grads.params) if param is not None} if ids else {}
        found = {i for i, own in params.items() if own in ids}
        # a compiled function is compiled again for each gradient whose id it has asked for
        if ids - {params[i] for i in found}:
            found |= {i for i, x in enumerate(self.grads.leaves) if id(x) in ids}
        if selected and not found:
            self.unmatched.append(len(selected))
        return found
