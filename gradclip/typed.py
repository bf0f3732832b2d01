"""What a type checker knows of gradients. The types describe them, so that no framework is imported or has to be installed.

A framework without types of its own gives ``Any``, as with its own functions: TensorFlow, Keras and optax have none for mypy.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any, Protocol, SupportsFloat, TypeVar

__all__ = ["Array", "ArrayT", "Grads", "Holder", "Limit", "Named", "NamedHolders", "SeveralArrays", "SeveralHolders", "T", "X"]

X = TypeVar("X")
Held = TypeVar("Held", covariant=True)


class Array(Protocol):
    """A tensor of any framework."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""

    def __neg__(self) -> Any:
        """The tensor with the other sign. A model has no such method; mypy takes it to have every other attribute."""


class Holder(Protocol[Held]):
    """A parameter that holds its gradient, as in torch and Paddle, where every tensor can."""

    @property
    def grad(self) -> Held | None:
        """The gradient."""

    @property
    def is_leaf(self) -> bool:
        """Whether no operation made it; no model has it as a bool."""


class Follows(Protocol):
    """A limit that follows the run: :class:`gradclip.Adaptive`."""

    follows_the_run: bool


ArrayT = TypeVar("ArrayT", bound=Array)
Limit = SupportsFloat | Array | Follows  #: a number, a tensor, or a limit that follows the run
Grads = Array | Iterable[Any]  #: a tensor or a container of them; not a model of torch, Paddle or Keras, which is neither
T = TypeVar("T", bound=Grads)
Named = Iterator[tuple[str, X]] | ItemsView[str, X]  #: counts as a dict
NamedHolders = Named[Holder[X]]
SeveralHolders = Iterable[Holder[X]] | Mapping[str, Holder[X]] | NamedHolders[X]
SeveralArrays = Iterable[ArrayT] | Mapping[str, ArrayT]
