"""What an accelerator would run: as few operations as torch's own functions, no float64, no value read by the host.

A dispatch mode counts on fake tensors of a device, and on host tensors that stand in for an accelerator's.
``tests/docs/test_accelerators_page.py`` makes the table of the docs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gradclip
from gradclip.backends.torch import lanes
from gradclip.dialects import keras, optax, paddle, tensorflow
from gradclip.dialects import torch as dialect

DTYPES = {
    "float32": [torch.float32],
    "bfloat16": [torch.bfloat16],
    "mixed": [torch.float32, torch.bfloat16],
    "float64": [torch.float64],
}
DEVICES = ("cuda", "mps", "xpu", "xla", "meta")
Call = Callable[[list[Any]], Any]

#: gradclip's function and torch's; if torch has none, its clip by one norm over all
CALLS: dict[str, tuple[Call, Call]] = {
    "clip_grad_norm_": (
        lambda ps: gradclip.clip_grad_norm_(ps, 1.0),
        lambda ps: torch.nn.utils.clip_grad_norm_(ps, 1.0, foreach=True),
    ),
    "clip_grad_norm_, norm_type=1": (
        lambda ps: gradclip.clip_grad_norm_(ps, 1.0, 1.0),
        lambda ps: torch.nn.utils.clip_grad_norm_(ps, 1.0, 1.0, foreach=True),
    ),
    "clip_grad_norm_, norm_type=inf": (
        lambda ps: gradclip.clip_grad_norm_(ps, 1.0, float("inf")),
        lambda ps: torch.nn.utils.clip_grad_norm_(ps, 1.0, float("inf"), foreach=True),
    ),
    "get_total_norm": (
        lambda ps: gradclip.get_total_norm([p.grad for p in ps]),
        lambda ps: torch.nn.utils.get_total_norm([p.grad for p in ps], foreach=True),
    ),
    "clip_grads_with_norm_": (
        lambda ps: gradclip.clip_grads_with_norm_(ps, 1.0, ps[0].grad.new_ones(())),
        lambda ps: torch.nn.utils.clip_grads_with_norm_(ps, 1.0, ps[0].grad.new_ones(()), foreach=True),
    ),
    "clip_grad_value_": (
        lambda ps: gradclip.clip_grad_value_(ps, 1.0),
        lambda ps: torch.nn.utils.clip_grad_value_(ps, 1.0, foreach=True),
    ),
}
WITHOUT_A_NATIVE = {
    "each by its own norm, in place": lambda ps: gradclip.clip_(ps, tensorflow.clip_by_norm(1.0)),
    "each by its own norm, new": lambda ps: gradclip.clip(ps, keras.clipnorm(1.0)),
    "one norm, new": lambda ps: gradclip.clip(ps, optax.clip_by_global_norm(1.0)),
    "Paddle's one norm": lambda ps: gradclip.clip_(ps, paddle.clip_grad_by_global_norm(1.0)),
    "by value, new": lambda ps: gradclip.clip(ps, optax.clip(1.0)),
}


class Counting(TorchDispatchMode):
    """Counts operations, and raises if a value is read; "no_float64" raises for float64 tensors too."""

    def __init__(self, allows_float64: bool) -> None:
        super().__init__()
        self.allows_float64 = allows_float64
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.namespace != "prim"  # a query of a fake tensor, such as its device, is not an operation
        assert function not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default), "a value is read"
        result = function(*args, **(kwargs or {}))
        if not self.allows_float64:
            wide = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.dtype == torch.float64]
            assert not wide, f"{function} makes float64"
        return result


def parameters(count: int, dtypes: list[torch.dtype], device: str, gradient: float = 3.0) -> list[Any]:
    made = []
    for i in range(count):
        p = torch.nn.Parameter(torch.zeros(3, 2, dtype=dtypes[i % len(dtypes)], device=device))
        p.grad = torch.full_like(p, gradient)
        made.append(p)
    return made


def counted(call: Call, ps: list[Any], allows_float64: bool) -> int:
    with Counting(allows_float64) as mode:
        call(ps)
    return mode.count


@contextmanager
def on(device: str) -> Iterator[str]:
    """Yield a device for fake tensors; or for "host" the host, treated as an accelerator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "is_on_host", lambda x: False)
        if device == "host":
            yield "cpu"
        else:
            with FakeTensorMode():
                yield device


def counts(name: str, count: int, dtypes: list[torch.dtype], device: str, gradient: float = 3.0) -> tuple[int, int]:
    """Return the number of operations of gradclip's function and of torch's."""
    ours, native = CALLS[name]
    with on(device) as place:
        found = counted(ours, parameters(count, dtypes, place, gradient), torch.float64 in dtypes)
    with on("host") as place:  # on some devices torch lacks foreach, and runs an operation for each gradient
        return found, counted(native, parameters(count, dtypes, place, gradient), True)


