"""``python -m gradclip``: the same as the command ``gradclip``."""

import sys

from gradclip.commands.cli import main

sys.exit(main())
