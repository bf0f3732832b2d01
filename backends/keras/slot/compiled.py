"""What was compiled with an optimizer before it clips: it is traced again, or refuses to run."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from typing import Any, NoReturn

import keras

from gradclip.backends.keras import versions
from gradclip.core.errors import ArgumentError

__all__ = ["BEFORE", "trace_again"]

#: the hint where a function cannot be traced again
BEFORE = "make a new optimizer, call gradclip.clipped(optimizer, rule) before its first step, and compile the model with it."


def trace_again(optimizer: Any) -> None:
    """Let each compiled step of an optimizer be traced again, since its old trace has no clip.

    No step of an optimizer that is not built has been traced. On PyTorch, TorchDynamo guards the class of the optimizer.
    """
    if not optimizer.built:
        return
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()  # a jitted function does not tell which objects it has read
    elif keras.backend.backend() == "tensorflow":
        _trace_functions_again(optimizer)


def _trace_functions_again(optimizer: Any) -> None:
    """Drop the traces of every ``tf.function`` that has captured a variable of the optimizer."""
    import tensorflow as tf

    variables = [getattr(variable, "value", variable) for variable in optimizer.variables]
    replicas = [replica for variable in variables for replica in getattr(variable, "values", (variable,))]
    handles = {id(replica.handle) for replica in replicas if hasattr(replica, "handle")}
    objects = gc.get_objects()  # TensorFlow keeps no list of its functions
    traces = [x for x in _of(tf.types.experimental.ConcreteFunction, objects) if handles & set(map(id, x.captured_inputs))]
    if not traces:
        return
    caches = [versions.cache_of(function) for function in _of(type(tf.function(len)), objects)]
    if None in caches:
        what = "The optimizer is in a function that TensorFlow has compiled, and which would go on without a clip."
        raise ArgumentError(what, f"optimizer={type(optimizer).__name__}", BEFORE)
    stale = set(map(id, traces))
    for cache in caches:
        if stale & set(map(id, cache.values())):
            cache.clear()
    for trace in traces:  # someone may have kept it
        kind: Any = type(trace)
        trace.__class__ = _refusing(kind)


def _of(kind: type, objects: Iterable[Any]) -> list[Any]:
    kinds = {each for each in set(map(type, objects)) if issubclass(each, kind)}  # isinstance would load lazy modules
    return [x for x in objects if type(x) in kinds]


@functools.cache
def _refusing(kind: type) -> type:
    """A class of traced functions that are out of date."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        what = "This function was traced before gradclip.clipped(optimizer, rule), and would step without the clip."
        raise ArgumentError(what, f"function={self.name.decode()}", "call get_concrete_function again.")

    return type(kind.__name__, (kind,), {"__call__": refuse, "__module__": kind.__module__})
