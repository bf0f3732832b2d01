"""Containers of tensors: their leaves, the name of each, and how to rebuild the container. This module handles Python's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gradclip.core.errors import TensorTypeError, with_article

__all__ = ["DEEPEST", "Containers", "nested_too_deep", "plain_key", "wanted"]

DEEPEST = 100  #: levels of containers in each other; a container in itself has more


class Containers:
    """Lists, tuples, named tuples, dicts and other mappings, nested. A framework with more containers derives from this class.

    >>> leaves, rebuild = Containers().flatten({"a": [1, None], "b": (2,)})
    >>> leaves, rebuild([10, None, 20]), [place for place, _ in Containers().walk({"a": [1, None]})]
    ([1, None, 2], {'a': [10, None], 'b': (20,)}, ["['a'][0]", "['a'][1]"])
    """

    def is_container(self, x: object) -> bool:
        """Whether ``x``, which is not a container of Python's own, is a container of this framework."""
        return False

    def is_param(self, x: Any) -> bool:
        """Whether ``x`` stands for the gradient that it holds, as a parameter does."""
        return False

    def gradient(self, param: Any) -> Any:
        """The gradient that a parameter holds: the object itself, so a write to it changes the parameter's gradient."""
        return param.grad

    def gradients(self, leaves: list[Any], every: bool) -> tuple[list[Any], list[Any]]:
        """The gradient of each leaf, and the parameter that holds it: None for a leaf that is a gradient itself.

        ``every``: whether each leaf holds one, also one that is no parameter.
        """
        params = leaves if every else [x if x is not None and self.is_param(x) else None for x in leaves]
        return [x if p is None else self.gradient(p) for x, p in zip(leaves, params, strict=True)], params

    def is_gap(self, x: object) -> bool:
        """Whether ``x``, which is not None, stands for a missing gradient."""
        return False

    def has_gaps(self, leaves: Sequence[Any]) -> bool:
        """Whether one of these is a gap. :meth:`flatten` returns None for a gap; the rebuilt container has the gap again."""
        return False

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """The leaves of a container, with each None, and a function that rebuilds the container from other leaves."""
        if self._is_flat(tree):
            if type(tree) is dict:
                return list(tree.values()), lambda new: dict(zip(tree, new, strict=True))
            return list(tree), type(tree)
        self.check_depth(tree)
        leaves = [leaf for _, leaf in self.walk(tree)]
        return leaves, lambda new: self.rebuild(tree, iter(new))

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """The leaves of a container, in the order of :meth:`flatten`, each with its path: ``"['dense'][0]"``."""
        if self._is_flat(tree):
            for key, leaf in tree.items() if type(tree) is dict else enumerate(tree):
                yield f"{path}[{plain_key(key)!r}]", leaf
        elif isinstance(tree, Mapping):
            for key, child in tree.items():
                yield from self.walk(child, f"{path}[{plain_key(key)!r}]")
        elif isinstance(tree, (list, tuple)):
            names = getattr(tree, "_fields", None)
            for i, child in enumerate(tree):
                yield from self.walk(child, f"{path}.{names[i]}" if names else f"{path}[{i}]")
        else:
            yield path, tree

    def rebuild(self, tree: Any, leaves: Iterator[Any]) -> Any:
        """A container like ``tree`` that takes its leaves from ``leaves``, in order."""
        if isinstance(tree, Mapping):
            items = {key: self.rebuild(child, leaves) for key, child in tree.items()}
            if type(tree) is dict:
                return items
            if not isinstance(tree, dict):
                return type(tree)(items)  # type: ignore[call-arg]
            rebuilt = tree.copy()  # keeps a default factory, an order, attributes
            rebuilt.update(items)
            return rebuilt
        if isinstance(tree, (list, tuple)):
            children = [self.rebuild(child, leaves) for child in tree]
            fields: Any = getattr(tree, "_fields", None)
            if fields is not None:
                named: Any = tree
                return named._replace(**dict(zip(fields, children, strict=True)))
            return type(tree)(children if isinstance(tree, list) else tuple(children))
        return next(leaves)

    def children(self, x: Any) -> Iterable[Any] | None:
        """The parts of a container; None for anything else."""
        if isinstance(x, (list, tuple)):
            return x
        return x.values() if isinstance(x, Mapping) else None

    def check_depth(self, tree: Any) -> None:
        """Refuse a container that contains itself or is nested too deeply, before a recursion meets it."""
        waiting = [(tree, 0)]
        while waiting:
            container, depth = waiting.pop()
            if depth > DEEPEST:
                raise nested_too_deep(tree)
            for child in self.children(container) or ():
                if self.children(child) is not None:
                    waiting.append((child, depth + 1))

    def params(self, tree: Any) -> list[Any] | None:
        """The parameters, in the order of :meth:`flatten`, of a container that names one for each gradient."""
        return None

    def _is_flat(self, tree: Any) -> bool:
        """Whether this is a usual container with only leaves. It tests one leaf of each type, not thousands."""
        if type(tree) not in (list, tuple, dict):
            return False
        values = tree.values() if type(tree) is dict else tree
        one_of_each = dict(zip(map(type, values), values, strict=True)).values()
        return not any(isinstance(x, (list, tuple, Mapping)) or self.is_container(x) for x in one_of_each)


def nested_too_deep(tree: object) -> TensorTypeError:
    """The error for a container in itself, or in too many others."""
    what = f"A container contains itself, or containers in more than {DEEPEST} levels."
    return TensorTypeError(
        what, with_article(type(tree).__name__), "pass the gradients in a list, or in a dict by their names."
    )


def plain_key(key: Any) -> Any:
    """The key of a mapping; a ``str`` for a subclass of it, such as NumPy's strings and members of an enum."""
    return key if type(key) is str or not isinstance(key, str) else str.__str__(key)


def wanted(pairs: Iterable[Any]) -> list[bool]:
    """Whether to clip the gradient of each ``(parameter, gradient)`` pair: Paddle's parameters have ``need_clip``."""
    return [getattr(pair[0], "need_clip", True) is not False for pair in pairs]
