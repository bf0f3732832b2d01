"""What a script does to gradients between a pass and its optimizer, for ``gradclip doctor``: gradclip's own calls."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax

from gradclip.backends.jax.watch.links import Link, Seen, norm
from gradclip.doctor.events import Unwatched
from gradclip.doctor.places import Place, place
from gradclip.doctor.recorder import Recorder

__all__ = ["Between", "unwatched"]

_PASSES = 4  #: whose gradients may wait for their updates, as of two networks


Passes = tuple[int, ...]  #: by their numbers


@dataclass(frozen=True, slots=True)
class _Made:
    """What the last of some clips returned, as long as it lives."""

    clips: tuple[Seen, ...]
    passes: Passes  #: those whose gradients the first clip got as they were; none if something else has changed them
    leaves: list[Any]


class _InThread(threading.local):
    def __init__(self) -> None:
        #: what the last passes returned, as long as it lives, with their numbers
        self.grads: deque[tuple[int, list[Any]]] = deque(maxlen=_PASSES)
        self.made: deque[_Made] = deque(maxlen=_PASSES)


class Between:
    """Follows gradients from a pass through clips to an update: a leaf is known by its identity, also while it is traced."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._here, self._numbers = recorder, _InThread(), itertools.count(1)
        self._is_taken: dict[tuple[str, Place], bool] = {}  # of each clip: whether an update took what it returned

    def passes(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``jax.grad``, which also knows what its functions return."""

        def made(*args: Any, **options: Any) -> Any:
            return self._recorder.guard.around(original(*args, **options), keeping)

        def keeping(function: Callable[..., Any]) -> Callable[..., Any]:
            def gradient(*args: Any, **options: Any) -> Any:
                result = function(*args, **options)
                self._here.grads.append((next(self._numbers), _refs(jax.tree.leaves(result))))
                return result

            return gradient

        return made

    def clip(self, link: Link, grads: Any, new: Any) -> None:
        """Keep a clip until an update takes what it returned."""
        where = place("optax")
        clips, passes = self.taken(grads)
        self._is_taken.setdefault((link.name, where), False)
        seen = Seen(link, 0, norm(grads), norm(new), where=where)
        self._here.made.append(_Made((*clips, seen), passes, _refs(jax.tree.leaves(new))))

    def taken(self, updates: Any) -> tuple[tuple[Seen, ...], Passes]:
        """The clips that made these, in order, and the passes; none if something else has changed them, which may clip."""
        ids = {id(x) for x in jax.tree.leaves(updates)}
        for made in self._here.made:
            if ids <= _ids(made.leaves):
                self._is_taken.update({(one.link.name, one.where): True for one in made.clips})
                return made.clips, made.passes
        found = [(number, ids & _ids(refs)) for number, refs in self._here.grads]
        is_whole = ids <= set().union(*(some for _, some in found))
        return (), tuple(number for number, some in found if some) if is_whole else ()

    def close(self) -> None:
        """Name the clips whose result no update took as it was."""
        for (name, where), is_taken in self._is_taken.items():
            if not is_taken:
                unwatched(self._recorder, f"{name} outside of a chain", where)


def unwatched(recorder: Recorder, what: str, where: Place) -> None:
    event = Unwatched(where=where, what=what, hides_clips=True)
    if event not in recorder.events:
        recorder.add(event)


def _refs(leaves: Iterable[Any]) -> list[Any]:
    return [weakref.ref(x) for x in leaves]


def _ids(refs: list[Any]) -> set[int]:
    return {id(x()) for x in refs}
