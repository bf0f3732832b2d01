"""``gradclip.clipped`` for Paddle's optimizers: a subclass of the optimizer's class, which clips or skips each step."""

from __future__ import annotations

from functools import cache
from typing import Any

import paddle

from gradclip.backends.paddle import versions
from gradclip.backends.paddle.slot import RuleClip
from gradclip.core.errors import ArgumentError
from gradclip.steps.refusals import cannot_skip, clips_already, not_an_optimizer
from gradclip.steps.slot import NAME
from gradclip.steps.step import Step

__all__ = ["clipped_by"]


def clipped_by(optimizer: Any, step: Step, patience: float) -> Any:
    """:func:`gradclip.clipped` for a ``paddle.optimizer``, which then has its clip as ``optimizer.gradclip``.

    In dynamic mode the gradients of all parameter groups are clipped together, before ``step``. In a static program the clip
    is the optimizer's ``grad_clip``.
    """
    if not isinstance(optimizer, paddle.optimizer.Optimizer):
        raise not_an_optimizer(optimizer)
    before = versions.clip_of(optimizer)
    if before is not None:
        hint = "make the optimizer without grad_clip, and clip it once; groups are several rules in one call."
        raise clips_already(f"grad_clip={before}", hint)
    if versions.is_in_program(optimizer):
        what = "A static program has the step of this optimizer already, and would go on without a clip."
        hint = "build the program again, with gradclip.clipped(optimizer, rule) before optimizer.minimize(loss)."
        raise ArgumentError(what, f"optimizer={type(optimizer).__name__}", hint)
    made: Any = optimizer
    kind: Any = type(optimizer)
    made.__class__ = _subclass(kind)
    made.gradclip = RuleClip(step, patience)
    versions.set_clip(made, made.gradclip)
    return made


class Clipping:
    """The clipping part of an optimizer; its class inherits from this class and from its former class."""

    gradclip: RuleClip

    def step(self, *closure: Any, **named: Any) -> Any:
        """Clip and step; or leave everything as it is, if the rule skips this step."""
        stepper: Any = super()
        given = (*closure, *named.values())
        if given:  # LBFGS: the gradients are there only after a call of the closure
            return stepper.step(self._clipping(*given))
        return self._unless_skipped(stepper.step, None)

    def minimize(self, loss: Any, startup_program: Any = None, parameters: Any = None, no_grad_set: Any = None) -> Any:
        """The same with the gradients that ``loss.backward()`` has left, as ``paddle.Model.fit`` does."""
        stepper: Any = super()

        def minimize() -> Any:
            return stepper.minimize(loss, startup_program, parameters, no_grad_set)

        found = self._unless_skipped(minimize, parameters)
        return ([], _present(versions.pairs_of(self, parameters))) if found is None else found

    def _unless_skipped(self, step: Any, parameters: Any) -> Any:
        """The result of a step with clipped gradients; None if it is skipped."""
        if not versions.is_static():
            versions.set_clip_of_groups(self, self.gradclip)
            pairs = versions.pairs_of(self, parameters)
            if pairs and not versions.is_void(self):
                clipped = self._clipped(pairs)
                if clipped is None:
                    return None
                pairs = clipped
            pairs = _present(pairs)
            self.gradclip.ready = {id(p): gradient for p, gradient in pairs}
        try:
            return step()
        finally:
            self.gradclip.ready = None

    def _clipping(self, closure: Any) -> Any:
        """A closure that clips the gradients that it has just made."""
        skips = next((group.rule for group in self.gradclip.step.groups if group.rule.skips), None)
        if skips is not None:
            hint = "skip in the closure, or leave skip_above and if_nonfinite out."
            raise cannot_skip(skips, "A step that calls its closure several times cannot be skipped.", hint)

        def called() -> Any:
            loss = closure()
            pairs = _present(versions.pairs_of(self))
            for (_, gradient), (_, new) in zip(pairs, self.gradclip(pairs), strict=True):
                paddle.assign(new, gradient)
            return loss

        return called

    def _clipped(self, pairs: Any) -> Any:
        """The clipped pairs; None if this step is to be skipped."""
        clip = self.gradclip
        clip.is_asked = True
        try:
            clipped = clip(pairs)
        finally:
            clip.is_asked = False
        if clip.last is None or not clip.step.skips:
            return clipped
        skip = bool(clip.last.skip)  # the one look at a value
        clip.count(skip)
        return None if skip else clipped

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer, with that of its clip if it has one."""
        state: dict[str, Any] = super().state_dict()  # type: ignore[misc]
        return {**state, NAME: self.gradclip.state_dict()} if self.gradclip.step.has_state else state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; the clip's changes only after the optimizer has taken its own."""
        has_state = self.gradclip.step.has_state
        checked = self.gradclip.found(state_dict, f"a state of {len(state_dict)} entries", level=2) if has_state else None
        super().set_state_dict({name: x for name, x in state_dict.items() if name != NAME})  # type: ignore[misc]
        if checked is not None:
            self.gradclip.load(checked)

    load_state_dict = set_state_dict


def _present(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(p, gradient) for p, gradient in pairs if gradient is not None]


@cache
def _subclass(kind: Any) -> type:
    # Paddle asks for the name of an optimizer's class
    return type(kind.__name__, (Clipping, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
