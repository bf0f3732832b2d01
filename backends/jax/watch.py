"""Watches optax's chains for ``gradclip doctor``: their order, and the norm before and after each link, by a debug callback."""

from __future__ import annotations

import _thread
import functools
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gradclip.doctor.events import NO_PARAMS, Backward, Clip, Params, Step, Unwatched
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.watch import Request, as_number
from gradclip.natives.model import Applied
from gradclip.natives.optax import NATIVES
from gradclip.rule import GLOBAL, VALUE, Rule

__all__ = ["start"]

#: optax's links that clip, by their names
_CLIPS = {native.last: native for native in NATIVES if native.applied is Applied.CHAIN and native.is_own}
_OPTIMIZERS = ("adabelief", "adafactor", "adagrad", "adam", "adamw", "lamb", "lars", "lion", "rmsprop", "sgd", "scale_by_adam")
_PASSES = 4  #: whose gradients may wait for their updates, as of two networks
_OTHERS = ("add_", "centralize", "ema", "identity", "scale", "trace")  #: the first letters of links that never clip


class _Link(NamedTuple):
    """What is known of a link of a chain."""

    name: str
    is_clip: bool = False
    limit: Any = math.nan
    is_value: bool = False


class _Seen(NamedTuple):
    """What a link did in one update."""

    link: _Link
    part: int  #: of the parameters, from ``partition``; 0 for all
    before: Any
    after: Any


_UNKNOWN = _Link("another link")


def start(recorder: Recorder) -> None:
    """Watch optax from now on."""
    watch = _Chains(recorder)
    names = [name for name in vars(optax) if name.startswith(_OTHERS) and name not in _OPTIMIZERS]
    for name in (*_CLIPS, *_OPTIMIZERS, *names):
        recorder.replace(optax, name, watch.named(name))
    for name in ("grad", "value_and_grad"):
        recorder.replace(jax, name, watch.passes)
    recorder.replace(optax, "chain", watch.chain)
    recorder.replace(optax, "named_chain", watch.named_chain)
    recorder.replace(optax, "masked", watch.masked)
    recorder.replace(optax, "inject_hyperparams", watch.injected)
    for name in ("multi_transform", "partition"):  # partition came with optax 0.2.5
        if hasattr(optax, name):
            recorder.replace(optax, name, watch.partition)
    recorder.watches["jax"] = _Outside(recorder)


