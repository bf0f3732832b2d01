"""Keras's own clips, and the keras dialect, on the Keras backend of this process."""

from __future__ import annotations

import functools
import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
from keras_only.fits import python
from natives.behaviours import Behaviours
from natives.compare import Outcome
from natives.replay import Native, Run, calls

import gradclip
from gradclip.dialects import keras as dialect

BACKEND = keras.backend.backend()
framework = importlib.import_module(f"frameworks.{BACKEND}").framework
NAMES = ("clipnorm", "global_clipnorm", "clipvalue")


def theirs(name: str) -> Any:
    return lambda grads, limit: keras.optimizers.SGD(**{name: limit})._clip_gradients(grads)


def ours(name: str) -> Any:
    return lambda grads, limit: gradclip.clip(grads, getattr(dialect, name)(limit)).grads


@functools.cache
def replicas() -> dict[str, dict[str, list[float]]]:
    """Return what two replicas subtract from a variable, by side and by option; a process with two devices runs them."""
    done = python((Path(__file__).parents[2] / "keras_only" / "replicas.py").read_text("utf-8"))
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


THEIRS, OURS = (SimpleNamespace(**{name: side(name) for name in NAMES}, side=side.__name__) for side in (theirs, ours))
PREFIX = f"keras[{BACKEND}]"  #: of the names of its natives


# ---- the recorded cases --------------------------------------------------------------------------------------------------


def adapted(clip: Any) -> Run:
    def run(grads: list[Any], limit: Any) -> Outcome:
        clipped = clip(grads, limit)
        return Outcome(clipped, None, clipped)

    return run


CALLS = calls(
    *(
        Native(f"keras[{BACKEND}] {name}", adapted(theirs(name)), adapted(ours(name)))
        for name in ("clipnorm", "global_clipnorm")
    )
)

# ---- behaviours ----------------------------------------------------------------------------------------------------------

_CONSTRUCTOR = "what the constructor of Keras's optimizers checks and keeps; gradclip has a function for each"
_NUMPY = "NumPy arrays are a framework of their own to gradclip, and come back as NumPy arrays"
#: recorded behaviours without a counterpart here, with the reason
NOT_REPLAYED = {
    "two kinds at once": _CONSTRUCTOR,
    "clipnorm=0 with global_clipnorm=1": _CONSTRUCTOR,
    "clipnorm int / str": _CONSTRUCTOR,
    "no clipping set returns the same list": "without a rule there is no call",
    "numpy input": _NUMPY,
    "numpy f64 input dtype": _NUMPY,
    "global numpy f64 input dtype": _NUMPY,
}

BEHAVIOURS = Behaviours()
of = BEHAVIOURS.of


@of(f"keras[{BACKEND}] clipvalue", "0.5", limit=0.5)
@of(f"keras[{BACKEND}] clipvalue", "-1", limit=-1.0)
def _(api: Any, limit: float) -> Any:
    return api.clipvalue([framework.make([3.0, -4.0, 0.1])], limit)


def sparse(name: str) -> Any:
    def see(api: Any) -> Any:
        (clipped,) = getattr(api, name)([framework.sparse([0, 2, 2], [[3.0, 0.0], [2.0, 0.0], [2.0, 0.0]], 4)], 1.0)
        if not framework.is_sparse(clipped):
            return type(clipped).__name__, clipped
        return type(clipped).__name__, clipped.values, clipped.indices, clipped.dense_shape

    return see


if BACKEND == "tensorflow":  # the only framework on which Keras has sparse gradients
    for kind in NAMES:
        of(f"keras[{BACKEND}] {kind}", "IndexedSlices with duplicate rows")(sparse(kind))
        of(f"keras[{BACKEND}] {kind}", "two replicas")(lambda api, kind=kind: replicas()[api.side][kind])
