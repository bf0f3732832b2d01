"""``python tools/equivalence.py``: write ``docs/equivalence.md``, the natives and their equivalents, from the catalogue.

With ``--check`` it writes nothing, and ends with 1 if the page is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import written

from gradclip.explain import table

PAGE = Path(__file__).parents[1] / "docs" / "equivalence.md"


def main(arguments: Sequence[str] | None = None, page: Path = PAGE) -> int:
    """Write the page, or compare it; return the exit code."""
    return written.main("equivalence", table.markdown, page, arguments)


if __name__ == "__main__":
    sys.exit(main())
