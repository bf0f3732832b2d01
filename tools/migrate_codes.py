"""``python tools/migrate_codes.py``: write ``docs/migrate-codes.md``, what each code of the migration means.

With ``--check`` it writes nothing, and exits with 1 if the page is not current.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import written

from gradclip.natives import NATIVES
from gradclip.source.codes import CODES, Code

PAGE = Path(__file__).parents[1] / "docs" / "migrate-codes.md"
_HEAD = """\
# The codes of `gradclip migrate`

`gradclip explain GM111` prints what stands here, and what to do. `--select` and `--ignore` take codes and prefixes of codes. If
you ignore the code of a trap (`GM1xx`), you accept the trap, and the command rewrites the call.
"""
_FUNCTIONS = """\
## Functions

A rewritten call has the code of its function: see [equivalences](equivalence.md). gradclip has no rule for these:

| code | function | |
| --- | --- | --- |"""
_SECTIONS = {
    "GM0": "Right as it is",
    "GM1": "Traps",
    "GM2": "What cannot be read",
    "GM3": "Another framework",
    "GM4": "Clips by hand",
    "GM5": "Trainers and other libraries",
}


def markdown() -> str:
    """The page."""
    lines = [_HEAD]
    for prefix, title in _SECTIONS.items():
        lines += [f"## {title}", "", "| code | meaning |", "| --- | --- |"]
        lines += [*(_row(code) for code in CODES.values() if code.code.startswith(prefix)), ""]
    lines.append(_FUNCTIONS)
    lines += [f"| {native.code} | `{native.names[0]}` | {native.note} |" for native in NATIVES if not native.dialect]
    return "\n".join(lines) + "\n"


def _row(code: Code) -> str:
    """A code's row. The linter's page of a mistake has its reason; each message has the advice."""
    return f"| {code.code} | {f'[{code.title}](lint/{code.code}.md)' if code.page() else code.reason} |"


main = partial(written.main, tool="migrate_codes", make=markdown, path=PAGE)

if __name__ == "__main__":
    sys.exit(main())
