"""For type checkers: an optimizer of PyTorch after :func:`gradclip.clipped`.

It is an object of its own class that has one attribute more, and Python has no such type. ``Clipped`` is an optimizer with that
attribute. By its base ``Any`` it passes for the optimizer's own class too, and has the attributes of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gradclip.core.result import ClipResult
    from gradclip.steps.slot import Slot

    class TorchSlot(Slot):
        """The hook of an optimizer."""

        last: ClipResult[None, Tensor] | Any  # None before the first step

        def remove(self) -> None:
            """Take the clip out."""

    class Clipped(Optimizer, Any):  # type: ignore[misc]
        """An optimizer of PyTorch that clips."""

        gradclip: TorchSlot
