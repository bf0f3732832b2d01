"""Mistakes in any code that clips gradients, whether it will be migrated or not. ``gradclip.rounds`` has their rules.

``reading`` asks for them, ``plain`` where LibCST is missing; ``settings`` reads the user's choice, and ``output`` writes what
was found.
"""

from gradclip.lint.output import FORMATS, Alarm, alarms, clips, report, unfollowed
from gradclip.lint.reading import HAS_LIBCST, of_source, run
from gradclip.lint.settings import ConfigurationError, configuration

__all__ = [
    "FORMATS",
    "HAS_LIBCST",
    "Alarm",
    "ConfigurationError",
    "alarms",
    "clips",
    "configuration",
    "of_source",
    "report",
    "run",
    "unfollowed",
]
