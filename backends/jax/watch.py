"""Watches optax's chains for ``gradclip doctor``: their order, and the norm before and after each link, by a debug callback."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from gradclip.doctor.events import Backward, Clip, Step
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.watch import as_number

__all__ = ["start"]

_CLIPS = ("clip", "clip_by_block_rms", "clip_by_global_norm", "adaptive_grad_clip")
_OPTIMIZERS = ("adabelief", "adafactor", "adagrad", "adam", "adamw", "lamb", "lars", "lion", "rmsprop", "sgd", "scale_by_adam")


def start(recorder: Recorder) -> None:
    """Watch optax from now on."""
    links: dict[int, tuple[str, Any, Any]] = {}  # the id of a link's update -> its name, its limit, and itself

    def named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **options: Any) -> Any:
                link = original(*args, **options)
                links[id(link.update)] = (name, next(iter((*args, *options.values())), None), link)
                return link

            return made

        return make

    def chain(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            names = [links.get(id(link.update), ("another link", None, None))[:2] for link in given]
            return _watched(original, given, names, place("optax"), recorder)

        return watched

    for name in (*_CLIPS, *_OPTIMIZERS):
        recorder.replace(optax, name, named(name))
    recorder.replace(optax, "chain", chain)


def _watched(original: Callable[..., Any], given: Any, names: list[tuple[str, Any]], where: Place, recorder: Recorder) -> Any:
    """A chain of the same links, and of the same state, that reports its norms at each update."""
    norms: list[Any] = []

    def link_of(link: Any) -> Any:
        whole = optax.with_extra_args_support(link)

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            new, state = whole.update(updates, state, params, **extra)
            norms.append((_norm(updates), _norm(new)))
            return new, state

        return optax.GradientTransformationExtraArgs(whole.init, update)

    inner = original(*map(link_of, given))
    key = id(inner)

    def report(values: Any) -> None:
        if recorder.done < recorder.steps:
            try:
                _record(recorder, names, [(float(x), float(y)) for x, y in values], where, key)
            except EnoughSteps:
                _thread.interrupt_main()  # an exception here would be XLA's

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        norms.clear()
        result = inner.update(updates, state, params, **extra)
        jax.debug.callback(report, jnp.asarray(norms))
        norms.clear()
        return result

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(jnp.square(jnp.abs(x.astype("float32")))) for x in jax.tree.leaves(tree)))


def _record(recorder: Recorder, names: list[tuple[str, Any]], norms: list[tuple[float, float]], where: Place, key: int) -> None:
    params, is_late = frozenset({key}), False
    recorder.add(Backward(where=where, params=params))
    for (name, limit), (before, after) in zip(names, norms, strict=True):
        if name in _CLIPS:
            event = Clip(where=where, params=params, name=name, limit=as_number(limit), before=before, after=after)
            recorder.add(_replaced(event, name, is_late))
        is_late = is_late or name in _OPTIMIZERS
    optimizer = " · ".join(
        f"{name} {before:.3g} → {after:.3g}" for (name, _), (before, after) in zip(names, norms, strict=True)
    )
    recorder.add(Step(where=where, params=params, name=f"of the chain {optimizer},", optimizer=key, total=1, norm=norms[0][0]))


def _replaced(event: Clip, name: str, is_late: bool) -> Clip:
    is_whole = name == "clip_by_global_norm"
    return replace(event, is_late=is_late, is_value=name == "clip", limit=event.limit if is_whole else float("nan"))
