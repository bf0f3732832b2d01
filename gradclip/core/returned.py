"""For type checkers: the gradients in a result. An iterator gives a list or a dict, and a parameter its gradient or None."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union, overload

from gradclip.core.typed import Array, Dataclass, TorchLeaf, X

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from gradclip.core.result import ClipResult

__all__ = ["Returned"]

G = TypeVar("G", covariant=True)

Kept: TypeAlias = Union[Array, Sequence["Kept"], Mapping[Any, "Kept"], Dataclass, None]  # noqa: UP007  # it refers to itself
K = TypeVar("K", bound=Kept)
N = TypeVar("N")
M = TypeVar("M", bound=TorchLeaf[Any])


class Returned:
    """The type of :attr:`gradclip.ClipResult.grads`, by what was clipped.

    The type of the norm tells torch from the others, also where torch is not installed and its names are Any. It is a variable
    in each line, so that mypy takes the first one that fits if the norm is Any.
    """

    @overload
    def __get__(
        self, result: ClipResult[Iterator[tuple[str, Parameter]] | ItemsView[str, Parameter], M], owner: Any, /
    ) -> dict[str, Tensor | None]: ...
    @overload
    def __get__(self, result: ClipResult[dict[str, Parameter], M], owner: Any, /) -> dict[str, Tensor | None]: ...
    @overload
    def __get__(
        self, result: ClipResult[Iterator[Parameter] | ValuesView[Parameter], M], owner: Any, /
    ) -> list[Tensor | None]: ...
    @overload
    def __get__(self, result: ClipResult[list[Parameter], M], owner: Any, /) -> list[Tensor | None]: ...
    @overload
    def __get__(self, result: ClipResult[tuple[Parameter, ...], M], owner: Any, /) -> tuple[Tensor | None, ...]: ...
    @overload
    def __get__(self, result: ClipResult[Parameter, M], owner: Any, /) -> Tensor | None: ...
    @overload
    def __get__(self, result: ClipResult[Iterator[tuple[str, X]] | ItemsView[str, X], N], owner: Any, /) -> dict[str, X]: ...
    @overload
    def __get__(self, result: ClipResult[Iterator[X] | ValuesView[X], N], owner: Any, /) -> list[X]: ...
    @overload
    def __get__(self, result: ClipResult[K, N], owner: Any, /) -> K: ...
    def __get__(self, result: Any, owner: Any, /) -> Any:
        raise NotImplementedError

    def __set__(self, result: Any, grads: Any, /) -> None:
        raise NotImplementedError


if TYPE_CHECKING:
    import paddle

    P = TypeVar("P", bound=paddle.Tensor)

    class Same:
        """As :class:`Returned`, where the norm does not tell the framework. For mypy a tensor of Paddle may be any type."""

        @overload
        def __get__(self, result: Unclear[P], owner: Any, /) -> P: ...
        @overload
        def __get__(self, result: Unclear[Iterator[P] | ValuesView[P]], owner: Any, /) -> list[P]: ...
        @overload
        def __get__(self, result: Unclear[Iterator[tuple[str, X]] | ItemsView[str, X]], owner: Any, /) -> dict[str, X]: ...
        @overload
        def __get__(self, result: Unclear[Iterator[X] | ValuesView[X]], owner: Any, /) -> list[X]: ...
        @overload
        def __get__(self, result: Unclear[K], owner: Any, /) -> K: ...
        def __get__(self, result: Any, owner: Any, /) -> Any:
            raise NotImplementedError

        def __set__(self, result: Any, grads: Any, /) -> None:
            raise NotImplementedError

    class Unclear(ClipResult[G, Any]):
        """The result for gradients of any type."""

        grads: Same = Same()
