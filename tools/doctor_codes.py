"""``python tools/doctor_codes.py``: write the table of findings into ``docs/doctor.md``.

With ``--check`` it writes nothing, and ends with 1 if the table is not current.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import written

from gradclip.rounds import DOCTOR, MISTAKES

PAGE = Path(__file__).parents[1] / "docs" / "doctor.md"
_HEAD = "| Code | Finding | Why it is wrong |\n| --- | --- | --- |\n"


def table() -> str:
    """The table of all findings; what to do is in each message, and a linked page has both reason and advice."""
    rows = []
    for one in (one for one in MISTAKES.values() if DOCTOR in one.seen_by):
        page = f"lint/{one.shown_by}.md" if one.shown_by else one.told_on
        title = f"[{one.title}]({page})" if page else one.title
        rows.append(f"| {one.code} | {title} | {one.reason} |\n")
    return _HEAD + "".join(rows)


def with_table(text: str) -> str:
    """A page with the current table."""
    before, _, rest = text.partition(_HEAD)
    after = rest.partition("\n\n")[2]
    return f"{before}{table()}\n{after}"


main = partial(written.main, tool="doctor_codes", make=lambda: with_table(PAGE.read_text("utf-8")), path=PAGE)

if __name__ == "__main__":
    sys.exit(main())
