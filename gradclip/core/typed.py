"""What a type checker knows of gradients. Protocols describe the tensors, so that no framework has to be installed.

A framework without types of its own gives ``Any``, as with its own functions: TensorFlow, Keras and optax have none for mypy.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Never, Protocol, SupportsFloat, TypeAlias, TypeVar, Union

from gradclip.core.rule import Rule

if TYPE_CHECKING:  # the types of the norms; Any where a framework is not installed
    import jax
    import numpy as np
    import paddle
    import tensorflow
    import torch

    JaxNorm: TypeAlias = jax.Array
    NumpyNorm: TypeAlias = np.floating[Any]
    NumpyTotal: TypeAlias = np.ndarray[tuple[()], np.dtype[np.floating[Any]]]  # of the drop-ins, which return arrays
    PaddleNorm: TypeAlias = paddle.Tensor
    TensorflowNorm: TypeAlias = tensorflow.Tensor
    TorchNorm: TypeAlias = torch.Tensor

__all__ = [
    "Array",
    "ArrayT",
    "Dataclass",
    "Grads",
    "GradsT",
    "JaxT",
    "Leaf",
    "Limit",
    "Model",
    "Nest",
    "NumpyIterableT",
    "NumpyLeafT",
    "NumpyT",
    "OwnIterableT",
    "OwnLeaf",
    "PaddleLeaf",
    "PaddleT",
    "ParametersT",
    "RuleT",
    "Several",
    "Slotted",
    "TensorflowT",
    "TorchLeaf",
    "TorchT",
    "UnclearT",
    "Wrong",
    "X",
    "Y",
]

X = TypeVar("X")
Y = TypeVar("Y")
V = TypeVar("V", covariant=True)
L = TypeVar("L")


class Array(Protocol):
    """A tensor of any framework."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""

    def __neg__(self) -> Any:
        """The tensor with the other sign. A model has no such method; mypy takes it to have every other attribute."""


class Leaf(Protocol[V]):
    """A tensor or a parameter, with the type of its gradient."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""

    def __neg__(self) -> V:
        """A tensor, also of a parameter."""


class NumpyLeaf(Protocol):
    """An array or a scalar of NumPy."""

    @property
    def __array_struct__(self) -> object: ...
    @property
    def strides(self) -> tuple[int, ...]: ...


class TorchLeaf(Protocol[V]):
    """A tensor or a parameter of PyTorch."""

    @property
    def is_quantized(self) -> bool: ...
    @property
    def is_leaf(self) -> bool: ...
    def __neg__(self) -> V: ...


class JaxLeaf(Protocol[V]):
    """An array of JAX."""

    @property
    def is_fully_addressable(self) -> bool: ...
    def __neg__(self) -> V: ...


class PaddleLeaf(Protocol[V]):
    """A tensor of Paddle."""

    def is_dist(self) -> bool: ...
    def __neg__(self) -> V: ...


class TensorflowLeaf(Protocol[V]):
    """A tensor, a variable or slices of TensorFlow."""

    @property
    def op(self) -> Any: ...
    @property
    def graph(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    def __neg__(self) -> V: ...


class Dataclass(Protocol):
    """A dataclass, as equinox and flax.struct make them: a pytree of JAX."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class Wrong(Protocol[V]):
    """As ``Wrong[Never]`` in the last overload: a type that no object has, since the size of an object is an int.

    mypy compares a wrong argument with it without its parameter, finds it alike, and then has one line for that argument,
    instead of a list of all overloads.
    """

    def __sizeof__(self) -> V: ...  # type: ignore[override]


class Follows(Protocol):
    """A limit that follows the run: :class:`gradclip.Adaptive`."""

    follows_the_run: bool


class Slotted(Protocol):
    """An optimizer of PyTorch."""

    def register_step_pre_hook(self, hook: Any, /) -> Any: ...


class Model(Protocol[V]):
    """A model of PyTorch or Paddle."""

    def named_parameters(self) -> Iterable[tuple[str, Leaf[V]]]: ...


ArrayT = TypeVar("ArrayT", bound=Array)
Limit = SupportsFloat | Array | Follows  #: a number, a tensor, or a limit that follows the run

# Named containers, not Iterable: that would take in every tensor and many models, which can be iterated over.
Nest: TypeAlias = Union[  # noqa: UP007  # it refers to itself
    L,
    Sequence["Nest[L]"],
    Mapping[Any, "Nest[L]"],
    Iterator["Nest[L]"],
    Iterator[tuple[str, "Nest[L]"]],
    ItemsView[str, "Nest[L]"],
    ValuesView["Nest[L]"],
    None,
]
#: of any framework but NumPy, whose norms are scalars; elsewhere a norm is a tensor as any other
OwnLeaf: TypeAlias = Union[TorchLeaf[L], JaxLeaf[L], PaddleLeaf[L], TensorflowLeaf[L]]  # noqa: UP007  # it takes a parameter
Several: TypeAlias = Union[  # noqa: UP007  # it takes a parameter
    Sequence[Nest[L]],
    Mapping[Any, Nest[L]],
    Iterator[Nest[L]],
    Iterator[tuple[str, Nest[L]]],
    ItemsView[str, Nest[L]],
    ValuesView[Nest[L]],
]
#: a tensor or a container of them; not a model
Grads: TypeAlias = Union[Nest[Array], Dataclass, Iterable[Any], Wrong[Never]]  # noqa: UP007  # as Nest, which is in it

# One for each framework, in the order of the overloads: the type of the norm follows from it. mypy writes out an alias that
# stands alone, so that None, which is in it, stands beside it.
GradsT = TypeVar("GradsT", bound=Grads)
RuleT = TypeVar("RuleT", bound=Rule | Wrong[Never])
# what may be any type; a tensor of Paddle, which mypy takes for almost any, is no None
UnclearT = TypeVar("UnclearT", bound=Nest[None] | None)
NumpyT = TypeVar("NumpyT", bound=Nest[NumpyLeaf] | None)
TorchT = TypeVar("TorchT", bound=Nest[TorchLeaf[Any]] | None)
JaxT = TypeVar("JaxT", bound=Nest[JaxLeaf[Any]] | Dataclass)
PaddleT = TypeVar("PaddleT", bound=Nest[PaddleLeaf[Any]] | None)
TensorflowT = TypeVar("TensorflowT", bound=Nest[TensorflowLeaf[Any]] | None)
# For the drop-ins that take an Iterable, as torch's functions do. An array of NumPy is an Iterable of Any. Where an argument's
# type has an Any, mypy answers Any if lines with different parameters fit; a type variable is the argument's own type in each.
NumpyLeafT = TypeVar("NumpyLeafT", bound=NumpyLeaf)
OwnIterableT = TypeVar("OwnIterableT", bound=Iterable[JaxLeaf[Any] | TensorflowLeaf[Any]])
NumpyIterableT = TypeVar("NumpyIterableT", bound=Iterable[NumpyLeaf])
ParametersT = TypeVar("ParametersT", bound=Iterable[TorchLeaf[Any]] | Wrong[Never])
