"""The packages are installed where ``tox -e third-parties`` runs, and nowhere else."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("GRADCLIP_THIRD_PARTIES") else ["release"]
