"""The launches of a clip on an accelerator, counted on the host, whose tensors stand in for an accelerator's."""

from __future__ import annotations

import collections
import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
import pytest
from frameworks.paddle import framework
from oracle import ulps
from paddle import _C_ops, profiler
from paddle_programs import run
from rules import KINDS

import gradclip
from gradclip.backends.paddle import PaddleBackend, lanes, launches, versions
from gradclip.dialects import tensorflow, torch

#: kernels on a GPU for one operator of Paddle: clip_by_norm reduces, then writes the product; Paddle 3.3,
#: paddle/phi/kernels/gpu/clip_by_norm_kernel.cu. check_finite_and_unscale inverts its divisor first; gpu/amp_kernel.cu
SEVERAL = {"clip_by_norm": 2, "check_finite_and_unscale_": 2}
DTYPES = ("float32", "bfloat16")  # the host cannot multiply float16


def divided_on_the_host(halves: list[Any], divisor: Any) -> None:
    """Do what :func:`versions.divide_` does for bfloat16. Paddle's operation needs an accelerator, so NumPy computes it."""
    factor = np.float32(1) / np.frombuffer((ctypes.c_float * 1).from_address(divisor.data_ptr()), np.float32)
    for x in halves:
        size = math.prod(x.shape)
        bits = np.frombuffer((ctypes.c_uint16 * size).from_address(x.data_ptr()), np.uint16)
        product = ((bits.astype(np.uint32) << 16).view(np.float32) * factor).view(np.uint32)
        bits[:] = (product + 0x7FFF + (product >> 16 & 1)) >> 16


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "on_host", lambda tensors: False)
    monkeypatch.setattr(versions, "divide_", divided_on_the_host)


