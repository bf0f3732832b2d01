"""Mistakes in any code that clips gradients, whether it will be migrated or not: the rules and the reports."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from gradclip.migrate.codemod.codes import CODES
from gradclip.migrate.files import harmless
from gradclip.migrate.model import Outcome
from gradclip.migrate.runner import FileResult

__all__ = ["FORMATS", "RULES", "Alarm", "ConfigurationError", "Rule", "alarms", "configuration", "report"]

FORMATS = ("text", "json", "sarif", "github")
_PAGE = "docs/lint/{}.md"
_IGNORE = re.compile(r"#\s*gradclip:\s*ignore(?:\[([\w\s,]*)\])?")
_SCHEMA = 1  #: version of the JSON document


class ConfigurationError(ValueError):
    """A table in ``pyproject.toml`` with invalid content."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of mistake."""

    code: str
    severity: str  #: "error": training goes wrong; "warning": the code probably does not do what its author meant

    @property
    def title(self) -> str:
        return CODES[self.code].title

    @property
    def page(self) -> str:
        return _PAGE.format(self.code)


RULES: Mapping[str, Rule] = {
    code: Rule(code, severity)
    for code, severity in {
        "GM101": "error",
        "GM104": "warning",
        "GM105": "error",
        "GM106": "warning",
        "GM107": "error",
        "GM108": "error",
        "GM110": "error",
        "GM113": "error",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """One mistake in one place."""

    path: str
    cell: int  #: in a notebook, from 1; else 0
    line: int
    column: int
    code: str
    severity: str
    text: str
    reason: str
    advice: str
    page: str


def alarms(result: FileResult, lines: Sequence[Sequence[str]], chosen: Iterable[str]) -> Iterator[Alarm]:
    """The mistakes in a file that no comment suppresses.

    Args:
        result: the result for the file.
        lines: the lines of the file, or of each cell.
        chosen: the selected codes.
    """
    wanted = frozenset(chosen)
    for place in result.places:
        site = place.site
        if site.code not in wanted or site.outcome is not Outcome.MANUAL:
            continue
        text = lines[max(place.cell - 1, 0)]
        if not _is_ignored(text[site.line - 1] if site.line <= len(text) else "", site.code):
            rule = RULES[site.code]
            position = (place.cell, site.line, site.column, site.code, rule.severity)
            yield Alarm(result.path, *position, site.text, site.reason, site.advice, rule.page)


def _is_ignored(line: str, code: str) -> bool:
    found = _IGNORE.search(line)
    if found is None:
        return False
    return found[1] is None or any(code.startswith(one.strip().upper()) for one in found[1].split(",") if one.strip())


# ---- configuration ----------------------------------------------------------------------------------------------------


def configuration(folder: str) -> dict[str, list[str]]:
    """The table ``[tool.gradclip.lint]`` of the nearest ``pyproject.toml`` at or above a folder.

    Raises:
        ConfigurationError: if the table cannot be read, or has keys other than ``select``, ``ignore`` and ``exclude``.
    """
    folder = os.path.abspath(folder)
    while not os.path.isfile(path := os.path.join(folder, "pyproject.toml")):
        above = os.path.dirname(folder)
        if above == folder:
            return {}
        folder = above
    try:
        with open(path, "rb") as file:
            table: Any = tomllib.load(file).get("tool", {}).get("gradclip", {}).get("lint", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise ConfigurationError("[tool.gradclip.lint] is not a table")
    for key, value in table.items():
        if key not in ("select", "ignore", "exclude"):
            raise ConfigurationError(f"[tool.gradclip.lint] has no key {key}")
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigurationError(f"{key} of [tool.gradclip.lint] is not a list of strings")
    return table


# ---- output ------------------------------------------------------------------------------------------------------------


def report(
    found: Sequence[Alarm], failed: Sequence[FileResult], files: int, form: str, stream: TextIO, version: str = "0"
) -> None:
    """Write the report.

    Args:
        found: the mistakes.
        failed: the files that could not be read.
        files: the number of files read.
        form: one of ``FORMATS``.
        stream: the output.
        version: gradclip's version.
    """
    if form == "json":
        errors = [{"path": one.path, "line": one.line or None, "message": one.error} for one in failed]
        document = {"schema": _SCHEMA, "files": files, "alarms": [asdict(alarm) for alarm in found], "errors": errors}
        stream.write(json.dumps(document, indent=1) + "\n")
    elif form == "sarif":
        stream.write(json.dumps(_sarif(found, failed, version), indent=1) + "\n")
    elif form == "github":
        stream.writelines(_github(alarm) + "\n" for alarm in found)
    else:
        _text(found, files, stream)


def _where(alarm: Alarm) -> str:
    cell = f"cell {alarm.cell}:" if alarm.cell else ""
    return f"{harmless(alarm.path)}:{cell}{alarm.line}:{alarm.column}"


def _text(found: Sequence[Alarm], files: int, stream: TextIO) -> None:
    for alarm in found:
        stream.write(f"{_where(alarm)}: {alarm.code} {alarm.severity}: {alarm.reason}\n")
        stream.write(f"    {harmless(alarm.text)}\n    {alarm.advice} See {alarm.page}, or: gradclip explain {alarm.code}\n")
    count = f"{len(found):,} mistake{'' if len(found) == 1 else 's'}" if found else "no mistakes"
    stream.write(f"{files:,} file{'' if files == 1 else 's'} read: {count}.\n")


def _github(alarm: Alarm) -> str:
    """A workflow command of GitHub, which displays a message at a line."""

    def escaped(text: str, more: str = "") -> str:
        for character in "%\r\n" + more:
            text = text.replace(character, f"%{ord(character):02X}")
        return text

    at = f"file={escaped(alarm.path, ':,')}"
    if not alarm.cell:  # a line of a cell is not a line of the file
        at += f",line={alarm.line},col={alarm.column}"
    cell = f"Cell {alarm.cell}, line {alarm.line}: " if alarm.cell else ""
    title = escaped(f"{alarm.code} {RULES[alarm.code].title}", ":,")
    return f"::{alarm.severity} {at},title={title}::{escaped(f'{cell}{alarm.reason} {alarm.advice}')}"


def _sarif(found: Sequence[Alarm], failed: Sequence[FileResult], version: str) -> dict[str, Any]:
    """SARIF 2.1.0, the exchange format of static analysis."""
    rules = list(RULES.values())
    described = [
        {
            "id": rule.code,
            "name": "".join(word.capitalize() for word in re.findall(r"\w+", rule.title)),
            "shortDescription": {"text": f"{rule.title}."},
            "fullDescription": {"text": CODES[rule.code].reason},
            "help": {"text": f"See {rule.page}."},
            "defaultConfiguration": {"level": rule.severity},
        }
        for rule in rules
    ]
    results = []
    for alarm in found:
        message = f"{alarm.reason} {alarm.advice}".strip()
        location: dict[str, Any] = {"artifactLocation": {"uri": _uri(alarm.path)}}
        if alarm.cell:
            message = f"Cell {alarm.cell}, line {alarm.line}: {message}"
        else:
            location["region"] = {"startLine": alarm.line, "startColumn": alarm.column, "snippet": {"text": alarm.text}}
        number = next(number for number, rule in enumerate(rules) if rule.code == alarm.code)
        results.append(
            {
                "ruleId": alarm.code,
                "ruleIndex": number,
                "level": alarm.severity,
                "message": {"text": message},
                "locations": [{"physicalLocation": location}],
            }
        )
    notes = [
        {
            "level": "error",
            "message": {"text": one.error},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(one.path)}}}],
        }
        for one in failed
    ]
    driver = {"name": "gradclip lint", "version": version, "rules": described}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "invocations": [{"executionSuccessful": not failed, "toolExecutionNotifications": notes}],
    }
    return {"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "runs": [run]}


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace(os.sep, "/").encode(errors="surrogateescape"))
