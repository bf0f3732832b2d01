"""Watches the optimizers of PyTorch for ``gradclip doctor``: their steps, by torch's global hooks, and GradScaler's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradclip.backends.torch.watch.tensors import TorchWatch
from gradclip.doctor.recorder import Recorder

__all__ = ["parameters", "start"]


def start(recorder: Recorder, watch: TorchWatch) -> None:
    """Watch all optimizers and scalers from now on."""
    _steps(recorder, watch)
    _calls(recorder, watch)
    _scalers(recorder, watch)


def parameters(optimizer: Any) -> list[Any]:
    return [x for group in optimizer.param_groups for x in group["params"]]


def _steps(recorder: Recorder, watch: TorchWatch) -> None:
    seen: list[Any] = []  # the optimizers, kept alive

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not recorder.is_quiet and not watch.is_traced():
            if not any(x is optimizer for x in seen):
                seen.append(optimizer)
            inside, running = watch.here.steps, list(_frames())
            inside[:] = [one for one in inside if one[0] in running]  # without those that an exception ended
            inside.append((running[0], watch.before_step(parameters(optimizer))))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        inside = watch.here.steps
        if recorder.is_quiet or watch.is_traced() or not inside:
            return
        _, learned = inside.pop()
        if not inside:
            watch.here.stepped += 1
            watch.after_step(type(optimizer).__name__, id(optimizer), learned)

    recorder.undo(register_optimizer_step_pre_hook(recorder.guard.beside(before)).remove)
    recorder.undo(register_optimizer_step_post_hook(recorder.guard.beside(after)).remove)


def _frames() -> Iterator[FrameType]:
    """The calls that run now, from the caller of a hook, which the guard runs."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _calls(recorder: Recorder, watch: TorchWatch) -> None:
    def zero(original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(self: Any, *args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(self, *args, **options)
            params = list(self.parameters()) if isinstance(self, torch.nn.Module) else parameters(self)
            return watch.zero(lambda: original(self, *args, **options), params)

        return zero_grad

    def add_group(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_param_group(self: Any, *args: Any, **options: Any) -> Any:
            result = original(self, *args, **options)
            if not torch.compiler.is_compiling():
                with recorder.quietly():
                    watch.learn(parameters(self))
            return result

        return add_param_group

    recorder.replace(torch.optim.Optimizer, "zero_grad", zero)
    recorder.replace(torch.optim.Optimizer, "add_param_group", add_group)
    recorder.replace(torch.nn.Module, "zero_grad", zero)


def _scalers(recorder: Recorder, watch: TorchWatch) -> None:
    def scale(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, outputs: Any) -> Any:
            result = original(self, outputs)
            if self.is_enabled():
                watch.here.scale = float(self.get_scale())
            return result

        return watched

    def unscale(original: Callable[..., Any]) -> Callable[..., Any]:
        def unscale_(self: Any, optimizer: Any) -> Any:
            if not self.is_enabled() or recorder.is_quiet:
                return original(self, optimizer)
            return watch.unscale(lambda: original(self, optimizer), parameters(optimizer))

        return unscale_

    def step(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
            stepped = watch.here.stepped
            result = original(self, optimizer, *args, **options)
            if self.is_enabled() and watch.here.stepped == stepped and not recorder.is_quiet:
                learned = watch.before_step(parameters(optimizer))
                watch.after_step(type(optimizer).__name__, id(optimizer), learned, skipped=True)
            return result

        return watched

    for name, make in (("scale", scale), ("unscale_", unscale), ("step", step)):
        recorder.replace(torch.amp.GradScaler, name, make)
