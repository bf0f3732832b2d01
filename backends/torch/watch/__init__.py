"""Watches a training of PyTorch for ``gradclip doctor``: its public functions for gradients."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gradclip.backends.torch import slot, versions
from gradclip.backends.torch.watch import steps as watch_steps
from gradclip.backends.torch.watch.ranks import Ranks
from gradclip.backends.torch.watch.tensors import TorchWatch, leaves, made_by
from gradclip.doctor.events import Unwatched
from gradclip.doctor.places import NOWHERE, Place, place
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.request import Request, as_number
from gradclip.dropins.torch import clip_grad_norm_ as own_clip

__all__ = ["start"]

_SHARDED = "torch.distributed.fsdp"


def start(recorder: Recorder) -> None:
    """Watch PyTorch from now on."""
    watch = TorchWatch(recorder)
    recorder.guard.is_compiling = torch.compiler.is_compiling
    _clips(recorder, watch)
    _passes(recorder, watch)
    _hooks(recorder, watch)
    _compiles(recorder, watch)
    _starts(recorder)
    watch_steps.start(recorder, watch)
    recorder.replace(slot, "clip_few", lambda _: lambda *_: None)  # then gradclip's own clips all go through the engine
    recorder.watches["torch"] = watch
    ranks = Ranks(recorder, watch)
    recorder.closers.append(lambda: _close(recorder, watch, ranks))
    recorder.undo(watch.lines.stop)


def _close(recorder: Recorder, watch: TorchWatch, ranks: Ranks) -> None:
    watch.lines.stop()
    with contextlib.suppress(EnoughSteps):
        watch.step_by_hand(NOWHERE)
    watch.name(frozenset(watch.known))
    ranks.compare()


# ---- what is watched -----------------------------------------------------------------------------------------------------


def _clips(recorder: Recorder, watch: TorchWatch) -> None:
    utils = torch.nn.utils

    def by_norm(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(parameters: Any, max_norm: Any, norm_type: Any = 2.0, *rest: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(parameters, max_norm, norm_type, *rest, **options)
            tensors, again, is_iterator = _listed(parameters)
            order = as_number(norm_type) or 2.0
            request = Request("clip_grad_norm_", tensors, max_norm, order, is_iterator=is_iterator, are_params=True)
            request.own = lambda copies: original(leaves(copies), max_norm, norm_type)
            request.other = lambda copies: own_clip(leaves(copies), max_norm, norm_type)
            return watch.clip(lambda: original(again, max_norm, norm_type, *rest, **options), request)

        return clip_grad_norm_

    def by_known_norm(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grads_with_norm_(parameters: Any, max_norm: Any, total_norm: Any, *rest: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(parameters, max_norm, total_norm, *rest, **options)
            tensors, again, is_iterator = _listed(parameters)
            request = Request("clip_grads_with_norm_", tensors, max_norm, is_iterator=is_iterator, is_partial=True)
            request.are_params = True
            request.norm = total_norm.full_tensor() if hasattr(total_norm, "full_tensor") else total_norm
            return watch.clip(lambda: original(again, max_norm, total_norm, *rest, **options), request)

        return clip_grads_with_norm_

    def by_value(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_value_(parameters: Any, clip_value: Any, *rest: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(parameters, clip_value, *rest, **options)
            tensors, again, is_iterator = _listed(parameters)
            request = Request("clip_grad_value_", tensors, clip_value, math.inf, is_value=True, is_iterator=is_iterator)
            request.are_params = True
            return watch.clip(lambda: original(again, clip_value, *rest, **options), request)

        return clip_grad_value_

    for module in (utils.clip_grad, utils):
        recorder.replace(module, "clip_grad_norm_", by_norm)
        recorder.replace(module, "clip_grad_value_", by_value)
        recorder.replace(module, "clip_grads_with_norm_", by_known_norm)


def _listed(parameters: Any) -> tuple[list[Any], Any, bool]:
    """The tensors, the argument for the native, and whether it is an iterator."""
    if isinstance(parameters, torch.Tensor):
        return [parameters], parameters, False
    tensors = list(parameters)
    is_iterator = iter(parameters) is parameters
    is_generator = isinstance(parameters, types.GeneratorType)
    again = (x for x in tensors) if is_generator else iter(tensors) if is_iterator else parameters
    return tensors, again, is_iterator


def _passes(recorder: Recorder, watch: TorchWatch) -> None:
    local = _Local()

    def backward(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(*args, **options)
            _watch_sharded(recorder, watch)
            roots = args[0] if args else options.get("tensors", ())
            with recorder.quietly():
                watch.learn_from_a_pass(lambda: made_by(roots) or ())
            scale, watch.here.scale = watch.here.scale, 1.0
            return watch.backward(lambda: original(*args, **options), roots, is_local=local.many > 0, scale=scale)

        return watched

    def no_sync(original: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def opened(context: Any) -> Iterator[Any]:
            with context as inner:
                local.many += 1
                try:
                    yield inner
                finally:
                    local.many -= 1

        return lambda *args, **options: opened(original(*args, **options))

    recorder.replace(torch.autograd, "backward", backward)
    if hasattr(torch.nn.parallel, "DistributedDataParallel"):
        recorder.replace(torch.nn.parallel.DistributedDataParallel, "no_sync", no_sync)


class _Local(threading.local):
    """How many no_sync of this thread are open."""

    many = 0


def _hooks(recorder: Recorder, watch: TorchWatch) -> None:
    """Name the hooks that change a parameter's gradient during the backward pass: they may clip it."""

    def changing(hook: Callable[..., Any], where: Place) -> Callable[..., Any]:
        event = Unwatched(where=where, what="what a hook does to a gradient", hides_clips=True)

        def make(hook: Callable[..., Any]) -> Callable[..., Any]:
            def run(x: Any) -> Any:
                before, many = watch.state(x), len(recorder.events)
                result = hook(x)
                after = watch.state(x)
                is_changed = result is not None or (after is not None and after != before and len(recorder.events) == many)
                if is_changed and event not in recorder.events:
                    recorder.add(event)
                return result

            return run

        return recorder.guard.around(hook, make)

    def register(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, hook: Callable[..., Any]) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet or not watch.is_param(self):
                return original(self, hook)
            return original(self, changing(hook, place("torch")))

        return watched

    recorder.replace(torch.Tensor, "register_hook", register)
    recorder.replace(torch.Tensor, "register_post_accumulate_grad_hook", register)


