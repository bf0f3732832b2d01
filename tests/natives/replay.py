"""Replays one recorded case on one native: the two sides agree, or a departure lists the difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frameworks.base import Framework
from natives.compare import Outcome, differences, outcome
from vectors.cases import CASES, ORDERED, Array, Case, TensorLimit
from vectors.departed import departure_of

#: the natives that replay the cases
WITH_CASES = (
    "torch.nn.utils.clip_grad_norm_",
    "tf.clip_by_norm",
    "tf.clip_by_global_norm",
    "paddle.nn.utils.clip_grad_norm_",
    "paddle.nn.ClipGradByNorm",
    "paddle.nn.ClipGradByGlobalNorm",
    "optax.clip_by_global_norm",
    *(f"keras[{on}] {name}" for on in ("tensorflow", "torch", "jax") for name in ("clipnorm", "global_clipnorm")),
)
LARGEST = "F20"  #: the case of 2**25 elements
Run = Callable[..., Outcome]  #: (the objects that hold the gradients, limit, **arguments)


@dataclass(frozen=True)
class Native:
    """A native function, and its gradclip equivalent on the same tensors."""

    name: str  #: the name in the table of departures
    native: Run
    ours: Run
    ordered: bool = False  #: whether it takes norm_type and error_if_nonfinite
    variant: str = ""  #: a further argument that does not affect the departures
    hold: Callable[[list[Any]], list[Any]] = list  #: converts gradients to the function's arguments, parameters for some
    gradients_of: Callable[[list[Any]], list[Any]] = list  #: the inverse of hold

    def __str__(self) -> str:
        return f"{self.name}({self.variant})" if self.variant else self.name


def calls(*natives: Native) -> list[tuple[Native, Case]]:
    """Return every case of every native; the largest, which takes seconds, of the first only."""
    assert all(native.name in WITH_CASES for native in natives)
    taken = [(native, case) for native in natives for case in CASES if native.ordered or case.natives != ORDERED]
    return [(native, case) for native, case in taken if native is natives[0] or case.name != LARGEST]


def gradients(framework: Framework, case: Case) -> list[Any]:
    """Return new tensors for one call."""
    made = [None if array is None else _tensor(framework, array) for array in case.arrays]
    return made * 2 if case.twice else made


def _tensor(framework: Framework, array: Array) -> Any:
    if array.layout == "expanded":
        return framework.expanded(array.values, (4,), array.dtype)
    tensor = framework.make(array.values, array.dtype)
    if array.layout == "strided":
        return tensor[::2]
    if array.layout == "transposed":  # TensorFlow's tensors have neither T nor strides
        return tensor.T if hasattr(tensor, "T") else framework.make([list(row) for row in zip(*array.values, strict=True)])
    return tensor


def limit(framework: Framework, case: Case) -> Any:
    return framework.make(case.limit.value) if isinstance(case.limit, TensorLimit) else copy.copy(case.limit)


def needs_64_bits(case: Case) -> bool:
    """Whether a gradient has 64 bits. Only these cases run under JAX's x64 mode, which makes float64 of a NumPy float."""
    return any(array is not None and array.dtype in ("float64", "complex128", "int64") for array in case.arrays)


def check(framework: Framework, native: Native, case: Case) -> None:
    """Both sides agree, or a departure lists the difference; and a failed call changes nothing."""

    def side(run: Run) -> tuple[Outcome, list[Any]]:
        objects = native.hold(gradients(framework, case))
        return outcome(lambda: run(objects, limit(framework, case), **case.arguments)), objects

    (theirs, _), (ours, objects) = side(native.native), side(native.ours)
    judge(native.name, case.name, differences(framework, theirs, ours, case.ulps))
    if ours.error is not None:
        before, after = Outcome(gradients(framework, case)), Outcome(native.gradients_of(objects))
        assert not differences(framework, before, after, 0), "a failed call changed a gradient"


def judge(native: str, case: str, found: list[str]) -> None:
    """Fail for a difference that is not listed, and for a listed one that does not occur."""
    listed = departure_of(native, case)
    if listed is None:
        assert not found, "; ".join(found)
    else:
        assert found, f"the departure {listed!r} lists {case} of {native}, and there they agree"
