"""The entries of a saved state. A wrong one is an error with its path: ``sections[0].before.counts``."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gradclip.core.errors import ArgumentError, shown
from gradclip.core.registry import find

__all__ = ["Stored", "is_number"]

_ABSENT = object()


class Stored:
    """An entry of a saved state: plain, or a framework's array, as some checkpoints restore numbers.

    >>> state = Stored({"steps": 3, "bins": [1, 2]}, "monitor")
    >>> state["steps"].whole(), [x.whole() for x in state["bins"].entries()]
    (3, [1, 2])
    """

    def __init__(self, given: Any, kind: str, path: str = "", maker: str = "") -> None:
        """``kind`` names the object with this state, ``maker`` the call that returns it: by default ``state_dict()``."""
        self.given, self.kind, self.path, self.maker = given, kind, path, maker or f"{kind}.state_dict()"

    def _part(self, given: Any, path: str) -> Stored:
        return Stored(given, self.kind, path, self.maker)

    def wrong(self, why: str) -> ArgumentError:
        """The error for this entry."""
        received = "an entry that is missing" if self.given is _ABSENT else shown(self.given)
        where = f"{self.path}: {received}" if self.path else received
        return ArgumentError(f"This is not the state of a {self.kind}: {why}.", where, f"{self.maker} makes one.")

    def __getitem__(self, key: str) -> Stored:
        if not isinstance(self.given, Mapping):
            raise self.wrong("this must be a dict")
        path = f"{self.path}.{key}" if self.path else key
        return self._part(self.given.get(key, _ABSENT), path)

    def check_version(self, version: int) -> None:
        """Refuse a state of another version."""
        found = self["version"].whole()
        if found != version:
            what, hint = f"The state of a {self.kind} is of another version.", f"this gradclip reads version {version}."
            raise ArgumentError(what, f"version={found}", hint)

    def check_keys(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        """Refuse anything but a mapping with these keys."""
        if not isinstance(self.given, Mapping):
            raise self.wrong("this must be a dict")
        for key in required:
            if key not in self.given:
                raise self[key].wrong("an entry is missing")
        for key in self.given:
            if key not in required and key not in optional:
                raise self._part(key, self.path).wrong("an entry has an unknown name")

    def entries(self, count: int | None = None) -> list[Stored]:
        """The entries of a list, of this length if one is given."""
        plain = self.plain
        if not isinstance(plain, (list, tuple)):
            raise self.wrong("this must be a list")
        if count is not None and len(plain) != count:
            raise self.wrong(f"this must be a list of {count}")
        return [self._part(x, f"{self.path}[{i}]") for i, x in enumerate(plain)]

    def items(self) -> Iterator[tuple[str, Stored]]:
        """The names and the entries of a mapping."""
        if not isinstance(self.given, Mapping):
            raise self.wrong("this must be a dict")
        for key in self.given:
            if not isinstance(key, str):
                raise self._part(key, self.path).wrong("a name must be a string")
            yield key, self[key]

    @property
    def plain(self) -> Any:
        """The entry; an array as a number or a list."""
        x = self.given
        backend = None if isinstance(x, (int, float, list, tuple, str)) else find(x)
        return x if backend is None else backend.tolist(x)

    def real(self) -> Any:
        """A number that may be infinite, as in the state of a limit without an upper bound."""
        x = self.plain
        if not is_number(x) or x != x or (isinstance(x, int) and abs(x) >= 1 << 1023):
            raise self.wrong("this must be a number")
        return x

    def number(self) -> float:
        """A finite number."""
        plain = self.plain
        if not is_number(plain) or not abs(plain) <= _MOST:
            raise self.wrong("this must be a finite number")
        return float(plain)

    def whole(self, least: int | None = 0, most: float = math.inf) -> int:
        """A whole number, not below ``least`` and not above ``most``."""
        number = self.number()
        plain = self.plain
        if not number.is_integer() or (least is not None and plain < least):
            raise self.wrong("this must be a whole number" + ("" if least is None else f" from {least} on"))
        if plain > most:
            raise self.wrong(f"this must be at most {most}")
        return int(plain)

    def truth(self) -> bool:
        """True or False."""
        plain = self.plain
        if not isinstance(plain, (bool, int, float)) or plain not in (0, 1):
            raise self.wrong("this must be True or False")
        return bool(plain)


_MOST = math.nextafter(math.inf, 0.0)


def is_number(x: object) -> bool:
    """Whether this is an int or a float, and no bool."""
    return isinstance(x, (int, float)) and not isinstance(x, bool)
