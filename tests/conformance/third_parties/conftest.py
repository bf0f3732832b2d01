"""``tox -e third-parties`` installs the packages; no other environment has them."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("GRADCLIP_THIRD_PARTIES") else ["release"]