@contextmanager
def made(found: collections.Counter[str]) -> Iterator[None]:
    """Count the dtypes that operations return, and the calls that replace Paddle's operations here."""

    def watched(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            results = operation(*arguments, **named)
            for x in results if isinstance(results, (list, tuple)) else [results]:
                found[str(getattr(x, "dtype", "")).removeprefix("paddle.")] += 1
            return results

        return call

    def divided(halves: list[Any], divisor: Any) -> None:
        found["check_finite_and_unscale_"] += 1
        divided_on_the_host(halves, divisor)

    with pytest.MonkeyPatch.context() as patch:
        for name, operation in list(vars(_C_ops).items()):
            if callable(operation) and not name.startswith("__"):
                patch.setattr(_C_ops, name, watched(operation))
        patch.setattr(versions, "divide_", divided)
        yield


def launched(call: Callable[[], Any]) -> tuple[int, collections.Counter[str]]:
    """Return how many kernels a call launches, according to Paddle's profiler, and the result dtypes."""
    kernels: collections.Counter[str] = collections.Counter()
    found: collections.Counter[str] = collections.Counter()
    with made(found):
        watch = profiler.Profiler(targets=[profiler.ProfilerTarget.CPU], on_trace_ready=lambda watch: None)
        watch.start()
        try:
            call()
        finally:
            watch.stop()
    nodes = list(watch.profiler_result.get_data().values())
    while nodes:
        node = nodes.pop()
        nodes += node.children_node
        if node.name.endswith(" kernel launch"):
            kernels[node.name.removesuffix(" kernel launch")] += 1
    kernels["check_finite_and_unscale_"] += found.pop("check_finite_and_unscale_", 0)
    return sum(count * SEVERAL.get(name, 1) for name, count in kernels.items()), found


def gradients(count: int, dtype: str) -> list[Any]:
    return [framework.make(np.full(3, (i % 5 + 1) / 4), dtype) for i in range(count)]


PARAMETER = paddle.zeros([3])
RULES = {name: KINDS[name](0.5) for name in ("global", "global, p = 1", "tensor")}
#: clip_by_norm computes the coefficient in its second kernel, and returns neither it nor the norm; gradclip returns both as
#: tensors, in a dozen launches for any number of gradients. A half needs three conversions each.
#: In Paddle 3.0 the smaller of two numbers takes three launches if it must keep a NaN
OLD = 0 if versions.minimum is paddle.minimum else 2
MORE = {"global": 4 + OLD, "each": 14 + OLD}
CLIPS = {"global": "ClipGradByGlobalNorm", "each": "ClipGradByNorm"}


@pytest.mark.parametrize("limit", [0.5, 1e9], ids=["clipped", "not clipped"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 10, 1000])
@pytest.mark.parametrize("scope", CLIPS)
def test_no_more_than_the_native(scope: str, count: int, dtype: str, limit: float) -> None:
    native, ours = getattr(paddle.nn, CLIPS[scope])(limit), getattr(gradclip, CLIPS[scope])(limit)
    given = [(PARAMETER, x) for x in gradients(count, "float32")]
    theirs, _ = launched(lambda: native(given))
    if dtype != "float32" and scope == "global":  # the host has no such kernels
        theirs += count + 1  # Paddle converts the norm, and the coefficient for each gradient
    given = [(PARAMETER, x) for x in gradients(count, dtype)]
    mine, dtypes = launched(lambda: ours(given))
    assert mine <= theirs + MORE[scope] + (3 * count if scope == "each" and dtype != "float32" else 0)
    assert not {"float64", "complex128"} & dtypes.keys()
    assert dtypes["float32"]


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_it_computes(rule: gradclip.Rule, dtype: str, in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results equal the reference's, and the host reads no value."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in ((3, 4), (5,), (), (40, 41))]
    clip = gradclip.clip_ if in_place else gradclip.clip

    def clipped(backend: Any) -> list[np.ndarray]:
        given = [framework.make(x, dtype) for x in values]
        given += [framework.make(values[0])] if dtype == "bfloat16" else []
        assert type(PaddleBackend().lane(given)) is (launches.AcceleratorLane if backend is None else type(None))
        with monkeypatch.context() as patch:
            patch.setattr(paddle.Tensor, "item", None)
            patch.setattr(paddle.Tensor, "numpy", None)
            result = clip(given, rule)
        assert all(isinstance(n, paddle.Tensor) for n in (result.norm if isinstance(result.norm, list) else [result.norm]))
        return [framework.read(x) for x in result.grads]

    found = clipped(None)
    monkeypatch.setattr(PaddleBackend, "lane", lambda self, tensors: None)
    for got, want in zip(found, clipped(PaddleBackend), strict=True):
        assert ulps(got, want, dtype) <= 4


def test_one_memory_is_one_gradient() -> None:
    x = framework.make(np.ones(16))
    again = x.detach()
    assert float(clip_(x, again)) == 4.0
    assert np.abs(framework.read(x) - 0.5).max() < 1e-6
    x = framework.make(np.ones(16))
    whole = x[:10] if x[:10].data_ptr() == x.data_ptr() else paddle.as_strided(x, [10], [1])
    for rule in (torch.clip_grad_norm(2.0), torch.clip_grad_norm(100.0)):
        with pytest.raises(gradclip.core.errors.NotWritableError, match="share elements"):
            gradclip.clip_([whole, framework.make([1.0, 1.0], "float64"), paddle.as_strided(x, [8], [1], 8 * 4)], rule)
        assert framework.read(x).tolist() == [1.0] * 16


def clip_(*tensors: Any) -> Any:
    return gradclip.clip_(list(tensors), torch.clip_grad_norm(2.0)).norm


# ---- programs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "ON_HOST_ONLY", False)
    monkeypatch.setattr(paddle.device, "get_device", lambda: "gpu:0")


@pytest.mark.usefixtures("an_accelerator")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", [*RULES.values(), tensorflow.clip_by_norm(0.5, axes=[0])], ids=[*RULES, "axes"])
def test_programs_for_accelerators(rule: gradclip.Rule, dtype: str) -> None:
    """A program has no float64 unless the gradients do, and no branch: an accelerator would synchronise."""
    rng = np.random.default_rng(0)
    fed = [rng.normal(size=shape).astype(dtype) for shape in ((3, 4), (5,), (400, 401))]
    texts = []

    def build(*inputs: Any) -> list[Any]:
        clipped = list(gradclip.clip(list(inputs), rule).grads)
        texts.append(str(paddle.static.default_main_program()))
        return clipped

    got = run(build, *fed)
    assert "pd_op.if" not in texts[0]
    assert ("f64>" in texts[0]) == (dtype == "float64")
    for mine, x in zip(got, gradclip.clip(fed, rule).grads, strict=True):
        assert ulps(mine, x, dtype) <= 8


# Paddle's own backward pass of a program warns
@pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
@pytest.mark.usefixtures("an_accelerator")
def test_a_derivative_in_a_program_for_an_accelerator() -> None:
    def build(x: Any) -> list[Any]:
        x.stop_gradient = False
        clipped = gradclip.clip([x], torch.clip_grad_norm(1.0)).grads[0]
        return [clipped, *paddle.static.gradients([clipped * paddle.to_tensor([1.0, 2.0])], [x])]

    for values in ([3.0, 4.0], [0.0, 0.0], [0.3, 0.4]):
        clipped, slope = run(build, np.array(values, np.float32))
        x = paddle.to_tensor(values, stop_gradient=False)
        want = gradclip.clip([x * 1.0], torch.clip_grad_norm(1.0)).grads[0]
        (want * paddle.to_tensor([1.0, 2.0])).sum().backward()
        assert np.allclose(clipped, want.numpy(), rtol=1e-6)
        assert np.allclose(slope, x.grad.numpy(), rtol=1e-6, atol=3e-7)
