"""The names of gradients, from their places in a container, and the patterns that match them."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Sequence
from typing import Any

from gradclip.core.tracing import constant

__all__ = ["dotted", "matching", "own_name"]

_KEY = re.compile(r"""\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]""")  # the keys in a place: "['dense'][0]"
#: the escapes of ``repr``; not ``ast.literal_eval``, which fails at times in several threads of Python 3.11
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))")


@constant
def dotted(places: Sequence[str]) -> list[str]:
    """The keys, attributes and indices of each place, joined by dots: ``"dense.0"`` for ``"['dense'][0]"``."""
    return list(_dotted_names(tuple(places)))


@functools.lru_cache(16)  # they are the same in every step
def _dotted_names(places: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_KEY.sub(_dotted, place).removeprefix(".") for place in places)


def _dotted(key: re.Match[str]) -> str:
    text = key[1]
    return "." + (_ESCAPE.sub(_unescaped, text[1:-1]) if text[:1] in ("'", '"') else text)


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t"}.get(escape[4], escape[4])


def own_name(param: Any) -> str:
    """A parameter's own name; "" if it has none."""
    name = getattr(param, "name", None)
    return name if isinstance(name, str) else ""


@constant
def matching(pattern: str, flags: int | None, names: Sequence[str]) -> list[int]:
    """The places of the names that match a regular expression, or without ``flags`` a pattern with asterisks."""
    return list(_matches(pattern, flags, tuple(names)))


@functools.lru_cache(256)
def _matches(pattern: str, flags: int | None, names: tuple[str, ...]) -> tuple[int, ...]:
    matches = (re.compile(fnmatch.translate(pattern)) if flags is None else re.compile(pattern, flags)).fullmatch
    return tuple(i for i, name in enumerate(names) if matches(name))
