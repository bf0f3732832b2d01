"""The imports between the files of one run: an import that another file needs must stay."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from gradclip.code.files import Found, scanned

__all__ = ["kept", "wanted"]

_FROM = re.compile(r"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n\\]|\\\r?\n)*)", re.MULTILINE)
_ALIAS = re.compile(r"\b(\w+)[ \t]+as[ \t]+(\w+)")
_ATTRIBUTE = re.compile(r"\b(\w+)\.(\w{0,40}(?:clip|norm)\w*)", re.IGNORECASE)
_COMMENT = re.compile(r"#[^\n]*")
_CLIPS = re.compile(r"clip|_norm", re.IGNORECASE)


def wanted(found: Iterable[Found]) -> Mapping[str, frozenset[str]]:
    """The names that files import from each module of a run; it scans the texts and may find too many names.

    Args:
        found: the files of the run.

    Returns:
        The last name of each module that mentions clipping -> the names, with ``"*"`` for all.
    """
    names: dict[str, set[str]] = defaultdict(set)
    clipping: set[str] = set()
    for one in found:
        if one.error or one.skipped or not one.path.endswith((".py", ".pyw")):
            continue
        text = scanned(one.path)
        if _CLIPS.search(text):
            clipping.update(_modules(one.path))
        for module, name in _imported(text):
            names[module].add(name)
    return {module: frozenset(names[module]) for module in clipping & names.keys()}


def kept(path: str, names: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The names that the other files import from one file."""
    return frozenset().union(*(names.get(module, ()) for module in _modules(path)))


def _modules(path: str) -> tuple[str, ...]:
    """The last names by which other files can import a file: for a package, the name of its folder, or a dot."""
    folder, file = os.path.split(os.path.abspath(path))
    stem = os.path.splitext(file)[0]
    return (".", os.path.basename(folder)) if stem == "__init__" else (stem,)


def _imported(text: str) -> Iterable[tuple[str, str]]:
    """The last name of each module, with each name imported from it or read as its attribute."""
    for module, listed in _FROM.findall(text):
        last = module.rpartition(".")[2] or "."
        for item in _COMMENT.sub("", listed).strip("()").replace("\\", " ").split(","):
            if words := item.split():
                yield last, words[0]
    if not _CLIPS.search(text):
        return
    aliases: dict[str, set[str]] = defaultdict(set)
    for module, alias in _ALIAS.findall(text):
        aliases[alias].add(module)
    for module, name in _ATTRIBUTE.findall(text):
        for last in (module, *aliases.get(module, ())):
            yield last, name
