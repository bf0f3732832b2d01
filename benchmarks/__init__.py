"""``python -m benchmarks``, from a checkout: gradclip against the natives, and against the machine's own limit."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The gradclip beside this package has no compiled loops: the installed one is measured.
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != ROOT]
