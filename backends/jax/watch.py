"""Watches optax's chains for ``gradclip doctor``: their order, and the norm before and after each link, by a debug callback."""

from __future__ import annotations

import _thread
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gradclip.doctor.events import Backward, Clip, Step, Unwatched
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.watch import Request, as_number
from gradclip.rule import Rule, Scope

__all__ = ["start"]

_CLIPS = ("clip", "clip_by_block_rms", "clip_by_global_norm", "adaptive_grad_clip")
_OPTIMIZERS = ("adabelief", "adafactor", "adagrad", "adam", "adamw", "lamb", "lars", "lion", "rmsprop", "sgd", "scale_by_adam")
_OTHERS = ("add_", "centralize", "ema", "identity", "scale", "trace")  #: the first letters of links that never clip


class _Link(NamedTuple):
    """What is known of a link of a chain."""

    name: str
    is_clip: bool = False
    limit: Any = math.nan
    is_value: bool = False


_UNKNOWN = _Link("another link")


def start(recorder: Recorder) -> None:
    """Watch optax from now on."""
    links: dict[int, tuple[_Link, Any]] = {}  # by the id of a link's update; the link itself is kept alive

    def named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **options: Any) -> Any:
                link = original(*args, **options)
                first = next(iter((*args, *options.values())), None)
                known = _Link(name, name in _CLIPS, first if name == "clip_by_global_norm" else math.nan, name == "clip")
                links[id(link.update)] = known, link
                return link

            return made

        return make

    def known(link: Any) -> _Link:
        rule = getattr(link.update, "rule", None)
        return links.get(id(link.update), (_UNKNOWN,))[0] if rule is None else _of_rule(rule)

    def chain(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: _watched(original, given, list(map(known, given)), place("optax"), recorder)

    names = [name for name in vars(optax) if name.startswith(_OTHERS) and name not in _OPTIMIZERS]
    for name in (*_CLIPS, *_OPTIMIZERS, *names):
        recorder.replace(optax, name, named(name))
    recorder.replace(optax, "chain", chain)
    recorder.watches["jax"] = _Outside(recorder)


def _of_rule(rule: Any) -> _Link:
    """gradclip's own link."""
    if not isinstance(rule, Rule):
        return _Link("gradclip, in groups", is_clip=True)
    limit = rule.limit if rule.scope is Scope.GLOBAL else math.nan
    return _Link(f"gradclip {rule.name}", is_clip=True, limit=limit, is_value=rule.scope is Scope.VALUE)


class _Outside:
    """The watch of gradclip's clips outside of a chain: they may be traced, and then nothing shows their norms."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def is_traced(self) -> bool:
        return False

    def native(self, limit: Any, order: float) -> Any:
        return None

    def clip(self, call: Callable[[], Any], request: Request, made: Any = None) -> Any:
        _unwatched(self.recorder, f"{request.name} outside of a chain", place("optax"))
        return call()


def _set_quiet(recorder: Recorder) -> None:
    """JAX logs what ends a callback as its failure, with a traceback."""
    logger = logging.getLogger("jax._src.debugging")
    before, logger.disabled = logger.disabled, True
    recorder.undo(lambda: setattr(logger, "disabled", before))


def _unwatched(recorder: Recorder, what: str, where: Place) -> None:
    event = Unwatched(where=where, what=what, hides_clips=True)
    if event not in recorder.events:
        recorder.add(event)


def _watched(original: Callable[..., Any], given: Any, links: list[_Link], where: Place, recorder: Recorder) -> Any:
    """A chain of the same links, and of the same state, that reports its norms at each update."""
    norms: list[Any] = []

    def link_of(link: Any) -> Any:
        whole = optax.with_extra_args_support(link)

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            with recorder.quietly():
                new, state = whole.update(updates, state, params, **extra)
            norms.append((_norm(updates), _norm(new)))
            return new, state

        return optax.GradientTransformationExtraArgs(whole.init, update)

    inner = original(*map(link_of, given))
    key = id(inner)

    def report(values: Any) -> None:
        if recorder.done < recorder.steps:
            try:
                _record(recorder, links, [(float(x), float(y)) for x, y in values], where, key)
            except EnoughSteps:
                _set_quiet(recorder)
                _thread.interrupt_main()  # an exception here would be XLA's

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        if _UNKNOWN in links:
            _unwatched(recorder, "a link of the chain that gradclip does not know, and which may clip", where)
        norms.clear()
        result = inner.update(updates, state, params, **extra)
        jax.debug.callback(report, jnp.asarray(norms))
        norms.clear()
        return result

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(jnp.square(jnp.abs(x.astype("float32")))) for x in jax.tree.leaves(tree)))


def _record(recorder: Recorder, links: list[_Link], norms: list[tuple[float, float]], where: Place, key: int) -> None:
    params, is_late = frozenset({key}), False
    recorder.add(Backward(where=where, params=params))
    for (name, is_clip, limit, is_value), (before, after) in zip(links, norms, strict=True):
        if is_clip:
            clip = Clip(where=where, params=params, name=name, limit=as_number(limit), before=before, after=after)
            recorder.add(replace(clip, is_late=is_late, is_value=is_value))
        is_late = is_late or name in _OPTIMIZERS
    said = " · ".join(f"{link.name} {before:.3g} → {after:.3g}" for link, (before, after) in zip(links, norms, strict=True))
    recorder.add(Step(where=where, params=params, name=f"of the chain {said},", optimizer=key, total=1, norm=norms[0][0]))
