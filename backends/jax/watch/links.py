"""The links of optax's chains, for ``gradclip doctor``: which of them clip, and the events of one update."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gradclip.backends.jax.versions import manual_axes
from gradclip.core.rule import GLOBAL, VALUE, Rule
from gradclip.doctor.events import NO_IDS, Backward, Clip, Ids, SkipByRule, Step, these
from gradclip.doctor.places import NOWHERE, Place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.request import Request, as_number
from gradclip.natives.model import Applied
from gradclip.natives.optax import NATIVES, may_clip_updates

__all__ = ["CLIPS", "HOLDS", "OPTIMIZERS", "Link", "Seen", "device", "left_out", "norm", "of_request", "of_rule", "record"]

#: optax's links that clip, by their names
CLIPS = {native.last: native for native in NATIVES if native.applied is Applied.CHAIN and native.is_own}
OPTIMIZERS = ("adabelief", "adafactor", "adagrad", "adam", "adamw", "lamb", "lars", "lion", "rmsprop", "sgd", "scale_by_adam")


HOLDS = "MultiSteps"  #: the link that holds the gradients back until the last of several passes


class Link(NamedTuple):
    """What is known of a link of a chain."""

    name: str
    is_clip: bool = False
    limit: Any = math.nan
    is_value: bool = False


class Seen(NamedTuple):
    """What a link did in one update."""

    link: Link
    part: int  #: of the parameters, from ``partition``; 0 for all
    before: Any
    after: Any
    skip: Any = False  #: whether it leaves the step out
    where: Place = NOWHERE  #: of a clip outside of the chain
    leaves: int = 0  #: how many it got; 0 where that does not count


def of_rule(rule: Any) -> Link:
    """gradclip's own link."""
    if not isinstance(rule, Rule):
        return Link("gradclip, in groups", is_clip=True)
    limit = rule.limit if rule.scope is GLOBAL else math.nan
    return Link(f"gradclip {rule.name}", is_clip=True, limit=limit, is_value=rule.scope is VALUE)


def of_request(request: Request) -> Link:
    """A clip that a call of gradclip is."""
    limit = math.nan if request.is_each or request.is_value else request.limit
    return Link(request.name, is_clip=True, limit=limit, is_value=request.is_value)


def norm(tree: Any) -> Any:
    """The norm of all leaves, in float32."""
    found = [x for x in map(jnp.asarray, jax.tree.leaves(tree)) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.sqrt(sum((jnp.sum(jnp.square(jnp.abs(x).astype("float32"))) for x in found), jnp.zeros(())))


def device() -> Any:
    """The number of the device, in ``pmap`` and ``shard_map``: each device calls back, and all take the same step."""
    axes = tuple(manual_axes())
    return jax.lax.axis_index(axes) if axes and jax.process_count() == 1 else 0


def left_out(state: Any, after: Any) -> Any:
    """Whether ``optax.apply_if_finite`` left the step out; it takes one after too many in a row, whatever the gradients are."""
    return ~state.last_finite & (after == 0) if hasattr(state, "last_finite") else False


def record(recorder: Recorder, seen: list[Seen], where: Place, key: int, passes: tuple[int, ...] = ()) -> None:
    """Record the events of one update, from what its links did; ``passes`` made the gradients, as far as it is known."""
    every = frozenset(hash((key, one.part)) for one in seen if one.part) or frozenset({key})
    clips = list(_clips(seen, where, key, every))
    bare = _bare(recorder, seen, key)
    # parts without a clip are left out by the partition on purpose
    params = (NO_IDS.union(*(clip.ids for clip in clips)) or every) | bare
    recorder.add(Backward(where=where, params=these(params), passes=passes))
    for clip in clips:
        recorder.add(clip)
    if any(one.link.name == HOLDS and one.after == 0 < one.before for one in seen):
        return
    shown = " · ".join(f"{one.link.name} {one.before:.3g} → {one.after:.3g}" for one in seen)
    name = seen[0].link.name if len(seen) == 1 else "the chain"
    whole = () if not seen or any(one.part for one in seen) else ((key, seen[0].before),)  # before the first link
    kind = SkipByRule if any(one.skip for one in seen) else Step
    recorder.add(kind(where=where, params=these(params), text=name, links=shown, optimizer=key, total=1, norms=whole))


def _clips(seen: list[Seen], where: Place, key: int, every: Ids) -> Iterator[Clip]:
    late: Ids = NO_IDS  #: what an optimizer has taken
    for link, part, before, after, _, there, _ in seen:
        params = frozenset({hash((key, part))}) if part else every
        if link.is_clip and not (params & late and may_clip_updates(link.name)):
            limit = as_number(link.limit)
            at = where if there is NOWHERE else there
            clip = Clip(where=at, params=these(params), text=link.name, limit=limit, before=before, after=after)
            clip = replace(clip, is_late=bool(params & late), only_measures=limit == math.inf)
            yield replace(clip, kind="value" if link.is_value else "norm")
        late |= params if link.name in OPTIMIZERS else NO_IDS


def _bare(recorder: Recorder, seen: list[Seen], key: int) -> Ids:
    """The leaves, as one parameter, that an optimizer takes and that a mask around several links has kept from the clips."""
    clips = [one for one in seen if one.link.is_clip]
    most = max((one.leaves for one in seen if one.link.name in OPTIMIZERS and not one.part), default=0)
    many = most - sum(one.leaves for one in clips)
    if many <= 0 or not clips or any(one.part or not one.leaves for one in clips):
        return NO_IDS
    bare = hash((key, "bare"))
    recorder.names[bare] = f"{many} of {most} leaves"
    return frozenset({bare})
