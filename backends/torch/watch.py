"""Watches a training of PyTorch for ``gradclip doctor``: its public functions, and the global hooks of optimizer steps."""

from __future__ import annotations

import gc
import math
import os
import sys
import types
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradclip.backends.torch import step as slot
from gradclip.backends.torch import versions
from gradclip.doctor.events import Clip, Params, Unwatched
from gradclip.doctor.places import place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.watch import Request, Watch, as_number
from gradclip.dropins.torch import clip_grad_norm_ as own_clip

__all__ = ["TorchWatch", "start"]

_WAIT = timedelta(seconds=30)  #: for the other processes
_SHARDED = "torch.distributed.fsdp"


class TorchWatch(Watch):
    """The primitives of the watch on PyTorch's tensors."""

    framework = "torch"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.scale = 1.0  #: of the loss that a GradScaler has just scaled
        self.stepped = 0  #: how many steps there were
        self.sharded: list[Any] = []  #: the classes of FSDP that are watched

    def grad(self, param: Any) -> Any:
        return param.grad if param.is_leaf else None

    def version(self, grad: Any) -> int:
        return versions.writes(grad)

    def is_param(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.is_leaf and x.requires_grad

    def is_traced(self) -> bool:
        return bool(torch.compiler.is_compiling())

    @torch.no_grad()
    def norms(self, tensors: Sequence[Any], order: float, *, full: bool = False) -> list[float]:
        return [_norm(x.detach(), order, full) for x in tensors]

    @torch.no_grad()
    def copies(self, tensors: Sequence[Any], most: int) -> list[Any]:
        if sum(x.numel() for x in tensors) > most or any(x.is_sparse or hasattr(x, "full_tensor") for x in tensors):
            return []
        return [x.detach().clone() for x in tensors]

    def native(self, limit: Any, order: float) -> Any:
        return lambda copies: torch.nn.utils.clip_grad_norm_(_leaves(copies), limit, order)

    def name(self, params: Params) -> None:
        names = self.recorder.names
        if params <= names.keys():
            return
        modules = [x for x in gc.get_objects() if issubclass(type(x), torch.nn.Module)]
        inner = {id(child) for module in modules for child in module.children()}
        for module in modules:
            if id(module) not in inner:
                for name, x in module.named_parameters():
                    names.setdefault(id(x), name)
        for key in params - names.keys():
            shape = tuple(self.known[key].shape) if key in self.known else ()
            names[key] = f"a parameter of shape {shape}"


def _norm(x: torch.Tensor, order: float, full: bool) -> float:
    if hasattr(x, "full_tensor"):
        x = x.full_tensor() if full else x.to_local()
    if x.is_sparse:
        x = x.coalesce().values()
    if x.is_meta or versions.is_fake(x) or versions.is_wrapped(x):
        return math.nan
    if not x.numel():
        return 0.0
    wide = torch.complex128 if x.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(x.to(wide), order))


def start(recorder: Recorder) -> None:
    """Watch PyTorch from now on."""
    watch = TorchWatch(recorder)
    _clips(recorder, watch)
    _passes(recorder, watch)
    _compiles(recorder, watch)
    _steps(recorder, watch)
    recorder.replace(slot, "clip_few", lambda _: lambda *_: None)  # then gradclip's own clips all go through the engine
    _parameter_calls(recorder, watch)
    _scalers(recorder, watch)
    recorder.watches["torch"] = watch
    recorder.closers.append(lambda: _close(recorder, watch))
    recorder.undo(watch.lines.stop)


def _close(recorder: Recorder, watch: TorchWatch) -> None:
    watch.lines.stop()
    watch.name(frozenset(watch.known))
    _compare(recorder)


# ---- what is watched -----------------------------------------------------------------------------------------------------


