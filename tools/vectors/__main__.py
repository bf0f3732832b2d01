"""``python tools/vectors [--check] [--record NATIVE]``: write the vector files, or compare them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: its modules belong to the package vectors

from vectors.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
