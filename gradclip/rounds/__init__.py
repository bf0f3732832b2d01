"""One training step: its events, rounds of them, and the mistakes that they show. Nothing here knows a framework.

A *round* is what happens to the gradients of one optimizer between two of its steps, in order, on one way through the
program. ``gradclip.source.reading`` gets rounds from a source, ``gradclip.doctor`` from a run. ``table`` has a record for
each mistake, ``rules`` a rule of some ten lines. A rule fires on what is known; what is unknown is no alarm.
"""

from gradclip.rounds.across import beside, differing, relapsed
from gradclip.rounds.events import Backward, Clip, Condition, Event, Hook, Measure, Reduce, Step, Unscale, Write, Zero
from gradclip.rounds.mistake import Found
from gradclip.rounds.params import NO_PARAMS, UNKNOWN, Params
from gradclip.rounds.round import Round, rounds
from gradclip.rounds.rules import RULES, found
from gradclip.rounds.table import DOCTOR, LINT, MISTAKES, Mistake, mistake

__all__ = [
    "DOCTOR",
    "LINT",
    "MISTAKES",
    "NO_PARAMS",
    "RULES",
    "UNKNOWN",
    "Backward",
    "Clip",
    "Condition",
    "Event",
    "Found",
    "Hook",
    "Measure",
    "Mistake",
    "Params",
    "Reduce",
    "Round",
    "Step",
    "Unscale",
    "Write",
    "Zero",
    "beside",
    "differing",
    "found",
    "mistake",
    "relapsed",
    "rounds",
]
