"""``gradclip.clipped`` for PyTorch's optimizers: hooks that clip, and that save and load the state."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch

from gradclip.backends.torch import versions
from gradclip.backends.torch.slot import StepPreHook
from gradclip.core.errors import ArgumentTypeError, shown
from gradclip.steps.refusals import clips_already, not_an_optimizer
from gradclip.steps.slot import NAME
from gradclip.steps.step import Step

__all__ = ["clipped_by"]


def clipped_by(optimizer: Any, step: Step, patience: float) -> Any:
    """:func:`gradclip.clipped` for a ``torch.optim.Optimizer``, which then has its hook as ``optimizer.gradclip``.

    A hook clips; three more keep the state in ``optimizer.state_dict()``, if there is any.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):  # a scheduler and a module may have one, too
        raise not_an_optimizer(optimizer)
    inner = optimizer
    while isinstance(inside := getattr(inner, "optimizer", None), torch.optim.Optimizer):
        inner = inside  # a wrapper, as Accelerate's: the one inside steps
    if not versions.has_hooks(inner):
        what = "This optimizer has no hooks, as torch.optim.Optimizer.__init__ makes them: nothing could clip in its step."
        hint = "pass the optimizer inside that steps; or call super().__init__(params, defaults) in the wrapper's __init__."
        raise ArgumentTypeError(what, f"optimizer={shown(inner)}", hint)
    before = getattr(inner, NAME, None)
    if isinstance(before, StepPreHook):
        hint = "clip it once, by groups if there are several rules; optimizer.gradclip.remove() takes the first clip out."
        raise clips_already(f"rule={before.rule}", hint)
    hook = StepPreHook(step, patience)
    hook.know(inner, _count(inner))
    _attach(inner, hook)
    return optimizer


def _attach(optimizer: torch.optim.Optimizer, hook: StepPreHook) -> None:
    """Give an optimizer the hook that clips, and those that save, load and copy its state."""
    # a compiled step calls it between two graphs: its state is in Python's objects
    hook.handles.append(optimizer.register_step_pre_hook(torch.compiler.disable(hook.__call__)))
    saved = _Saved(hook)
    hook.handles += [
        optimizer.register_state_dict_post_hook(saved.save),
        optimizer.register_load_state_dict_pre_hook(saved.check),
        optimizer.register_load_state_dict_post_hook(saved.load),
    ]
    hook.handles.append(_Attributes(optimizer, hook))


class _Attributes:
    """The handle of the attributes of an optimizer: its hook, and how to copy it, since torch's copies have no hooks."""

    def __init__(self, optimizer: torch.optim.Optimizer, hook: StepPreHook) -> None:
        self.optimizer, self.hook = weakref.ref(optimizer), hook
        vars(optimizer).update({NAME: hook, "__reduce_ex__": self.reduce})

    def reduce(self, protocol: Any) -> tuple[Any, ...]:
        """For ``copy.deepcopy`` and ``pickle``: torch's copy, with the clip and its state."""
        optimizer = self.optimizer()
        kind: Any = type(optimizer)
        made, args, *state = kind.__reduce_ex__(optimizer, protocol)
        return (_copied, (self.hook, _count(optimizer), made, *args), *state)

    def remove(self) -> None:
        """Take the attributes away."""
        own = vars(self.optimizer())
        if own.get(NAME) is self.hook:  # another clip may have come after this one was taken out
            del own[NAME], own["__reduce_ex__"]


def _copied(hook: StepPreHook, count: int, made: Any, *args: Any) -> Any:
    """A copy of an optimizer of so many parameters before it has its state, with the hook of the copy."""
    optimizer, own = made(*args), copy.copy(hook)
    versions.make_room_for_hooks(optimizer)
    own.know(optimizer, count)
    _attach(optimizer, own)
    return optimizer


def _count(optimizer: Any) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)


class _Saved:
    """The hooks that save and load the state, if there is one, with an optimizer's own, and only if torch has loaded that."""

    def __init__(self, hook: StepPreHook) -> None:
        self.hook = hook
        self.checked: dict[str, Any] | None = None

    def save(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Add the state."""
        if self.hook.step.has_state:
            state[NAME] = self.hook.state_dict()

    def check(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Check the state that is to be loaded."""
        if self.hook.step.has_state:
            self.checked = self.hook.found(state, f"state_dict with {', '.join(state)}", level=3)

    def load(self, optimizer: torch.optim.Optimizer) -> None:
        """Load it."""
        checked, self.checked = self.checked, None
        if checked is not None:
            self.hook.load(checked)
