"""A failure, in one line."""

from __future__ import annotations

__all__ = ["said"]


def said(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
