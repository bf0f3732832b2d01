"""Links of optax, for the updates that are compared: also in compiled programs, whose numbers come out by a callback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import optax

from gradclip.backends.jax.versions import enable_x64
from gradclip.natives import Native
from replaced.compare import Outcome, Table, outcome

__all__ = ["Kit"]

_MOST = 50_000_000  #: elements that wait for their comparison


@dataclass
class Kit:
    """Keeps what links did; a callback must not call JAX, so that the comparison waits for the end of the process."""

    table: Table
    kept: list[Any] = field(default_factory=list)
    size: int = 0

    def __post_init__(self) -> None:
        self.table.before_write.append(self.compare)

    def both(self, native: Native, original: Callable[..., Any], given: Any, link: Any, ours: Any) -> Any:
        """A link with the native's state that updates by gradclip's."""

        def keep(*seen: Any) -> None:
            self.size += sum(x.size for x in jax.tree.leaves(seen))
            if self.size > _MOST:
                self.table.skip(native.names[0])
            else:
                self.kept.append((native, original, *jax.tree.map(_read_only, seen)))

        def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
            want, state = link.update(updates, state, params)
            got, _ = ours.update(updates, ours.init(updates), params)
            jax.debug.callback(keep, given, updates, params, want, got)
            return got, state

        return optax.GradientTransformation(link.init, update)

    def compare(self) -> None:
        """Compare what was kept."""
        jax.effects_barrier()
        kept, self.kept = self.kept, []
        for native, original, given, updates, params, want, got in kept:
            with self.table.inside(), enable_x64(True):
                exact = outcome(functools.partial(_exact, original, given, updates, params), _read)
            args, options = given
            self.table.note(native.names[0], _seen(got), _seen(want), exact, f"{args} {options}")


def _exact(original: Callable[..., Any], given: Any, *trees: Any) -> tuple[None, list[Any]]:
    """What the native's link makes of these in float64."""
    link = original(*given[0], **given[1])
    updates, params = (jax.tree.map(lambda x: jax.numpy.asarray(x, "float64"), tree) for tree in trees)
    return None, jax.tree.leaves(link.update(updates, link.init(updates), params)[0])


def _seen(tree: Any) -> Outcome:
    return Outcome(grads=[_read(x) for x in jax.tree.leaves(tree)])


def _read_only(x: Any) -> Any:
    return np.array(x) if hasattr(x, "dtype") else x


def _read(x: Any) -> tuple[np.ndarray, str]:
    return np.asarray(x).astype("float64"), str(x.dtype)
