"""Watches optax's chains for ``gradclip doctor``: their order, and the norm before and after each link, by a debug callback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import optax

from gradclip.backends.jax import slot
from gradclip.backends.jax.watch.chains import Chains
from gradclip.backends.jax.watch.links import CLIPS, OPTIMIZERS, of_request
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.request import Request

__all__ = ["start"]

_OTHERS = ("add_", "centralize", "ema", "identity", "scale", "trace")  #: the first letters of links that never clip


def start(recorder: Recorder) -> None:
    """Watch optax from now on."""
    watch = Chains(recorder)
    names = [name for name in vars(optax) if name.startswith(_OTHERS) and name not in OPTIMIZERS]
    for name in (*CLIPS, *OPTIMIZERS, *names):
        recorder.replace(optax, name, watch.named(name))
        watch.factories.append(getattr(optax, name, None))
    for name in ("grad", "value_and_grad"):
        recorder.replace(jax, name, watch.between.passes)
    recorder.replace(optax, "chain", watch.chain)
    recorder.replace(optax, "named_chain", watch.named_chain)
    recorder.replace(optax, "masked", watch.masked)
    recorder.replace(optax.MultiSteps, "gradient_transformation", watch.several)
    recorder.replace(optax, "apply_if_finite", watch.finite)
    recorder.replace(optax, "inject_hyperparams", watch.injected)
    for name in ("multi_transform", "partition"):  # partition came with optax 0.2.5
        if hasattr(optax, name):
            recorder.replace(optax, name, watch.partition)
    recorder.replace(slot, "clipped_by", watch.clipped)
    recorder.watches["jax"] = _Own(watch)
    recorder.closers += [_wait, watch.between.close]
    _dispatch_in_order(recorder)


def _dispatch_in_order(recorder: Recorder) -> None:
    """Let a step end before the next begins: on the CPU, 32 steps in flight leave no place for what their callbacks compute."""
    name = "jax_cpu_enable_async_dispatch"
    before = getattr(jax.config, name, True)
    jax.config.update(name, False)
    recorder.undo(lambda: jax.config.update(name, before))


class _Own:
    """The watch of gradclip's clips."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains

    def is_traced(self) -> bool:
        return False

    def native(self, limit: Any, order: float) -> Any:
        return None

    def clip(self, call: Callable[[], Any], request: Request, made: Any = None) -> Any:
        if self._chains.is_updating and made is not None:
            return self._chains.clip(call, of_request(request), request.tensors, made)
        if made is None:
            return call()
        result = call()
        self._chains.between.clip(of_request(request), request.tensors, made(result))
        return result


def _wait() -> None:
    """Wait for the work in flight: a process that ends during it, as after an interrupt, is aborted by XLA."""
    with contextlib.suppress(Exception):  # a callback of the script may have failed
        jax.effects_barrier()
    for x in jax.live_arrays():
        with contextlib.suppress(Exception):  # deleted, or the result of work that failed
            x.block_until_ready()
