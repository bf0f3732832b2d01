"""Targets: the protocol, the names of operations and features, and a target composed of parts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from gradclip.conformance.array import DTYPES
from gradclip.core.errors import ArgumentError
from gradclip.core.spelling import did_you_mean, nearest, same
from gradclip.natives import OPERATIONS

__all__ = [
    "ARRAYS_OF",
    "DEFAULT_CLAIMS",
    "FEATURES",
    "MEMBERS",
    "OPERATIONS",
    "OPTIONS",
    "RANK_FEATURES",
    "ComposedTarget",
    "Run",
    "Target",
    "dialect_of",
    "load_arrays",
    "named_like",
]

_ALIASES: Mapping[str, str] = {"tf": "tensorflow", "pytorch": "torch", "jax": "optax"}

#: dialect -> the framework of its arrays, where it has another name; Keras has several
ARRAYS_OF: Mapping[str, str] = {"optax": "jax", "keras": "numpy"}

#: feature -> what a target with the feature supports
FEATURES: Mapping[str, str] = {
    **{dtype: f"gradients of {dtype}" for dtype in DTYPES},
    "norm_type": "the order of the norm",
    "error_if_nonfinite": "an error if the norm is not finite",
    "axes": "the norm over some of a gradient's axes",
    "axis": "the axes of a unit",
    "eps": "the smallest norm of a parameter that counts",
    "use_norm": "a known norm",
    "auto_skip_clip": "a clip only if the norm is above the limit",
    "min": "a separate lower bound",
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
    "transposed": "transposed gradients, which are not contiguous",
    "strided": "strided gradients, with gaps in memory",
    "expanded": "expanded gradients: all elements share one value in memory",
    "scalar": "0-d gradients",
    "extreme": "gradients whose squares leave the dtype",
    "subnormal": "subnormal numbers",
    "large": "more than 2**20 elements",
    "in place": "a clip in place",
    "functional": "a clip that leaves its inputs unchanged",
    "norm": "the norm before the clip as a result, a 0-d tensor or a number (gradclip's: a 0-d tensor of at least float32)",
    "traced": "a traced (compiled) clip",
    "differentiable": "derivatives through the clip",
}

#: the features of a clip on several ranks
RANK_FEATURES: Mapping[str, str] = {
    "shards": "plain tensors that are shards, and a function that tells their process group",
    "group": "plain tensors that are all shards, and their process group",
}

#: the features that are optional arguments, for the operations that have them
OPTIONS = frozenset({"norm_type", "error_if_nonfinite", "axes", "axis", "eps", "use_norm", "auto_skip_clip", "min"})

#: the default claims of a function; plus "functional" or "in place", and "norm" if it returns one
DEFAULT_CLAIMS = frozenset({"float32", "several"})

#: feature -> the optional member of a target that it needs
MEMBERS: Mapping[str, str] = {
    **dict.fromkeys(("transposed", "strided", "expanded"), "make_layout"),
    "sparse": "make_sparse",
    "traced": "trace",
    "differentiable": "derivative",
}

#: runs an operation: (gradients, arguments) -> (gradients, norm or None)
Run = Callable[[Iterable[Any], dict[str, Any]], tuple[Sequence[Any], Any]]


class Target(Protocol):
    """An implementation of some operations. Any object with these members is a target, without importing gradclip.

    Optional members, used if a feature is claimed: ``versions`` (a mapping of names to versions) and ``device`` (text), for
    the report; ``make_layout(values, shape, dtype, layout)`` for "transposed", "strided" and "expanded"; ``make_sparse(rows,
    values, shape, dtype)``, ``read`` then returns the dense values; ``trace(function)``, the traced form of a function from a
    list of arrays to a list of arrays; ``derivative(function, arrays)``, that of the sum of all outputs by each array. With
    ``strict = True`` a native's outcome is wrong where gradclip departs from it.
    """

    name: str  #: "torch 2.13.0", "my_clip"
    claims: Mapping[str, Collection[str]]  #: operation -> the features it claims; an operation not in it is unclaimed

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> Any:
        """An array. ``values``: Python numbers row by row; ``dtype``: its common name ("float32", "bfloat16")."""

    def read(self, array: Any) -> tuple[Sequence[Any], Sequence[int], str]:
        """The exact inverse of ``make``: values, shape, dtype."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
        """Clip.

        Args:
            operation: one of ``OPERATIONS``.
            gradients: a list, or for the feature "iterator" an iterator, of arrays and None.
            arguments: by the native's own names: numbers, text, lists of ints, None, arrays.

        Returns:
            The clipped gradients in the same order, with None where None was; and the norm or None.
        """


def dialect_of(operation: str) -> str:
    """The dialect of an operation.

    >>> dialect_of("torch.clip_grad_norm_")
    'torch'
    """
    return operation.partition(".")[0]


def named_like(name: str, known: Iterable[str], what: str, argument: str) -> str:
    """The known dialect or operation of a name, also in the rule's spelling, ``torch.clip_grad_norm``, or with ``tf.``.

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
    """The arrays of a framework by its name; an object with ``make`` and ``read`` itself."""
    if not isinstance(arrays, str):
        return arrays
    try:
        module = importlib.import_module(f"gradclip.backends.targets.{arrays}")
    except ModuleNotFoundError as error:
        hint = "numpy, torch, tensorflow, paddle, jax or keras, where it is installed; or an object with make and read."
        raise ArgumentError("There are no arrays of this name.", f"arrays={arrays!r} ({error})", hint) from error
    return module.arrays


class ComposedTarget:
    """A target composed of a framework's arrays and functions that run operations on them."""

    strict = False  #: whether a native's outcome is wrong where gradclip departs from it

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
        if name in ("versions", "device", *MEMBERS.values()):  # the arrays have them
            return getattr(self.arrays, name)
        raise AttributeError(name)

    def run(self, operation: str, gradients: Iterable[Any], arguments: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
        return self.runs[operation](gradients, dict(arguments))