def _compiles(recorder: Recorder, watch: TorchWatch) -> None:
    made: list[Callable[[], None] | None] = []

    def is_eager() -> bool:
        """Whether compiled code runs eagerly; from the first such code on, since torch's compiler takes long to import."""
        if recorder.to_run_eagerly and not made:
            made.append(versions.run_eagerly())
            if made[0] is not None:
                recorder.run_eagerly(made[0])
        return bool(made and made[0] is not None)

    def compile_(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(model: Any = None, *args: Any, **options: Any) -> Any:
            if recorder.is_quiet:
                return original(model, *args, **options)
            if is_eager():
                recorder.compiles("torch.compile", place("torch"))
            elif model is not None:
                watch.is_compiling_seen = True
                watch.lines.stop()
                is_model = isinstance(model, torch.nn.Module) or isinstance(getattr(model, "__self__", None), torch.nn.Module)
                what = f"what {'a compiled model' if is_model else 'a compiled function'} does inside"
                recorder.add(Unwatched(where=place("torch"), what=what, hides_clips=not is_model))
            return original(model, *args, **options)

        return watched

    recorder.replace(torch, "compile", compile_)


def _starts(recorder: Recorder) -> None:
    """Watch the processes that the script starts, each in itself."""

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **options: Any) -> Any:
            fn = fn if recorder.is_quiet or recorder.done else recorder.in_others(fn, nprocs)
            return original(fn, args, nprocs, *rest, **options)

        return start_processes

    for module in (sys.modules.get("torch.multiprocessing.spawn"), torch.multiprocessing):  # the first is hidden by a function
        recorder.replace(module, "start_processes", starting)


def _watch_sharded(recorder: Recorder, watch: TorchWatch) -> None:
    """Watch the clip of FSDP's first version once the script has imported it."""
    kind = getattr(sys.modules.get(_SHARDED), "FullyShardedDataParallel", None)
    if kind is None or kind in watch.sharded:
        return
    watch.sharded.append(kind)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(self: Any, max_norm: Any, norm_type: Any = 2.0) -> Any:
            name = "FullyShardedDataParallel.clip_grad_norm_"
            order = as_number(norm_type) or 2.0
            request = Request(name, list(self.parameters()), max_norm, order, is_partial=True, are_params=True)
            return watch.clip(lambda: original(self, max_norm, norm_type), request)

        return clip_grad_norm_

    recorder.replace(kind, "clip_grad_norm_", make)