@pytest.mark.drawn(100)
@pytest.mark.needs("has_recorded_natives")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("device", ["host", *DEVICES])
@pytest.mark.parametrize("gradient", [3.0, 1e-9], ids=["clipped", "fits"])
def test_as_few_as_the_native(name: str, dtypes: list[torch.dtype], device: str, gradient: float) -> None:
    if device in ("mps", "xla") and torch.float64 in dtypes:
        return  # mps has no float64
    found = {count: counts(name, count, dtypes, device, gradient) for count in (1, 10, 100)}
    for ours, native in found.values():
        assert ours <= native + 4, found
    assert found[10][0] == found[100][0], "it does not depend on the number of gradients"


@pytest.mark.parametrize("device", ["host", "cuda", "mps"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_wide_norm_costs_nothing(device: str, dtype: torch.dtype) -> None:
    """The norm of half precision takes as many operations as that of float32: nothing narrows it."""
    for count in (1, 100):
        measured = []
        for one in (dtype, torch.float32):
            with on(device) as place:
                measured.append(counted(CALLS["get_total_norm"][0], parameters(count, [one], place), False))
        assert measured[0] == measured[1]


@pytest.mark.needs("has_recorded_natives")
@pytest.mark.parametrize("count", [1000, 2000])
def test_of_thousands(count: int) -> None:
    for name in ("clip_grad_norm_", "get_total_norm"):
        ours, native = counts(name, count, [torch.float32], "host")
        assert ours <= native + 4


@pytest.mark.drawn(15)
@pytest.mark.parametrize("call", WITHOUT_A_NATIVE.values(), ids=WITHOUT_A_NATIVE)
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("device", ["host", "cuda", "mps"])
def test_without_a_native(call: Call, dtypes: list[torch.dtype], device: str) -> None:
    """A dozen operations are enough, plus four for each further dtype."""
    if device == "mps" and torch.float64 in dtypes:
        return
    with on(device) as place:
        found = {n: counted(call, parameters(n, dtypes, place), torch.float64 in dtypes) for n in (10, 100)}
    assert found[10] == found[100] <= 12 + 4 * (len(dtypes) - 1), found


RULES = {
    **{f"order {order}": dialect.clip_grad_norm(1.0, order) for order in (-2.0, 0.0, 0.5, 3.0)},
    "axes": tensorflow.clip_by_norm(1.0, axes=[0]),
    "rms": optax.clip_by_block_rms(1.0),
    "bounds": tensorflow.clip_by_value(-1.0, 2.0),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_rule_on_every_device(rule: gradclip.Rule, device: str, dtype: torch.dtype) -> None:
    """It runs, makes no float64 tensor and reads no value."""
    with on(device) as place:
        grads = [torch.ones(3, 2, dtype=dtype, device=place) for _ in range(3)]
        with Counting(allows_float64=False):
            result = gradclip.clip(grads, rule)
        for x, g in zip(result.grads, grads, strict=True):
            assert x.device.type == device
            assert x.dtype == dtype
            assert x.shape == g.shape


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_examples(device: str) -> None:
    """Indexing fails on fake tensors of a device that this torch was not built for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "is_on_host", lambda x: False)
        grads = [torch.ones(3, 2, dtype=dtype, device=device) for dtype in (torch.float32, torch.bfloat16)]
        with Counting(allows_float64=False):
            result = gradclip.clip(grads, optax.per_example_global_norm_clip(1.0))
    assert [(x.shape, x.dtype) for x in result.grads] == [((2,), g.dtype) for g in grads]


def test_the_results_are_right() -> None:
    for dtypes in DTYPES.values():
        given = parameters(10, dtypes, "cpu")
        with on("host"):
            norm = gradclip.clip_grad_norm_(given, 1.0)
        exact = 3 * 60**0.5
        torch.testing.assert_close(norm, torch.tensor(exact, dtype=norm.dtype))
        for p in given:
            torch.testing.assert_close(p.grad, torch.full_like(p, 3 / (exact + 1e-6)), rtol=2**-7, atol=0)


@pytest.mark.skipif(not hasattr(torch, "_foreach_powsum"), reason="PyTorch before 2.13 has no such operation")
def test_sums_of_powers_would_take_more_operations_than_norms() -> None:
    """If this fails, ``docs/accelerators.md`` is out of date, and the lane should use the sums."""
    counted: list[str] = []

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            counted.append(str(function))
            return function(*args, **(kwargs or {}))

    with FakeTensorMode():
        grads = [torch.ones(5, device="cuda") for _ in range(50)]
        with Counter():
            torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, 2)))
            norms = len(counted)
            torch.stack(torch._foreach_powsum(grads, 2)).sum().sqrt()
    assert (norms, len(counted) - norms) == (3, 4)