class _Chains:
    """The links that the script has made, and what they do while the outermost chain updates.

    A link reports itself, however deep it lies: in a chain, a mask or a part of the parameters. Within any other wrapper it
    reports nothing: that may trace it apart, as ``MultiSteps`` does, and then its norms cannot leave that trace.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._links: dict[int, tuple[_Link, Any]] = {}  # by the id of a link's update; the link itself is kept alive
        self._seen: list[_Seen] | None = None  #: while a chain updates
        self._part = self._parts = 0
        self._key = 0  #: of the optimizer around the links that one update makes
        self._grads: deque[list[Any]] = deque(maxlen=_PASSES)  # what the last passes returned, kept alive

    # ---- what optax's functions make ----

    def named(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)  # inject_hyperparams reads the signature
            def made(*args: Any, **options: Any) -> Any:
                first = next(iter((*args, *options.values())), None)
                scope = _CLIPS[name].rule().scope if name in _CLIPS else None
                limit = first if scope is GLOBAL else math.nan
                known = _Link(name, scope is not None, limit, scope is VALUE)
                link = self._reporting(original(*args, **options), known)
                return self._known(self._whole(link, place("optax")), known) if name in _OPTIMIZERS else link

            made.__dict__["reports"] = True
            return made

        return make

    def chain(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(*given: Any) -> Any:
            return self._whole(original(*map(self._part_of, given)), place("optax"))

        return made

    def named_chain(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(*given: Any) -> Any:
            return self._whole(original(*((name, self._part_of(link)) for name, link in given)), place("optax"))

        return made

    def masked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(inner: Any, *args: Any, **options: Any) -> Any:
            return self._known(original(self._part_of(inner), *args, **options), _Link("masked"))

        return made

    def partition(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(transforms: Any, *args: Any, **options: Any) -> Any:
            apart = {label: self._apart(self._part_of(link)) for label, link in transforms.items()}
            return self._whole(original(apart, *args, **options), place("optax"))

        return made

    def injected(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(factory: Any, *args: Any, **options: Any) -> Any:
            wrapped = original(factory, *args, **options)
            known = _Link("injected") if getattr(factory, "reports", False) else _UNKNOWN
            return functools.wraps(wrapped)(lambda *a, **k: self._known(self._keyed(wrapped(*a, **k)), known))

        return made

    def passes(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``jax.grad``, which also keeps what its functions return."""

        @functools.wraps(original)
        def made(*args: Any, **options: Any) -> Any:
            function = original(*args, **options)

            @functools.wraps(function)
            def gradient(*of: Any, **named: Any) -> Any:
                result = function(*of, **named)
                self._grads.append(jax.tree.leaves(result))
                return result

            return gradient

        return made

    def _are_of_a_pass(self, updates: Any) -> bool:
        """Whether updates are gradients as a pass returned them; others may be clipped."""
        known = {id(x) for leaves in self._grads for x in leaves}
        return all(id(x) in known for x in jax.tree.leaves(updates))

    # ---- the links ----

    def _known(self, link: Any, known: _Link) -> Any:
        self._links[id(link.update)] = known, link
        return link

    def _part_of(self, link: Any) -> Any:
        """A link as a part of another: gradclip's own reports itself, and an unknown one hides what lies within."""
        rule = getattr(link.update, "rule", None)
        if rule is not None:
            return self._reporting(link, _of_rule(rule))
        return link if id(link.update) in self._links else self._reporting(link, _UNKNOWN)

    def _reporting(self, link: Any, known: _Link) -> Any:
        """The same link, which reports its norms while a chain updates."""

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            seen, self._seen = self._seen, [] if self._seen is not None else None
            try:
                with self.recorder.quietly():
                    new, state = link.update(updates, state, params, **extra)
            finally:
                self._seen = seen
            if seen is not None:
                seen.append(_Seen(known, self._part, _norm(updates), _norm(new)))
            return new, state

        return self._known(link._replace(update=update), known)

    def _apart(self, link: Any) -> Any:
        """The same link, for parameters of its own."""
        self._parts += 1
        part = self._parts

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            outer, self._part = self._part, part
            try:
                return link.update(updates, state, params, **extra)
            finally:
                self._part = outer

        return self._known(link._replace(update=update), _Link("a part"))

    def _keyed(self, link: Any) -> Any:
        """The same link, which is one optimizer though it makes new ones in each update."""
        key = id(link)

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            outer, self._key = self._key, key
            try:
                return link.update(updates, state, params, **extra)
            finally:
                self._key = outer

        return link._replace(update=update)

    def _whole(self, inner: Any, where: Place) -> Any:
        """The same chain; if no other chain is around it, it records what its links did."""
        key = id(inner)

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            if self._seen is not None:
                return inner.update(updates, state, params, **extra)
            seen: list[_Seen] = []
            self._seen = seen
            try:
                result = inner.update(updates, state, params, **extra)
            finally:
                self._seen = None
            if not self._are_of_a_pass(updates):
                _unwatched(self.recorder, "what the script does to the gradients before the optimizer", where)
            self._report(seen, where, self._key or key)
            return result

        return self._known(inner._replace(update=update), _Link("chain"))

    def _report(self, seen: list[_Seen], where: Place, key: int) -> None:
        recorder, links = self.recorder, [(one.link, one.part) for one in seen]
        if any(link is _UNKNOWN for link, _ in links):
            _unwatched(recorder, "a link of the chain that gradclip does not know, and which may clip", where)

        def report(values: Any) -> None:
            if recorder.done < recorder.steps:
                try:
                    _record(recorder, links, [(float(x), float(y)) for x, y in values], where, key)
                except EnoughSteps:
                    _set_quiet(recorder)
                    _thread.interrupt_main()  # an exception here would be XLA's

        jax.debug.callback(report, jnp.asarray([(one.before, one.after) for one in seen]))


def _of_rule(rule: Any) -> _Link:
    """gradclip's own link."""
    if not isinstance(rule, Rule):
        return _Link("gradclip, in groups", is_clip=True)
    limit = rule.limit if rule.scope is GLOBAL else math.nan
    return _Link(f"gradclip {rule.name}", is_clip=True, limit=limit, is_value=rule.scope is VALUE)


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


def _norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(jnp.square(jnp.abs(x.astype("float32")))) for x in jax.tree.leaves(tree)))


def _record(
    recorder: Recorder, links: list[tuple[_Link, int]], norms: list[tuple[float, float]], where: Place, key: int
) -> None:
    every = frozenset(hash((key, part)) for _, part in links if part) or frozenset({key})
    late: Params = NO_PARAMS  #: what an optimizer has taken
    clips = []
    for (link, part), (before, after) in zip(links, norms, strict=True):
        params = frozenset({hash((key, part))}) if part else every
        if link.is_clip:
            clip = Clip(where=where, params=params, name=link.name, limit=as_number(link.limit), before=before, after=after)
            clips.append(replace(clip, is_late=bool(params & late), is_value=link.is_value, is_apart=part > 0))
        late |= params if link.name in _OPTIMIZERS else NO_PARAMS
    # parts without a clip are left out by the partition on purpose
    params = NO_PARAMS.union(*(clip.params for clip in clips)) or every
    recorder.add(Backward(where=where, params=params))
    for clip in clips:
        recorder.add(clip)
    shown = [f"{link.name} {before:.3g} → {after:.3g}" for (link, _), (before, after) in zip(links, norms, strict=True)]
    name = links[0][0].name if len(links) == 1 else "the chain"
    recorder.add(Step(where=where, params=params, name=name, links=" · ".join(shown), optimizer=key, total=1))
