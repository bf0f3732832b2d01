"""The programs on the linter's pages: the first fails as the page says, and the second does not."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from gradclip import lint
from gradclip.source.codes import RULES

PAGES = Path(__file__).parents[2] / "docs" / "lint"


def programs(code: str) -> tuple[str, str]:
    """Return the failing program of a page, and the program that the changes below it make."""
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    (wrong,), (changes,) = (re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) for language in ("python", "diff"))
    return wrong, changed(wrong, changes)


def changed(program: str, changes: str) -> str:
    """Apply the lines of a diff in order; those that it shows and those that it takes away must be in the program."""
    rest, made = program.splitlines(), list[str]()
    for line in changes.splitlines():
        if line.startswith("+"):
            made.append(line[1:])
            continue
        at = rest.index(line[1:])
        made += rest[: at + line.startswith(" ")]
        rest = rest[at + 1 :]
    return "".join(f"{line}\n" for line in [*made, *rest])


def framework(code: str) -> str:
    return re.findall(r"This program \((\w+)\)", (PAGES / f"{code}.md").read_text(encoding="utf-8"))[0]


def of(name: str) -> list[str]:
    """Return the rules whose programs use the framework."""
    return [code for code in RULES if framework(code) == name]


def check(code: str) -> None:
    """Run both programs of a page, and lint them."""
    wrong, right = programs(code)
    for program, codes in ((wrong, [code]), (right, [])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about an empty generator
            exec(compile(program, code, "exec"), {"__name__": "program"})
        assert [site.code for site in lint.of_source(program) if site.code in RULES] == codes
