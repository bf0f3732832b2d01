"""Watches optax's chains for ``gradclip doctor``: their order, and the norm before and after each link, by a debug callback."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gradclip.core.rule import GLOBAL, VALUE, Rule
from gradclip.doctor.events import NO_IDS, Backward, Clip, Ids, Step, Unwatched, these
from gradclip.doctor.guard import Make
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.watch import Request, as_number
from gradclip.natives.model import Applied
from gradclip.natives.optax import NATIVES

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
        watch.factories.append(getattr(optax, name, None))
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
    recorder.closers.append(_wait)
    _dispatch_in_order(recorder)


def _dispatch_in_order(recorder: Recorder) -> None:
    """Let a step end before the next begins: on the CPU, 32 steps in flight leave no place for what their callbacks compute."""
    name = "jax_cpu_enable_async_dispatch"
    before = getattr(jax.config, name, True)
    jax.config.update(name, False)
    recorder.undo(lambda: jax.config.update(name, before))


class _InThread(threading.local):
    """What the chains do in one thread."""

    def __init__(self) -> None:
        self.seen: list[_Seen] | None = None  #: while a chain updates
        self.part = 0
        self.key = 0  #: of the optimizer around the links that one update makes
        self.grads: deque[list[Any]] = deque(maxlen=_PASSES)  #: what the last passes returned, as long as it lives


class _Chains:
    """The links that the script has made, and what they do while the outermost chain updates.

    A link reports itself, however deep it lies: in a chain, a mask or a part of the parameters. Within any other wrapper it
    reports nothing: that may trace it apart, as ``MultiSteps`` does, and then its norms cannot leave that trace.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._links: dict[int, tuple[_Link, Any]] = {}  # by the id of a link's update; the link itself is kept alive
        self.factories: list[Any] = []  #: optax's functions that are watched
        self._parts = 0
        self._here = _InThread()

    # ---- what optax's functions make ----

    def named(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **options: Any) -> Any:
                link = original(*args, **options)
                if not _is_link(link):
                    return link  # scale_gradient scales an array
                first = next(iter((*args, *options.values())), None)
                scope = _CLIPS[name].rule().scope if name in _CLIPS else None
                limit = first if scope is GLOBAL else math.nan
                known = _Link(name, scope is not None, limit, scope is VALUE)
                link = self._reporting(link, known)
                return self._known(self._whole(link, place("optax")), known) if name in _OPTIMIZERS else link

            return made

        return make

    def chain(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: self._whole(original(*map(self._part_of, given)), place("optax"))

    def named_chain(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: self._whole(original(*((name, self._part_of(x)) for name, x in given)), place("optax"))

    def masked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(inner: Any, *args: Any, **options: Any) -> Any:
            return self._known(original(self._part_of(inner), *args, **options), _Link("masked"))

        return made

    def partition(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(transforms: Any, *args: Any, **options: Any) -> Any:
            apart = {label: self._apart(self._part_of(link)) for label, link in transforms.items()}
            return self._whole(original(apart, *args, **options), place("optax"))

        return made

    def injected(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(factory: Any, *args: Any, **options: Any) -> Any:
            known = _Link("injected") if any(factory is x for x in self.factories) else _UNKNOWN

            def make(wrapped: Callable[..., Any]) -> Callable[..., Any]:
                return lambda *a, **k: self._known(self._keyed(wrapped(*a, **k)), known)

            return self.recorder.guard.around(original(factory, *args, **options), make)

        return made

    def passes(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``jax.grad``, which also knows what its functions return."""

        def made(*args: Any, **options: Any) -> Any:
            return self.recorder.guard.around(original(*args, **options), keeping)

        def keeping(function: Callable[..., Any]) -> Callable[..., Any]:
            def gradient(*args: Any, **options: Any) -> Any:
                result = function(*args, **options)
                self._here.grads.append([weakref.ref(x) for x in jax.tree.leaves(result)])
                return result

            return gradient

        return made

    def _are_of_a_pass(self, updates: Any) -> bool:
        """Whether updates are gradients as a pass returned them; others may be clipped."""
        known = {id(x()) for refs in self._here.grads for x in refs}
        return all(id(x) in known for x in jax.tree.leaves(updates))

    # ---- the links ----

    def _known(self, link: Any, known: _Link) -> Any:
        self._links[id(link.update)] = known, link
        return link

    def _part_of(self, link: Any) -> Any:
        """A link as a part of another: gradclip's own reports itself, and an unknown one hides what lies within."""
        if not _is_link(link):
            return link  # optax refuses it
        rule = getattr(link.update, "rule", None)
        if rule is not None:
            return self._reporting(link, _of_rule(rule))
        return link if id(link.update) in self._links else self._reporting(link, _UNKNOWN)

    def _like(self, link: Any, make: Make) -> Any:
        """The same link with another update, for optax: it takes any object that has ``init`` and ``update``."""
        update = self.recorder.guard.around(link.update, make)
        if isinstance(link, tuple) and hasattr(link, "_replace"):
            like = link._replace(update=update)
            if like.update is update:
                return like
        has_extra = isinstance(link, optax.GradientTransformationExtraArgs)
        return (optax.GradientTransformationExtraArgs if has_extra else optax.GradientTransformation)(link.init, update)

    def _reporting(self, link: Any, known: _Link) -> Any:
        """The same link, which reports its norms while a chain updates."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def update(*args: Any, **options: Any) -> Any:
                here = self._here
                seen, here.seen = here.seen, [] if here.seen is not None else None
                try:
                    with self.recorder.hushed():
                        new, state = original(*args, **options)
                finally:
                    here.seen = seen
                if seen is not None:
                    seen.append(_Seen(known, here.part, _norm(_updates(args, options)), _norm(new)))
                return new, state

            return update

        return self._known(self._like(link, make), known)

    def _within(self, link: Any, name: str, value: int) -> Any:
        """The same link, in whose updates this is known of the thread."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def update(*args: Any, **options: Any) -> Any:
                outer = getattr(self._here, name)
                setattr(self._here, name, value)
                try:
                    return original(*args, **options)
                finally:
                    setattr(self._here, name, outer)

            return update

        return self._like(link, make)

    def _apart(self, link: Any) -> Any:
        """The same link, for parameters of its own."""
        self._parts += 1
        return self._known(self._within(link, "part", self._parts), _Link("a part")) if _is_link(link) else link

    def _keyed(self, link: Any) -> Any:
        """The same link, which is one optimizer though it makes new ones in each update."""
        return self._within(link, "key", id(link))

    def _whole(self, inner: Any, where: Place) -> Any:
        """The same chain; if no other chain is around it, it records what its links did."""
        key = id(inner)

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def update(*args: Any, **options: Any) -> Any:
                here = self._here
                if here.seen is not None:
                    return original(*args, **options)
                seen: list[_Seen] = []
                here.seen = seen
                try:
                    result = original(*args, **options)
                finally:
                    here.seen = None
                if not self._are_of_a_pass(_updates(args, options)):
                    _unwatched(self.recorder, "what the script does to the gradients before the optimizer", where)
                self._report(seen, where, here.key or key)
                return result

            return update

        return self._known(self._like(inner, make), _Link("chain"))

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
                    recorder.interrupt()  # an exception here would be XLA's

        jax.debug.callback(recorder.guard.beside(report), jnp.asarray([(one.before, one.after) for one in seen]))


def _is_link(x: Any) -> bool:
    return hasattr(x, "init") and hasattr(x, "update")


def _updates(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The first argument of an update."""
    return args[0] if args else next(iter(options.values()))


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


def _wait() -> None:
    """Wait for the work in flight: a process that ends during it, as after an interrupt, is aborted by XLA."""
    with contextlib.suppress(Exception):  # a callback of the script may have failed
        jax.effects_barrier()
    for x in jax.live_arrays():
        with contextlib.suppress(Exception):  # deleted, or the result of work that failed
            x.block_until_ready()


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
    found = [x for x in map(jnp.asarray, jax.tree.leaves(tree)) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.sqrt(sum((jnp.sum(jnp.square(jnp.abs(x).astype("float32"))) for x in found), jnp.zeros(())))


def _record(
    recorder: Recorder, links: list[tuple[_Link, int]], norms: list[tuple[float, float]], where: Place, key: int
) -> None:
    every = frozenset(hash((key, part)) for _, part in links if part) or frozenset({key})
    late: Ids = NO_IDS  #: what an optimizer has taken
    clips = []
    for (link, part), (before, after) in zip(links, norms, strict=True):
        params = frozenset({hash((key, part))}) if part else every
        if link.is_clip:
            limit = as_number(link.limit)
            clip = Clip(where=where, params=these(params), text=link.name, limit=limit, before=before, after=after)
            clip = replace(clip, is_late=bool(params & late), is_apart=part > 0, only_measures=limit == math.inf)
            clips.append(replace(clip, kind="value" if link.is_value else "norm"))
        late |= params if link.name in _OPTIMIZERS else NO_IDS
    # parts without a clip are left out by the partition on purpose
    params = NO_IDS.union(*(clip.ids for clip in clips)) or every
    recorder.add(Backward(where=where, params=these(params)))
    for clip in clips:
        recorder.add(clip)
    shown = [f"{link.name} {before:.3g} → {after:.3g}" for (link, _), (before, after) in zip(links, norms, strict=True)]
    name = links[0][0].name if len(links) == 1 else "the chain"
    whole = () if not norms or any(part for _, part in links) else ((key, norms[0][0]),)  # before the first link
    step = Step(where=where, params=these(params), text=name, links=" · ".join(shown), optimizer=key, total=1, norms=whole)
    recorder.add(step)
