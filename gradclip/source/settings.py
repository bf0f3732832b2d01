"""Settings in YAML, JSON and TOML files that enable clipping in a trainer: reported, never changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradclip.core.errors import more
from gradclip.source.codes import CODES, wanted
from gradclip.source.model import Options, Site, Verdict

__all__ = ["KEYS", "own_setting", "report_settings"]

KEYS = {
    "gradient_clip_val": "GM501",
    "gradient_clip_algorithm": "GM501",
    "max_grad_norm": "GM502",
    "gradient_clipping": "GM503",
    "grad_clip": "GM504",
    "clip_grad": "GM504",
    "gradient_clip_norm": "GM504",
    "CLIP_GRADIENTS": "GM504",
    "clip_grad_by_norm": "GM504",  # PaddleDetection's, like the next key
    "clip_grad_by_value": "GM504",
    "grad_clip_cfg": "GM504",  # PaddleSeg's
}
#: codes of keys that only one trainer reads; other keys may be the project's own
_TRAINERS = frozenset({"GM501", "GM503"})
_OFF = frozenset({"null", "none", "~", "false", "0", "0.0", "0."})
_SETTING = re.compile(
    rf"""(?<![\w-])(?P<key>{"|".join((*KEYS, "clip_norm"))})(?P<quote>["']?)\s*[:=]\s*(?P<value>[^\s,#\]}}]*)"""
)
_LONGEST = 200  #: characters of the names before a key: "model.trainer."


def own_setting(key: str) -> str:
    """Why a setting needs no change, if nothing shows that a trainer reads it."""
    return f"`{key}` is a setting for a trainer or for the project's own code; the command migrates the place that clips."


def report_settings(text: str, options: Options) -> tuple[Site, ...]:
    r"""The settings of a file that concern clipping.

    >>> report_settings("trainer:\n  gradient_clip_val: 0.5  # or 1\n", Options())[0].text
    'gradient_clip_val: 0.5'
    """
    return tuple(site for site in _sites(text) if wanted(options, site.code))


def _sites(text: str) -> Iterator[Site]:
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        comment = line.find("#")
        for found in _SETTING.finditer(line, 0, comment if comment >= 0 else len(line)):
            start = _start(line, found)
            if start >= 0:
                yield _site(line[start : found.end()], found, number, start)


def _start(line: str, found: re.Match[str]) -> int:
    """The start of a key, including its quote and the names before it; -1 if the key is part of a longer text."""
    start = found.start()
    while start and found.start() - start < _LONGEST and (line[start - 1].isalnum() or line[start - 1] in "._"):
        start -= 1
    before = line[start - 1 : start]
    if found["quote"]:
        return start - 1 if before == found["quote"] else -1
    return -1 if before and before in "\"'-" else start


def _site(shown: str, found: re.Match[str], line: int, start: int) -> Site:
    key, value = found["key"], found["value"].strip("\"'").lower()
    code = CODES[KEYS.get(key, "GM504")]
    outcome, advice = Verdict.MANUAL, code.advice
    reason = code.reason
    if value in _OFF:
        code, outcome, reason, advice = CODES["GM003"], Verdict.UNCHANGED, f"`{key}` is off.", ""
    elif code.code not in _TRAINERS:
        code, outcome, advice = CODES["GM207"], Verdict.UNCHANGED, ""
        reason = own_setting(key)
    return Site(line, start + 1, code.code, outcome, shown.strip(), reason, advice, more(code.code))
