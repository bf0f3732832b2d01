"""Python imports this at its start, since the folder is on PYTHONPATH: the hook is there before any framework."""

import sys
from pathlib import Path

_TOOLS = str(Path(__file__).parents[2])

sys.path.insert(0, _TOOLS)
try:
    from replaced import hook
finally:
    sys.path.remove(_TOOLS)  # the other modules of that folder are not for the program

hook.start()
