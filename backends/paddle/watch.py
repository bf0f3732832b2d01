"""Watches a training of Paddle in dynamic mode for ``gradclip doctor``."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle

from gradclip.backends.paddle import versions
from gradclip.backends.paddle.slot.clipped import Clipping
from gradclip.doctor.events import Ids, Unwatched
from gradclip.doctor.places import NOWHERE, Place, place
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.request import Request, as_number
from gradclip.doctor.seen import norm_of
from gradclip.doctor.watch import Watch
from gradclip.natives.model import clips_of
from gradclip.natives.paddle import NATIVES

__all__ = ["PaddleWatch", "start"]


class PaddleWatch(Watch):
    """The primitives of the watch on Paddle's tensors."""

    framework = "paddle"
    clips = clips_of(NATIVES)
    counts_passes = False

    def grad(self, param: Any) -> Any:
        return param.grad

    def version(self, grad: Any) -> int:
        return int(grad.inplace_version)

    def mark(self, grad: Any) -> int:
        # each access to .grad makes another object for the same memory
        return int(grad.data_ptr()) if grad.is_dense() else id(grad)

    def is_param(self, x: Any) -> bool:
        return isinstance(x, paddle.Tensor) and x.is_leaf and not x.stop_gradient

    def is_exempt(self, param: Any) -> bool:
        return not getattr(param, "need_clip", True)

    def is_traced(self) -> bool:
        return not paddle.in_dynamic_mode()

    def norms(self, tensors: Sequence[Any], order: float, *, full: bool = False) -> list[float]:
        with paddle.no_grad():
            values = [versions.merged(x) if x.is_selected_rows() else x for x in tensors]
            return [norm_of(x.detach().astype("float64").numpy(), order) for x in values]

    def copies(self, tensors: Sequence[Any], most: int) -> list[Any]:
        return []

    def name(self, params: Ids) -> None:
        self.recorder.names.update({key: self.known[key].name for key in params if key in self.known})


def start(recorder: Recorder) -> None:
    """Watch Paddle from now on."""
    watch = PaddleWatch(recorder)
    recorder.watches["paddle"] = watch
    if recorder.to_run_eagerly:
        _run_eagerly(recorder)
    _clips(recorder, watch)
    _passes(recorder, watch)
    _steps(recorder, watch)
    _scalers(recorder, watch)
    _hooks(recorder, watch)

    def close() -> None:
        watch.lines.stop()
        with contextlib.suppress(EnoughSteps):
            watch.step_by_hand(NOWHERE)
        watch.name(frozenset(watch.known))

    recorder.closers.append(close)
    recorder.undo(watch.lines.stop)


def _run_eagerly(recorder: Recorder) -> None:
    def to_static(original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **options: Any) -> Any:
            if not recorder.is_quiet:
                recorder.compiles("paddle.jit.to_static", place("paddle"))
            return original(*args, **options)

        return made

    paddle.jit.enable_to_static(False)
    recorder.run_eagerly(lambda: paddle.jit.enable_to_static(True))
    recorder.replace(paddle.jit, "to_static", to_static)


def _is_off(recorder: Recorder) -> bool:
    return recorder.is_quiet or not paddle.in_dynamic_mode()


