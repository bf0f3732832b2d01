"""The mistakes that no comment exempts, and the formats of the report."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from gradclip.core.errors import counted, more
from gradclip.source.codes import RULES, Code
from gradclip.source.files import harmless
from gradclip.source.model import Verdict
from gradclip.source.runner import FileResult

__all__ = ["FORMATS", "Alarm", "alarms", "clips", "report", "unfollowed"]

FORMATS = ("text", "json", "sarif", "github")
_IGNORE = re.compile(r"#\s*gradclip:\s*ignore(?:\[([\w\s,]*)\])?")
_SCHEMA = 2  #: version of the JSON document
#: sites that clip no gradient, or only lead to the project's own code, which has a site of its own
_NO_CLIP = frozenset({"GM002", "GM003", "GM004", "GM005", "GM112", "GM207"})


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
    more: str  #: the command that prints the page of the rule


def clips(result: FileResult) -> int:
    """The number of places in a file that clip gradients."""
    return len({(place.cell, place.site.line, place.site.column) for place in result.places if place.site.code not in _NO_CLIP})


def unfollowed(result: FileResult) -> int:
    """The number of clips in a file whose step was not found."""
    return sum(not place.site.is_followed for place in result.places)


def alarms(result: FileResult, chosen: Iterable[str]) -> Iterator[Alarm]:
    """The mistakes in a file that no comment suppresses.

    Args:
        result: the result for the file.
        chosen: the selected codes.
    """
    wanted = frozenset(chosen)
    for place in result.places:
        site = place.site
        if site.code not in wanted or site.outcome is not Verdict.MANUAL:
            continue
        if not _is_ignored(place.comment, site.code):
            rule = RULES[site.code]
            position = (place.cell, site.line, site.column, site.code, rule.severity)
            yield Alarm(result.path, *position, site.text, site.reason, site.advice, site.more)


def _is_ignored(line: str, code: str) -> bool:
    found = _IGNORE.search(line)
    if found is None:
        return False
    return found[1] is None or any(code.startswith(one.strip().upper()) for one in found[1].split(",") if one.strip())


# ---- output ------------------------------------------------------------------------------------------------------------


def report(
    found: Sequence[Alarm],
    failed: Sequence[FileResult],
    files: int,
    count: int,
    form: str,
    stream: TextIO,
    version: str = "0",
    lost: int = 0,
) -> None:
    """Write the report.

    Args:
        found: the mistakes.
        failed: the files that could not be read.
        files: the number of files read, with those that failed.
        count: the number of clips in them.
        form: one of ``FORMATS``.
        stream: the output.
        version: gradclip's version.
        lost: the number of clips whose step was not found.
    """
    if form == "json":
        errors = [{"path": one.path, "line": one.line or None, "message": one.error} for one in failed]
        document = {
            "schema": _SCHEMA,
            "files": files,
            "clips": count,
            "unfollowed": lost,
            "alarms": [asdict(alarm) for alarm in found],
            "errors": errors,
        }
        stream.write(json.dumps(document, indent=1) + "\n")
    elif form == "sarif":
        stream.write(json.dumps(_sarif(found, failed, version), indent=1) + "\n")
    elif form == "github":
        stream.writelines(_github(alarm) + "\n" for alarm in found)
    else:
        for alarm in found:
            _text(alarm, stream)
        stream.write(_summary(len(found), len(failed), files - len(failed), count, lost))


def _where(alarm: Alarm) -> str:
    cell = f"cell {alarm.cell}:" if alarm.cell else ""
    return f"{harmless(alarm.path)}:{cell}{alarm.line}:{alarm.column}"


def _text(alarm: Alarm, stream: TextIO) -> None:
    stream.write(f"{_where(alarm)}: {alarm.code} {alarm.severity}: {harmless(alarm.reason)}\n")
    stream.write(f"    {harmless(alarm.text)}\n    {harmless(alarm.advice)} More: {alarm.more}\n")


def _summary(mistakes: int, failed: int, files: int, count: int, lost: int) -> str:
    """What the command did; it does not say "no mistakes" where it could not read a file, and says what it could not follow."""
    seen = f"{counted(count, 'clip')} of {counted(files, 'file')}" if count else f"no clip found in {counted(files, 'file')}"
    if mistakes:
        seen = f"{counted(mistakes, 'mistake')} in {seen if count else counted(files, 'file')}"
    elif count and not failed:
        seen = f"no mistakes in {seen}"
    if lost:
        seen += f"; no step was found for {lost} of these clips" if count > 1 else "; no step was found for it"
    return f"{seen}; {counted(failed, 'file')} could not be read.\n" if failed else f"{seen}.\n"


def _github(alarm: Alarm) -> str:
    """A workflow command of GitHub, which displays a message at a line."""

    def escaped(text: str, more: str = "") -> str:
        for character in "%\r\n" + more:
            text = text.replace(character, f"%{ord(character):02X}")
        return harmless(text)  # the log of a run is a terminal

    at = f"file={escaped(alarm.path, ':,')}"
    if not alarm.cell:  # a line of a cell is not a line of the file
        at += f",line={alarm.line},col={alarm.column}"
    cell = f"Cell {alarm.cell}, line {alarm.line}: " if alarm.cell else ""
    title = escaped(f"{alarm.code} {RULES[alarm.code].title}", ":,")
    return f"::{alarm.severity} {at},title={title}::{escaped(f'{cell}{alarm.reason} {alarm.advice}')}"


def _sarif(found: Sequence[Alarm], failed: Sequence[FileResult], version: str) -> dict[str, Any]:
    """SARIF 2.1.0, the exchange format of static analysis."""
    driver = {"name": "gradclip lint", "version": version, "rules": list(map(_sarif_rule, RULES.values()))}
    notes = [
        {
            "level": "error",
            "message": {"text": one.error},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(one.path)}}}],
        }
        for one in failed
    ]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": list(map(_sarif_result, found)),
        "invocations": [{"executionSuccessful": not failed, "toolExecutionNotifications": notes}],
    }
    return {"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "runs": [run]}


def _sarif_rule(rule: Code) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in re.findall(r"\w+", rule.title)),
        "shortDescription": {"text": f"{rule.title}."},
        "fullDescription": {"text": rule.reason},
        "help": {"text": f"{rule.advice} A wrong and a right program: {more(rule.code)}"},
        "defaultConfiguration": {"level": rule.severity},
    }


def _sarif_result(alarm: Alarm) -> dict[str, Any]:
    message = f"{alarm.reason} {alarm.advice}".strip()
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(alarm.path)}}
    if alarm.cell:
        message = f"Cell {alarm.cell}, line {alarm.line}: {message}"
    else:
        location["region"] = {"startLine": alarm.line, "startColumn": alarm.column, "snippet": {"text": alarm.text}}
    return {
        "ruleId": alarm.code,
        "ruleIndex": list(RULES).index(alarm.code),
        "level": alarm.severity,
        "message": {"text": message},
        "locations": [{"physicalLocation": location}],
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace(os.sep, "/").encode(errors="surrogateescape"))
