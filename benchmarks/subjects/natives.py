"""A framework's natives as functions to time: their records say how each is applied, and what kind of clip it is."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import gradclip
from benchmarks.case import Function, Kind, Maker
from gradclip.core.rule import Scope
from gradclip.natives import Applied, Native

__all__ = ["functions", "kind", "own", "resolved"]

_KINDS = {
    (Scope.GLOBAL, False): Kind.GLOBAL,
    (Scope.TENSOR, False): Kind.EACH,
    (Scope.TENSOR, True): Kind.RMS,
    (Scope.VALUE, False): Kind.VALUE,
}
#: a clip and its limits, as a function of the gradients
_CALLS: Mapping[Applied, Callable[[Any, tuple[float, ...]], Callable[[Any], Any]]] = {
    Applied.PARAMETERS: lambda clip, given: lambda params: clip(params, *given),
    Applied.TENSOR: lambda clip, given: lambda grads: [clip(g, *given) for g in grads],
    Applied.TENSORS: lambda clip, given: lambda grads: clip(grads, *given),
    Applied.SLOT: lambda clip, given: clip(*given),
    Applied.NORM: lambda norm, given: lambda tensors: norm(tensors),
}
_FORMS = {Applied.PARAMETERS: "params", Applied.SLOT: "pairs"}


def own(natives: Iterable[Native]) -> Iterator[tuple[Native, Kind]]:
    """The clips that a framework has today, and its norm; without one for which gradients alone are too little."""
    for native in natives:
        if native.applied is Applied.NORM and native.status == "current":
            yield native, Kind.NORM
        elif native.is_own and (found := kind(native)) is not None:
            yield native, found


def kind(native: Native) -> Kind | None:
    """What a native does; None for a clip of another kind, or one that needs more than the gradients."""
    rule = native.rule()
    return _KINDS.get((rule.scope, rule.mean)) if rule.relative_to is None and rule.order == 2 else None


def _limits(native: Native, limit: float) -> tuple[float, ...]:
    """The limits that a native requires: one, or two bounds."""
    return (*(-limit for _ in native.needed[1:]), limit)


def resolved(native: Native) -> Any:
    """The framework's own function or class."""
    root, _, rest = native.names[0].partition(".")
    return operator.attrgetter(rest)(importlib.import_module(root))


def functions(natives: Iterable[Native], modes: tuple[str, ...]) -> Iterator[Function]:
    """The natives, each with gradclip's function of the same name; without those for which it has none."""
    for native, kind in own(native for native in natives if hasattr(gradclip, native.last)):
        is_norm, is_pair = kind is Kind.NORM, native.applied is Applied.TENSORS and native.returns_norm
        yield Function(
            native.last,
            kind,
            _maker(native, resolved(native)),
            _maker(native, getattr(gradclip, native.last)),
            in_place=native.applied is Applied.PARAMETERS,
            form=_FORMS.get(native.applied, "tensors"),
            modes=modes,
            norm=operator.itemgetter(1) if is_pair else _itself if is_norm or native.returns_norm else None,
            grads=operator.itemgetter(0) if is_pair else list,
        )


def _maker(native: Native, clip: Any) -> Maker:
    return lambda limit: _CALLS[native.applied](clip, _limits(native, limit))


def _itself(result: Any) -> Any:
    return result
