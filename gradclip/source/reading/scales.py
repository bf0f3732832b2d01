"""Loss scales: what scales a loss, what is computed from its scale, and the end of a scaled stretch."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.rounds import UNKNOWN, Backward, Unscale
from gradclip.source.reading.values import Constant, Instance, Made, Thing, Value, name_of

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["SCALE", "UNSCALED", "by_trainer", "divided", "is_scaler", "leave", "marked"]

UNSCALED = "unscaled"  #: the mark of gradients that are divided by the factor of their loss
SCALE = "scale"  #: the mark of a loss scale, and of values computed from it
_SCALES = frozenset({"get_scale", "_scale", "get_loss_scaling", "loss_scale", "dynamic_scale", "cur_scale"})


def is_scaler(owner: Value) -> bool:
    """Whether an object scales the loss."""
    if isinstance(owner, Made):
        off = owner.given.get("enabled")
        return owner.name.endswith("GradScaler") and not (isinstance(off, Constant) and off.value is False)
    return isinstance(owner, Thing) and "scaler" in name_of(owner).lower()


def marked(owner: Value, name: str) -> frozenset[str]:
    """The mark of ``scaler.get_scale()``, ``optimizer.dynamic_scale``."""
    if name not in _SCALES:
        return frozenset()
    is_wrapper = isinstance(owner, Made) and owner.name.endswith("LossScaleOptimizer")
    return frozenset({SCALE}) if is_wrapper or is_scaler(owner) else frozenset()


def divided(machine: Machine, by: Value | None, node: ast.expr | None) -> bool:
    """Whether a program divides gradients by the factor of their loss: this factor has been a loss scale."""
    if by is None or node is None or not by.token or by.token not in machine.factors:
        return False
    for i in range(len(machine.events) - 1, -1, -1):
        if isinstance(event := machine.events[i], Backward):
            machine.events[i] = replace(event, scaler=machine.shown(node)[1:-1])
            break
    return True


def leave(machine: Machine, node: ast.With | ast.AsyncWith) -> None:
    """The end of ``with amp.scale_loss(loss, optimizer)``, which unscales."""
    machine.emit(Unscale(**machine.about(node.items[0].context_expr), params=UNKNOWN))


def by_trainer(machine: Machine, func: ast.expr) -> str:
    """What else scales a loss: ``accelerator.backward(loss)`` with fp16, ``self.manual_backward(loss)`` of Lightning."""
    if not isinstance(func, ast.Attribute):
        return ""
    module = machine.scope.owner
    if func.attr == "manual_backward" and isinstance(module, Instance) and machine.is_a(module.of, ("LightningModule",)):
        by_trainer = machine.attribute(module, "automatic_optimization")
        return machine.file.scales if isinstance(by_trainer, Constant) and not by_trainer.value else ""
    owner = machine.value(func.value) if isinstance(func.value, (ast.Name, ast.Attribute)) else None
    precision = owner.given.get("mixed_precision") if isinstance(owner, Made) and owner.name.endswith("Accelerator") else None
    return "Accelerate" if isinstance(precision, Constant) and precision.value == "fp16" else ""
