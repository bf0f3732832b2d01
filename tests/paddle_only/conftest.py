"""Imports Paddle before the tests of this folder do, because its import warns, and a warning is an error here."""

from __future__ import annotations

import frameworks.paddle  # noqa: F401
