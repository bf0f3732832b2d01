"""One recorded case against one native: they agree, or it is listed as a departure."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frameworks.base import Framework
from home.compare import Outcome, differences, outcome
from vectors.cases import CASES, ORDERED, Array, Case, TensorLimit
from vectors.departed import departure_of

#: the natives that the cases are replayed on
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
Run = Callable[..., Outcome]  #: (what holds the gradients, limit, **arguments)


@dataclass(frozen=True)
class Native:
    """A native function, and the gradclip function that stands for it on the same tensors."""

    name: str  #: as in the departures
    native: Run
    ours: Run
    ordered: bool = False  #: whether it takes norm_type and error_if_nonfinite
    variant: str = ""  #: a further argument, of no effect on what departs
    hold: Callable[[list[Any]], list[Any]] = list  #: from gradients to what the function takes: parameters, for some
    held: Callable[[list[Any]], list[Any]] = list  #: and back

    def __str__(self) -> str:
        return f"{self.name}({self.variant})" if self.variant else self.name


def calls(*natives: Native) -> list[tuple[Native, Case]]:
    """Every case of every native."""
    assert all(native.name in WITH_CASES for native in natives)
    return [(native, case) for native in natives for case in CASES if native.ordered or case.natives != ORDERED]


def gradients(framework: Framework, case: Case) -> list[Any]:
    """New tensors for one call."""
    made = [None if array is None else _tensor(framework, array) for array in case.arrays]
    return made * 2 if case.twice else made


def _tensor(framework: Framework, array: Array) -> Any:
    if array.layout == "expanded":
        return framework.expanded(array.values, (4,), array.dtype)
    tensor = framework.make(array.values, array.dtype)
    if array.layout == "strided":
        return tensor[::2]
    if array.layout == "transposed":  # TensorFlow's tensors have no T, and no strides either
        return tensor.T if hasattr(tensor, "T") else framework.make([list(row) for row in zip(*array.values, strict=True)])
    return tensor


def limit(framework: Framework, case: Case) -> Any:
    return framework.make(case.limit.value) if isinstance(case.limit, TensorLimit) else copy.copy(case.limit)


def needs_64_bits(case: Case) -> bool:
    """JAX is run with 64 bits only where a gradient has them: with them it takes a NumPy float for a float64."""
    return any(array is not None and array.dtype in ("float64", "complex128", "int64") for array in case.arrays)


def check(framework: Framework, native: Native, case: Case) -> None:
    """Agree, or differ and be listed; and after an error nothing has changed."""

    def side(run: Run) -> tuple[Outcome, list[Any]]:
        objects = native.hold(gradients(framework, case))
        return outcome(lambda: run(objects, limit(framework, case), **case.arguments)), objects

    (theirs, _), (ours, objects) = side(native.native), side(native.ours)
    judge(native.name, case.name, differences(framework, theirs, ours, case.ulps))
    if ours.error is not None:
        before, after = Outcome(gradients(framework, case)), Outcome(native.held(objects))
        assert not differences(framework, before, after, 0), "a failed call changed a gradient"


def judge(native: str, case: str, found: list[str]) -> None:
    """Fail for a difference that is not listed, and for a listed one that is none."""
    listed = departure_of(native, case)
    if listed is None:
        assert not found, "; ".join(found)
    else:
        assert found, f"the departure {listed!r} lists {case} of {native}, and there they agree"
