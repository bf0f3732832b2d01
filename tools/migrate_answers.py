"""``python tools/migrate_answers.py BEFORE AFTER``: the clips whose answer differs between two runs of the migration.

BEFORE and AFTER are what ``gradclip migrate --check --json FOLDER`` printed for one folder of clones, with two versions of
gradclip. An answer is rewritten, named (a person migrates it), quiet (shown to be none) or silent (nothing is said). The exit
status is 1 if a clip that was rewritten or named is quiet or silent now.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ANSWERS = ("silent", "quiet", "named", "rewritten")
_OUTCOMES = {"unchanged": "quiet", "manual": "named", "rewritten": "rewritten"}
Place = tuple[str, int, int]  #: path, cell, line

__all__ = ["ANSWERS", "answers", "differences", "main"]


def answers(document: Mapping[str, Any]) -> dict[Place, tuple[int, str]]:
    """The strongest answer for each line with a site, as a place in ``ANSWERS``, with its code and the code of the line."""
    found: dict[Place, tuple[int, str]] = {}
    for file in document["files"]:
        for site in file["sites"]:
            place = file["path"], site["cell"] or 0, site["line"]
            answer = ANSWERS.index(_OUTCOMES[site["outcome"]]), f"{site['code']} {site['text']}"
            found[place] = max(found.get(place, answer), answer)
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[int, int, Place, str]]:
    """The answer before, the answer after, the place and its code, for each line whose answer differs."""
    old, new = answers(before), answers(after)
    for place in sorted(old.keys() | new.keys()):
        (was, said), (now, says) = (one.get(place, (0, "")) for one in (old, new))
        if was != now:
            yield was, now, place, says or said


def main(arguments: Sequence[str]) -> int:
    """Print the differences, by their kind, and how many of each kind there are."""
    before, after = (json.loads(Path(one).read_text(encoding="utf-8")) for one in arguments)
    found = sorted(differences(before, after))
    for was, now, (path, cell, line), text in found:
        print(f"{ANSWERS[was]} -> {ANSWERS[now]}: {path}:{f'cell {cell}:' if cell else ''}{line}: {text}")
    for document, name in ((before, "before"), (after, "after")):
        counts = Counter(ANSWERS[answer] for answer, _ in answers(document).values())
        print(f"{name}: " + ", ".join(f"{counts[one]:,} {one}" for one in ANSWERS[:0:-1]))
    return int(any(was > 1 >= now for was, now, *_ in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
