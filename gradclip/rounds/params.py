"""Which parameters an event concerns, as far as that is known."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

__all__ = ["NO_PARAMS", "UNKNOWN", "Choice", "Params", "Token", "listed"]

_FEW = 3  #: names

#: the identity of a parameter or a module; ``("model", "encoder")`` is a part of ``("model",)``
Token = Hashable


class Choice(NamedTuple):
    """The last part of an identity: those parameters of a module that pass a test, or all others."""

    test: str
    holds: bool

    def __str__(self) -> str:
        return f" where {self.test}" if self.holds else f" where not ({self.test})"


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
        return False if self.is_certain and other.is_certain and not self._overlaps(other) else None

    def covers(self, other: Params) -> bool | None:
        """Whether all of the others are among these."""
        if other.is_all and other.unseen <= self.unseen and other.known <= self._with_parts(other.known):
            return True
        return False if self.is_certain and other.without(self).known else None

    def without(self, other: Params) -> Params:
        """Those of these that certainly are none of the others."""
        if not other.is_certain or not self.is_all:  # a module that may have those of others
            return Params()
        apart = {x for x in self.known - other.known if Params.of(x).meets(other) is False}
        return Params(frozenset(apart.union(*map(other._rest, self.known) if other._choices else ())))

    def _touches(self, other: Params) -> bool:
        if self._is_flat or other._is_flat:
            return False
        return bool(self._with_parts(other.known) or other._with_parts(self.known))

    def _overlaps(self, other: Params) -> bool:
        """Whether a parameter may be in both: one has those of a module that pass a test, the other perhaps all of them."""
        pairs = [(x, y) for x in self._choices for y in other.known] + [(x, y) for x in other._choices for y in self.known]
        return any(isinstance(y, tuple) and y[: len(x) - 1] == x[:-1] and not _is_other(x, y) for x, y in pairs)

    def _rest(self, token: Token) -> frozenset[Token]:
        """What these leave of a module, if they are those of its parameters that pass one test."""
        inside = [x for x in self.known if isinstance(x, tuple) and isinstance(token, tuple) and x[: len(token)] == token]
        if len(inside) == 1 and inside[0] in self._choices and inside[0][:-1] == token:
            choice = inside[0][-1]
            return frozenset({(*inside[0][:-1], choice._replace(holds=not choice.holds))})
        return frozenset()

    @cached_property
    def _choices(self) -> list[tuple[Any, ...]]:
        return [x for x in self.known if isinstance(x, tuple) and x and isinstance(x[-1], Choice)]

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


def _is_other(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether the same test tells two parts of a module apart."""
    same = len(one) == len(other) and isinstance(other[-1], Choice) and one[-1].test == other[-1].test
    return same and one[-1].holds is not other[-1].holds


def listed(params: Iterable[Token], names: Mapping[Any, str]) -> str:
    """The first names, and how many more.

    >>> listed([1, 2, 3, 4], {1: "weight", 2: "bias"})
    'a parameter without a name, a parameter without a name, bias and 1 more'
    """
    found = sorted(names.get(key, "") or "a parameter without a name" for key in params)
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return ", ".join(found[:_FEW]) + more


NO_PARAMS, UNKNOWN = Params(), Params(is_all=False)
