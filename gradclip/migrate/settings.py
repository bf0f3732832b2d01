"""Settings in YAML, JSON and TOML files that make a trainer clip: reported, never changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradclip.migrate.codemod.codes import CODES, link
from gradclip.migrate.codemod.configuration import KEYS
from gradclip.migrate.model import Options, Outcome, Site

__all__ = ["report_settings", "wanted"]

#: what only one trainer reads; the others are as often settings of the project's own
_TRAINERS = frozenset({"GM501", "GM503"})
_OFF = frozenset({"null", "none", "~", "false", "0", "0.0", "0."})
_SETTING = re.compile(
    rf"""(?<![\w"'-])(?P<quote>["']?)(?:[\w.]+\.)?(?P<key>{"|".join(KEYS)})(?P=quote)\s*[:=]\s*(?P<value>[^\s,#\]}}]*)"""
)


def report_settings(text: str, options: Options) -> tuple[Site, ...]:
    r"""The settings of a file that have to do with clipping.

    >>> report_settings("trainer:\n  gradient_clip_val: 0.5  # or 1\n", Options())[0].text
    'gradient_clip_val: 0.5'
    """
    return tuple(site for site in _sites(text) if wanted(site.code, options))


def _sites(text: str) -> Iterator[Site]:
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        for found in _SETTING.finditer(line):
            if "#" not in line[: found.start()]:
                yield _site(found, number)


def _site(found: re.Match[str], line: int) -> Site:
    key, value = found["key"], found["value"].strip("\"'").lower()
    code, outcome, advice = CODES[KEYS[key]], Outcome.MANUAL, CODES[KEYS[key]].advice
    reason = code.reason
    if value in _OFF:
        code, outcome, reason, advice = CODES["GM003"], Outcome.UNCHANGED, f"`{key}` is off.", ""
    elif code.code not in _TRAINERS:
        code, outcome, advice = CODES["GM207"], Outcome.UNCHANGED, ""
        reason = f"`{key}` is a setting for a trainer, or for the project's own code, which is migrated where it clips."
    return Site(line, found.start() + 1, code.code, outcome, found[0].strip(), reason, advice, link(code.code))


def wanted(code: str, options: Options) -> bool:
    """Whether the user wants to hear of a code."""
    chosen = not options.select or code.startswith(tuple(options.select))
    return chosen and not (options.ignore and code.startswith(tuple(options.ignore)))
