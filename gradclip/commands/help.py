"""The parser of one command, and the text around the options in its ``--help``, wrapped at the terminal's width."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from typing import Any

__all__ = ["CommandParser", "HelpFormatter"]

#: a term or a command, two spaces or more, and its meaning
_COLUMNS = re.compile(r"( *\S.*?  +)(\S.*)")
_WIDEST = 100  #: longer lines are hard to read


class CommandParser(argparse.ArgumentParser):
    """Refuses unknown words itself, so that the usage above the error is that of the command."""

    unknown = ""  #: what more to say of them

    # argparse's own has overloads
    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        options, extra = super().parse_known_args(args, namespace)
        if extra:
            self.error(f"unrecognized arguments: {' '.join(extra)}{self.unknown}")
        return options, extra


class HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs, and keeps the lines of lists and examples; a long one goes on below, further in."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for paragraph in _paragraphs(text):
            lines += _wrapped(paragraph, min(width, _WIDEST)) or [""]
        return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """The lines of a text; those of a paragraph, which begin at the margin, are one."""
    found: list[str] = []
    is_open = False
    for line in text.strip("\n").splitlines():
        in_paragraph = line[:1].strip() != "" and not _COLUMNS.fullmatch(line)
        if is_open and in_paragraph:
            found[-1] += f" {line}"
        else:
            found.append(line)
        is_open = in_paragraph
    return found


def _wrapped(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()))
    further = f"{margin}    " if margin else ""
    if columns := _COLUMNS.fullmatch(line):
        term, meaning = columns.groups()
        if len(term) <= width // 2:
            return _filled(meaning, width, term, " " * len(term))
        return [*_wrapped(term.rstrip(), width), *_filled(meaning, width, f"{margin}    ", f"{margin}    ")]
    return _filled(line.strip(), width, margin, further)


def _filled(text: str, width: int, first: str, others: str) -> list[str]:
    """The lines; words stay whole, since many are names and options."""
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
