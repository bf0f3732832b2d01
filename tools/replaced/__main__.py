"""``python tools/replaced [--json FILE] -- COMMAND``: run a command with gradclip in the place of the natives."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: its modules belong to the package replaced

from replaced.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