def _clips(recorder: Recorder, watch: PaddleWatch) -> None:
    def by_norm(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(parameters: Any, max_norm: Any, norm_type: Any = 2.0, *rest: Any, **options: Any) -> Any:
            if _is_off(recorder):
                return original(parameters, max_norm, norm_type, *rest, **options)
            tensors, is_iterator = _listed(parameters)
            order = as_number(norm_type) or 2.0
            request = Request("clip_grad_norm_", tensors, max_norm, order, is_iterator=is_iterator, are_params=True)
            given = iter(tensors) if is_iterator else parameters
            return watch.clip(lambda: original(given, max_norm, norm_type, *rest, **options), request)

        return clip_grad_norm_

    def by_value(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_value_(parameters: Any, clip_value: Any) -> Any:
            if _is_off(recorder):
                return original(parameters, clip_value)
            tensors, is_iterator = _listed(parameters)
            request = Request("clip_grad_value_", tensors, clip_value, math.inf, is_value=True, is_iterator=is_iterator)
            request.are_params = True
            return watch.clip(lambda: original(iter(tensors) if is_iterator else parameters, clip_value), request)

        return clip_grad_value_

    def of_class(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, params_grads: Any) -> Any:
            if _is_off(recorder):
                return original(self, params_grads)
            pairs = [(p, g) for p, g in params_grads if g is not None and getattr(p, "need_clip", True)]
            return watch.clip(lambda: original(self, params_grads), _of_class(self, [p for p, _ in pairs]), _new)

        return call

    recorder.replace(paddle.nn.utils, "clip_grad_norm_", by_norm)
    recorder.replace(paddle.nn.utils, "clip_grad_value_", by_value)
    recorder.replace(paddle.nn.clip.ClipGradBase, "__call__", of_class)


def _listed(parameters: Any) -> tuple[list[Any], bool]:
    if isinstance(parameters, paddle.Tensor):
        return [parameters], False
    return list(parameters), iter(parameters) is parameters


def _new(result: Any) -> list[Any]:
    return [g for p, g in result if g is not None and getattr(p, "need_clip", True)]


def _of_class(clip: Any, tensors: list[Any]) -> Request:
    name = type(clip).__name__
    if isinstance(clip, paddle.nn.ClipGradByValue):
        return Request(name, tensors, clip.max, math.inf, is_value=True)
    limit = getattr(clip, "clip_norm", math.nan)
    return Request(name, tensors, limit, is_each=isinstance(clip, paddle.nn.ClipGradByNorm))


def _passes(recorder: Recorder, watch: PaddleWatch) -> None:
    numbers = itertools.count(1)

    def backward(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            if _is_off(recorder) or watch.in_backward:
                return original(*args, **options)
            number = next(numbers)
            if not number & (number - 1):  # 1, 2, 4, 8, ...: a look at all objects takes long
                with recorder.quietly():
                    watch.learn_from_a_pass(_of_models)
            scale, watch.here.scale = watch.here.scale, 1.0
            return watch.backward(lambda: original(*args, **options), scale=scale)

        return watched

    recorder.replace(paddle.Tensor, "backward", backward)
    recorder.replace(paddle.autograd, "backward", backward)


def _of_models() -> list[Any]:
    """The parameters of all models, which are looked for among all objects."""
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, paddle.nn.Layer)}  # far fewer than objects
    models = [x for x in objects if type(x) in kinds]
    return [x for model in models for x in model.parameters()]


def _hooks(recorder: Recorder, watch: PaddleWatch) -> None:
    """Name the hooks that change a parameter's gradient during the backward pass: they may clip it."""

    def changing(where: Place) -> Callable[..., Any]:
        event = Unwatched(where=where, what="what a hook does to a gradient", hides_clips=True)

        def make(hook: Callable[..., Any]) -> Callable[..., Any]:
            def run(grad: Any) -> Any:
                result = hook(grad)
                if result is not None and event not in recorder.events:
                    recorder.add(event)
                return result

            return run

        return make

    def register(original: Callable[..., Any]) -> Callable[..., Any]:
        def register_hook(self: Any, hook: Callable[..., Any]) -> Any:
            if _is_off(recorder) or not watch.is_param(self):
                return original(self, hook)
            return original(self, recorder.guard.around(hook, changing(place("paddle"))))

        return register_hook

    recorder.replace(paddle.Tensor, "register_hook", register)


def _steps(recorder: Recorder, watch: PaddleWatch) -> None:
    def step(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, *args: Any, **options: Any) -> Any:
            if _is_off(recorder) or watch.here.steps:
                return original(self, *args, **options)
            learned = watch.before_step(versions.parameters_of(self))
            watch.here.steps.append(self)
            try:
                result = original(self, *args, **options)
            finally:
                watch.here.steps.pop()
                recorder.stepping = None
            watch.here.stepped += 1
            watch.after_step(type(self).__name__, id(self), learned)
            return result

        return watched

    def clear(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, *args: Any, **options: Any) -> Any:
            if _is_off(recorder):
                return original(self, *args, **options)
            params = self.parameters() if isinstance(self, paddle.nn.Layer) else versions.parameters_of(self)
            return watch.zero(lambda: original(self, *args, **options), params)

        return watched

    base = paddle.optimizer.Optimizer
    kinds = [x for x in vars(paddle.optimizer).values() if isinstance(x, type) and issubclass(x, base)]
    for kind in [base, *(x for x in kinds if x is not base), Clipping]:  # the last one clips before its base's step
        for name in ("step", "minimize"):
            recorder.replace(kind, name, step)
        for name in ("clear_grad", "clear_gradients"):
            recorder.replace(kind, name, clear)
    recorder.replace(paddle.nn.Layer, "clear_gradients", clear)


def _scalers(recorder: Recorder, watch: PaddleWatch) -> None:
    def scale(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, var: Any) -> Any:
            result = original(self, var)
            if self.is_enable():
                watch.here.scale = versions.scale_of(self)
            return result

        return watched

    def unscale(original: Callable[..., Any]) -> Callable[..., Any]:
        def unscale_(self: Any, optimizer: Any) -> Any:
            if not self.is_enable() or _is_off(recorder):
                return original(self, optimizer)
            return watch.unscale(lambda: original(self, optimizer), versions.parameters_of(optimizer))

        return unscale_

    def step(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
            if not self.is_enable() or _is_off(recorder) or watch.here.is_unscaling:
                return original(self, optimizer, *args, **options)
            stepped, watch.here.is_unscaling = watch.here.stepped, True
            try:
                result = original(self, optimizer, *args, **options)
                if watch.here.stepped == stepped:
                    learned = watch.before_step(versions.parameters_of(optimizer))
                    watch.after_step(type(optimizer).__name__, id(optimizer), learned, skipped=True)
            finally:
                watch.here.is_unscaling = False
            return result

        return watched

    for name, make in (("scale", scale), ("unscale_", unscale), ("step", step), ("minimize", step)):
        recorder.replace(paddle.amp.GradScaler, name, make)