def _clips(recorder: Recorder, watch: TorchWatch) -> None:
    utils = torch.nn.utils

    def by_norm(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(parameters: Any, max_norm: Any, norm_type: Any = 2.0, *rest: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(parameters, max_norm, norm_type, *rest, **options)
            tensors, again, is_iterator = _listed(parameters)
            request = Request("clip_grad_norm_", tensors, max_norm, as_number(norm_type) or 2.0, is_iterator=is_iterator)
            request.own = lambda copies: original(_leaves(copies), max_norm, norm_type)
            request.other = lambda copies: own_clip(_leaves(copies), max_norm, norm_type)
            return watch.clip(lambda: original(again, max_norm, norm_type, *rest, **options), request)

        return clip_grad_norm_

    def by_known_norm(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grads_with_norm_(parameters: Any, max_norm: Any, total_norm: Any, *rest: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(parameters, max_norm, total_norm, *rest, **options)
            tensors, again, is_iterator = _listed(parameters)
            request = Request("clip_grads_with_norm_", tensors, max_norm, is_iterator=is_iterator, is_partial=True)
            return watch.clip(lambda: original(again, max_norm, total_norm, *rest, **options), request)

        return clip_grads_with_norm_

    def by_value(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_value_(parameters: Any, clip_value: Any, *rest: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(parameters, clip_value, *rest, **options)
            tensors, again, is_iterator = _listed(parameters)
            request = Request("clip_grad_value_", tensors, clip_value, math.inf, is_value=True, is_iterator=is_iterator)
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


def _leaves(copies: list[Any]) -> list[Any]:
    """Tensors that hold these gradients."""
    leaves = [torch.empty_like(x, requires_grad=True) for x in copies]
    for x, grad in zip(leaves, copies, strict=True):
        x.grad = grad
    return leaves


def _passes(recorder: Recorder, watch: TorchWatch) -> None:
    local = [0]  # how many no_sync are open

    def backward(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(*args, **options)
            _watch_sharded(recorder, watch)
            scale, watch.scale = watch.scale, 1.0
            return watch.backward(lambda: original(*args, **options), is_local=local[0] > 0, scale=scale)

        return watched

    def no_sync(original: Callable[..., Any]) -> Callable[..., Any]:
        class Open:
            def __init__(self, *args: Any, **options: Any) -> None:
                self.inner = original(*args, **options)

            def __enter__(self) -> Any:
                local[0] += 1
                return self.inner.__enter__()

            def __exit__(self, *error: Any) -> Any:
                local[0] -= 1
                return self.inner.__exit__(*error)

        def opened(*args: Any, **options: Any) -> Any:
            return Open(*args, **options)

        return opened

    recorder.replace(torch.autograd, "backward", backward)
    if hasattr(torch.nn.parallel, "DistributedDataParallel"):
        recorder.replace(torch.nn.parallel.DistributedDataParallel, "no_sync", no_sync)


def _compiles(recorder: Recorder, watch: TorchWatch) -> None:
    def compile_(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(model: Any = None, *args: Any, **options: Any) -> Any:
            if model is not None and not recorder.is_quiet:
                watch.is_compiling_seen = True
                watch.lines.stop()
                is_model = isinstance(model, torch.nn.Module) or isinstance(getattr(model, "__self__", None), torch.nn.Module)
                what = f"what {'a compiled model' if is_model else 'a compiled function'} does inside"
                recorder.add(Unwatched(where=place("torch"), what=what, hides_clips=not is_model))
            return original(model, *args, **options)

        return watched

    recorder.replace(torch, "compile", compile_)


def _watch_sharded(recorder: Recorder, watch: TorchWatch) -> None:
    """Watch the clip of FSDP's first version once the script has imported it."""
    kind = getattr(sys.modules.get(_SHARDED), "FullyShardedDataParallel", None)
    if kind is None or kind in watch.sharded:
        return
    watch.sharded.append(kind)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(self: Any, max_norm: Any, norm_type: Any = 2.0) -> Any:
            name = "FullyShardedDataParallel.clip_grad_norm_"
            request = Request(name, list(self.parameters()), max_norm, float(norm_type), is_partial=True)
            return watch.clip(lambda: original(self, max_norm, norm_type), request)

        return clip_grad_norm_

    recorder.replace(kind, "clip_grad_norm_", make)


def _parameters(optimizer: Any) -> list[Any]:
    return [x for group in optimizer.param_groups for x in group["params"]]


def _steps(recorder: Recorder, watch: TorchWatch) -> None:
    inside: list[tuple[int, Params]] = []  # a subclass's step may call its base's
    seen: list[Any] = []  # the optimizers, kept alive

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not recorder.is_quiet and not watch.is_traced():
            if not any(x is optimizer for x in seen):
                seen.append(optimizer)
            inside.append((id(optimizer), watch.before_step(_parameters(optimizer))))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if recorder.is_quiet or watch.is_traced() or not inside:
            return
        _, learned = inside.pop()
        if not inside:
            watch.stepped += 1
            watch.after_step(type(optimizer).__name__, id(optimizer), learned)

    recorder.undo(register_optimizer_step_pre_hook(before).remove)
    recorder.undo(register_optimizer_step_post_hook(after).remove)


def _parameter_calls(recorder: Recorder, watch: TorchWatch) -> None:
    def zero(original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(self: Any, *args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or recorder.is_quiet:
                return original(self, *args, **options)
            params = list(self.parameters()) if isinstance(self, torch.nn.Module) else _parameters(self)
            return watch.zero(lambda: original(self, *args, **options), params)

        return zero_grad

    def add_group(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_param_group(self: Any, *args: Any, **options: Any) -> Any:
            result = original(self, *args, **options)
            if not torch.compiler.is_compiling():
                with recorder.quietly():
                    watch.learn(_parameters(self))
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
                watch.scale = float(self.get_scale())
            return result

        return watched

    def unscale(original: Callable[..., Any]) -> Callable[..., Any]:
        def unscale_(self: Any, optimizer: Any) -> Any:
            if not self.is_enabled() or recorder.is_quiet:
                return original(self, optimizer)
            return watch.unscale(lambda: original(self, optimizer), _parameters(optimizer))

        return unscale_

    def step(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
            stepped = watch.stepped
            result = original(self, optimizer, *args, **options)
            if self.is_enabled() and watch.stepped == stepped:
                learned = watch.before_step(_parameters(optimizer))
                watch.after_step(type(optimizer).__name__, id(optimizer), learned, skipped=True)
            return result

        return watched

    for name, make in (("scale", scale), ("unscale_", unscale), ("step", step)):
        recorder.replace(torch.amp.GradScaler, name, make)


# ---- several processes ----------------------------------------------------------------------------------------------------


def _compare(recorder: Recorder) -> None:
    """Give process 0 the norms of all. They meet at the address that torchrun has set."""
    many, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if many < 2 or "MASTER_ADDR" not in os.environ:
        return
    norms = [event.returned for event in recorder.events if isinstance(event, Clip)]
    try:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = torch.distributed.TCPStore(*address, is_master=False, timeout=_WAIT)
        store.set(f"gradclip doctor {rank}", " ".join(map(repr, norms)))
        if rank:
            recorder.last.append(lambda: store.get("gradclip doctor done"))
            recorder.is_first = False
            return
        for other in range(1, many):
            recorder.ranks[other] = list(map(float, store.get(f"gradclip doctor {other}").split()))
        recorder.last.append(lambda: store.set("gradclip doctor done", "yes"))
    except (RuntimeError, ValueError) as error:
        recorder.say(f"the processes' norms cannot be compared: {str(error).splitlines()[0]}")
