"""The checks: properties of a clip that hold for any numbers.

Each is a deterministic function of a :class:`Bench`, written once for all operations that have the property.

>>> from gradclip.conformance.checks import CHECKS
>>> CHECKS["split_invariance"].operations("torch.clip_grad_norm_"), CHECKS["split_invariance"].operations("optax.clip")
(True, False)
"""

from gradclip.conformance.checks import containers, healthy, limits, memory, numbers, scope, transforms
from gradclip.conformance.checks.bench import Bench, Mismatch
from gradclip.conformance.checks.registry import CHECKS, Check

__all__ = ["CHECKS", "FILES", "Bench", "Check", "Mismatch"]

FILES = (healthy, scope, limits, numbers, containers, memory, transforms)  #: each adds its checks when it is imported
