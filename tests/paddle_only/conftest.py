"""Imports Paddle before the tests of this folder do: its import warns, and here a warning is an error."""

from __future__ import annotations

import frameworks.paddle  # noqa: F401
