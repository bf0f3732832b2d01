"""See what clipping does: how often, how much, and how large the norms are."""

from gradclip.steps.monitor.monitor import Monitor
from gradclip.steps.monitor.pure import observed

__all__ = ["Monitor", "observed"]
