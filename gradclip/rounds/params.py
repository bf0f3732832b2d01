"""Which parameters an event concerns, as far as that is known."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

__all__ = ["NO_PARAMS", "UNKNOWN", "Params", "Token", "listed"]

_FEW = 3  #: names

#: the identity of a parameter or a module; ``("model", "encoder")`` is a part of ``("model",)``
Token = Hashable


@dataclass(frozen=True)
class Params:
    """Some parameters. Each question has the answers True, False, and None for what is unknown.

    >>> model, encoder = Params.of(("model",)), Params.of(("model", "encoder"))
    >>> model.covers(encoder), encoder.covers(model), model.meets(Params.of(("head",))), model.meets(UNKNOWN)
    (True, None, False, None)
    """

    known: frozenset[Token] = frozenset()
    is_all: bool = True  #: whether there are no others, but those of ``unseen``
    unseen: frozenset[Token] = frozenset()  #: the identities of sets whose parameters are not known

    @classmethod
    def of(cls, *tokens: Token) -> Params:
        """Exactly these."""
        return cls(frozenset(tokens))

    @classmethod
    def joined(cls, parts: Iterable[Params]) -> Params:
        """Those of all parts."""
        parts = list(parts)
        known, unseen = (frozenset().union(*sets) for sets in ([x.known for x in parts], [x.unseen for x in parts]))
        return cls(known, all(part.is_all for part in parts), unseen)

    @property
    def is_certain(self) -> bool:
        """Whether each of them is known."""
        return self.is_all and not self.unseen

    def meets(self, other: Params) -> bool | None:
        """Whether they have a parameter in common."""
        if not self.known.isdisjoint(other.known) or not self.unseen.isdisjoint(other.unseen) or self._touches(other):
            return True
        return False if self.is_certain and other.is_certain else None

    def covers(self, other: Params) -> bool | None:
        """Whether all of the others are among these."""
        if other.is_all and other.unseen <= self.unseen and other.known <= self._with_parts(other.known):
            return True
        return False if self.is_certain and other.without(self).known else None

    def without(self, other: Params) -> Params:
        """Those of these that certainly are none of the others."""
        if not other.is_certain or not self.is_all:  # a module that may have those of others
            return Params()
        return Params(frozenset(x for x in self.known - other.known if Params.of(x).meets(other) is False))

    def _touches(self, other: Params) -> bool:
        if self._is_flat or other._is_flat:
            return False
        return bool(self._with_parts(other.known) or other._with_parts(self.known))

    def _with_parts(self, tokens: frozenset[Token]) -> frozenset[Token]:
        """Those of some tokens that are these, or parts of these."""
        found = self.known & tokens
        if self._is_flat:
            return found
        parts = (x for x in tokens - found if isinstance(x, tuple))
        return found.union(x for x in parts if any(x[:i] in self.known for i in range(1, len(x))))

    @cached_property
    def _is_flat(self) -> bool:
        return not any(isinstance(x, tuple) for x in self.known)


def listed(params: Iterable[Token], names: Mapping[Any, str]) -> str:
    """The first names, and how many more.

    >>> listed([1, 2, 3, 4], {1: "weight", 2: "bias"})
    'a parameter without a name, a parameter without a name, bias and 1 more'
    """
    found = sorted(names.get(key, "") or "a parameter without a name" for key in params)
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return ", ".join(found[:_FEW]) + more


NO_PARAMS, UNKNOWN = Params(), Params(is_all=False)
