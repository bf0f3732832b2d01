"""``python tests/docs/first_steps/renew.py [FRAMEWORK ...]``: write the transcripts, by default for every framework.

Each framework runs in a separate process. Read the changes before you commit them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]

if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent)]
    from docs.first_steps.steps import PROGRAMS
    from docs.first_steps.transcript import path_of, transcript

    if sys.argv[1:2] == ["--here"]:
        path_of(sys.argv[2]).write_text(transcript(*PROGRAMS[sys.argv[2]]), "utf-8")
        sys.exit()
    names = sys.argv[1:] or list(PROGRAMS)
    codes = [subprocess.run([sys.executable, __file__, "--here", name]).returncode for name in names]
    sys.exit(max(codes))
