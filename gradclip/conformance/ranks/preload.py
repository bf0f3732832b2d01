"""Imports what each rank imports: a server does it once, before it forks the ranks."""

from __future__ import annotations

import importlib
from contextlib import suppress

from gradclip.conformance.ranks import worker  # noqa: F401 - each rank runs it

__all__: list[str] = []

with suppress(Exception):  # a rank says what is wrong with the framework
    importlib.import_module("gradclip.backends.targets.torch_ranks").preload()
