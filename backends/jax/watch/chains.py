"""The links that a script makes of optax's functions, and what they do while the outermost chain updates."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from gradclip.backends.jax.watch.between import Between, Passes, unwatched
from gradclip.backends.jax.watch.links import CLIPS, HOLDS, OPTIMIZERS, Link, Seen, device, left_out, norm, of_rule, record
from gradclip.core.rule import GLOBAL, VALUE
from gradclip.doctor import hand
from gradclip.doctor.events import Read
from gradclip.doctor.guard import Make
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import EnoughSteps, Recorder

__all__ = ["Chains"]

_UNKNOWN = Link("another link")


class _InThread(threading.local):
    """What the chains do in one thread."""

    def __init__(self) -> None:
        self.seen: list[Seen] | None = None  #: while a chain updates
        self.part = 0
        self.is_chosen = 0  #: whether the links of now are meant for some leaves only
        self.key = 0  #: of the optimizer around the links that one update makes


class Chains:
    """The links that the script has made, and what they do while the outermost chain updates.

    A link reports itself, however deep it lies: in a chain, a mask or a part of the parameters. Within any other wrapper it
    reports nothing: that may trace it apart, as ``MultiSteps`` does, and then its norms cannot leave that trace.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._links: dict[int, tuple[Link, Any]] = {}  # by the id of a link's update; the link itself is kept alive
        self.factories: list[Any] = []  #: optax's functions that are watched
        self._parts = 0
        self._searched: set[Place] = set()  # the lines of chains around which a clip under a test was looked for
        self._here = _InThread()
        self.between = Between(recorder)

    # ---- what optax's functions make ----

    def named(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **options: Any) -> Any:
                link = original(*args, **options)
                if not _is_link(link):
                    return link  # scale_gradient scales an array
                first = next(iter((*args, *options.values())), None)
                scope = CLIPS[name].rule().scope if name in CLIPS else None
                limit = first if scope is GLOBAL else math.nan
                known = Link(name, scope is not None, limit, scope is VALUE)
                link = self._reporting(link, known)
                return self._known(self._whole(link, place("optax")), known) if name in OPTIMIZERS else link

            return made

        return make

    def chain(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: self._whole(original(*map(self._part_of, given)), place("optax"))

    def named_chain(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: self._whole(original(*((name, self._part_of(x)) for name, x in given)), place("optax"))

    def masked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``optax.masked``: a mask of a clip alone is meant for it; that of a chain may be meant for another link."""

        def made(inner: Any, *args: Any, **options: Any) -> Any:
            part = self._part_of(inner)
            known, _ = self._links.get(id(getattr(part, "update", None)), (_UNKNOWN, None))
            part = self._known(self._within(part, "is_chosen", 1), known) if known.is_clip else part
            return self._known(original(part, *args, **options), Link("masked"))

        return made

    def several(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``MultiSteps.gradient_transformation``: in a chain a link, which makes zeros until the last of its passes."""
        return lambda *given: self._reporting(original(*given), Link(HOLDS))

    def partition(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(transforms: Any, *args: Any, **options: Any) -> Any:
            apart = {label: self._apart(self._part_of(link)) for label, link in transforms.items()}
            return self._whole(original(apart, *args, **options), place("optax"))

        return made

    def injected(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(factory: Any, *args: Any, **options: Any) -> Any:
            known = Link("injected") if any(factory is x for x in self.factories) else _UNKNOWN

            def make(wrapped: Callable[..., Any]) -> Callable[..., Any]:
                return lambda *a, **k: self._known(self._keyed(wrapped(*a, **k)), known)

            return self.recorder.guard.around(original(factory, *args, **options), make)

        return made

    def finite(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``optax.apply_if_finite``: in a chain a link that may leave the step out; alone it runs nothing in such a step."""

        def made(inner: Any, *args: Any, **options: Any) -> Any:
            link, where = original(self._part_of(inner), *args, **options), place("optax")
            own, (held, _) = Link("apply_if_finite"), self._links.get(id(inner.update), (_UNKNOWN, None))
            known = own if held.name in OPTIMIZERS else _UNKNOWN  # it may clip: in a chain its links report nothing

            def make(update: Callable[..., Any]) -> Callable[..., Any]:
                def run(*given: Any, **more: Any) -> Any:
                    new, state = update(*given, **more)
                    if self._here.seen is None:
                        before, after = norm(_updates(given, more)), norm(new)
                        skip = left_out(state, after)
                        jax.lax.cond(skip, lambda: self._report([Seen(own, 0, before, after, skip)], where, id(link)), _nothing)
                    return new, state

                return run

            return self._known(self._reporting(self._like(link, make), known), known)

        return made

    def clipped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``gradclip.clipped``, which clips first and then runs the links that it wraps."""

        def made(inner: Any, *args: Any) -> Any:
            return self._whole(original(self._part_of(inner), *args), place("optax"))

        return made

    def clip(self, call: Callable[[], Any], link: Link, grads: Any, made: Callable[[Any], Any]) -> Any:
        """Take a clip of gradclip for a link, while a transformation updates."""
        result, seen = call(), self._here.seen
        if seen is not None:
            skip = getattr(result, "skip", False)
            seen.append(Seen(link, self._here.part, norm(grads), norm(made(result)), skip))
        return result

    @property
    def is_updating(self) -> bool:
        """Whether a transformation that reports its links updates in this thread."""
        return self._here.seen is not None

    # ---- the links ----

    def _known(self, link: Any, known: Link) -> Any:
        self._links[id(link.update)] = known, link
        return link

    def _part_of(self, link: Any) -> Any:
        """A link as a part of another: gradclip's own reports itself, and an unknown one hides what lies within."""
        if not _is_link(link):
            return link  # optax refuses it
        rule = getattr(link.update, "rule", None)
        if rule is not None:
            return self._reporting(link, of_rule(rule))
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

    def _reporting(self, link: Any, known: Link) -> Any:
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
                    after, given = norm(new), _updates(args, options)
                    leaves = 0 if here.is_chosen else len(jax.tree.leaves(given))
                    seen.append(Seen(known, here.part, norm(given), after, left_out(state, after), leaves=leaves))
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
        return self._known(self._within(link, "part", self._parts), Link("a part")) if _is_link(link) else link

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
                clips, passes = self.between.taken(_updates(args, options))
                seen = [*clips]
                here.seen = seen
                try:
                    result = original(*args, **options)
                finally:
                    here.seen = None
                if where not in self._searched:
                    self._searched.add(where)
                    off = None if any(one.link.is_clip for one in seen) else hand.switched(frozenset(CLIPS))
                    if off is not None:
                        self.recorder.add(Read(where=off, is_switch=True))
                if not passes:
                    unwatched(self.recorder, "what the script does to the gradients before the optimizer", where)
                self._report(seen, where, here.key or key, passes)
                return result

            return update

        return self._known(self._like(inner, make), Link("chain"))

    def _report(self, seen: list[Seen], where: Place, key: int, passes: Passes = ()) -> None:
        recorder, links = self.recorder, [one._replace(before=0.0, after=0.0, skip=False) for one in seen]
        if any(one.link is _UNKNOWN for one in links):
            unwatched(recorder, "a link of the chain that gradclip does not know, and which may clip", where)

        def report(values: Any, device: Any) -> None:
            if int(device) == 0 and recorder.done < recorder.steps:
                rows = zip(links, values.tolist(), strict=True)  # an element of JAX's takes long
                try:
                    record(
                        recorder,
                        [one._replace(before=float(x), after=float(y), skip=bool(z)) for one, (x, y, z) in rows],
                        where,
                        key,
                        passes,
                    )
                except EnoughSteps:
                    _set_quiet(recorder)
                    recorder.interrupt()  # an exception here would be XLA's

        norms = jnp.asarray([(one.before, one.after, one.skip) for one in seen], float)
        jax.debug.callback(recorder.guard.beside(report), norms, device())


def _nothing() -> None:
    pass


def _is_link(x: Any) -> bool:
    return hasattr(x, "init") and hasattr(x, "update")


def _updates(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The first argument of an update."""
    return args[0] if args else next(iter(options.values()))


def _set_quiet(recorder: Recorder) -> None:
    """JAX logs what ends a callback as its failure, with a traceback."""
    logger = logging.getLogger("jax._src.debugging")
    before, logger.disabled = logger.disabled, True
    recorder.undo(lambda: setattr(logger, "disabled", before))
