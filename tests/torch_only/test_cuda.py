"""On an accelerator a clip reads no value: the host would have to synchronise with the device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gradclip
from gradclip.backends.torch import TorchBackend
from gradclip.dialects import keras, optax, paddle, tensorflow
from gradclip.dialects import torch as dialect

Parameters = list[torch.nn.Parameter]
Clip = Callable[[Parameters, float], Any]


def gradients(parameters: Parameters) -> list[Any]:
    return [p.grad for p in parameters]


CLIPS: dict[str, Clip] = {
    "clip_grad_norm_": lambda ps, limit: gradclip.clip_grad_norm_(ps, limit),
    "clip_grad_norm_, foreach": lambda ps, limit: gradclip.clip_grad_norm_(ps, limit, foreach=True),
    "clip_grad_norm_, no foreach": lambda ps, limit: gradclip.clip_grad_norm_(ps, limit, foreach=False),
    "clip_grad_norm_, p = 1": lambda ps, limit: gradclip.clip_grad_norm_(ps, limit, 1.0),
    "clip_grad_norm_, p = inf": lambda ps, limit: gradclip.clip_grad_norm_(ps, limit, float("inf")),
    "clip_grad_value_": lambda ps, limit: gradclip.clip_grad_value_(ps, limit),
    "two stages": lambda ps, limit: gradclip.clip_grads_with_norm_(ps, limit, gradclip.get_total_norm(gradients(ps))),
    "clip_by_global_norm": lambda ps, limit: gradclip.clip_by_global_norm(gradients(ps), limit),
    "clip_by_norm": lambda ps, limit: [gradclip.clip_by_norm(x, limit) for x in gradients(ps)],
    "clip_by_value": lambda ps, limit: [gradclip.clip_by_value(x, -limit, limit) for x in gradients(ps)],
    "clip": lambda ps, limit: gradclip.clip(ps, dialect.clip_grad_norm(limit)),
    "each norm": lambda ps, limit: gradclip.clip_(ps, keras.clipnorm(limit)),
    "each, out of place": lambda ps, limit: gradclip.clip(ps, paddle.clip_grad_by_norm(limit)),
    "each root mean square": lambda ps, limit: gradclip.clip_(ps, optax.clip_by_block_rms(limit)),
    "along an axis": lambda ps, limit: gradclip.clip_(ps, tensorflow.clip_by_norm(limit, axes=[0])),
}
LIMITS = {"clipped": 0.01, "unclipped": 1e6}
DTYPES = {
    "float32": [torch.float32] * 3,
    "bfloat16": [torch.bfloat16] * 3,
    "mixed": [torch.float32, torch.bfloat16, torch.float16],
}
SHAPES = [(130, 257), (5,), (4, 3)]


def parameters_of(dtypes: list[torch.dtype], devices: list[str]) -> Parameters:
    generator, made = torch.Generator().manual_seed(0), []
    for shape, dtype, device in zip(SHAPES, dtypes, devices, strict=True):
        x = torch.randn(shape, generator=generator).to(device, dtype)
        made.append(torch.nn.Parameter(torch.zeros_like(x)))
        made[-1].grad = x
    return made


class NoLook(TorchDispatchMode):
    """Raises if a tensor's value becomes a Python number; on an accelerator that synchronises."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        looks = (torch.ops.aten._local_scalar_dense, torch.ops.aten.is_nonzero, torch.ops.aten.equal, torch.ops.aten.nonzero)
        if func.overloadpacket in looks:
            raise AssertionError(f"{func} reads a value")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def as_if_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reading tensors on the host count as a synchronisation."""
    monkeypatch.setattr(TorchBackend, "reads_free", lambda self, tensors: False)
    monkeypatch.setattr("gradclip.backends.torch.lanes.is_on_host", lambda x: False)


def test_the_mode_notices_a_look() -> None:
    with pytest.raises(AssertionError, match="reads a value"), NoLook():
        float(torch.ones(()))
    with pytest.raises(AssertionError, match="reads a value"), NoLook():
        gradclip.clip_grad_norm_(parameters_of(DTYPES["float32"], ["cpu"] * 3), 1.0)


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@pytest.mark.usefixtures("as_if_elsewhere")
def test_nothing_is_looked_at(clip: Clip, dtypes: list[torch.dtype], limit: float) -> None:
    with NoLook():
        clip(parameters_of(dtypes, ["cpu"] * 3), limit)


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def no_synchronisation() -> Iterator[Callable[[], None]]:
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@needs_cuda
def test_cuda_notices_a_look(no_synchronisation: Callable[[], None]) -> None:
    x = torch.ones((), device="cuda")
    no_synchronisation()
    with pytest.raises(RuntimeError, match="synchroniz"):
        float(x)


@needs_cuda
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
def test_no_synchronisation(
    clip: Clip, dtypes: list[torch.dtype], limit: float, no_synchronisation: Callable[[], None]
) -> None:
    """The first of two calls may synchronise, for example to create a context."""
    expected, got = (parameters_of(dtypes, [device] * 3) for device in ("cpu", "cuda"))
    clip(parameters_of(dtypes, ["cuda"] * 3), limit)
    no_synchronisation()
    clip(got, limit)
    torch.cuda.set_sync_debug_mode("default")
    clip(expected, limit)
    for x, y in zip(map(operator.attrgetter("grad"), got), map(operator.attrgetter("grad"), expected), strict=True):
        torch.testing.assert_close(x.cpu(), y)


@needs_cuda
def test_mixed_devices() -> None:
    """A copy between host and device synchronises; the result is still right."""
    expected, got = (parameters_of(DTYPES["float32"], devices) for devices in (["cpu"] * 3, ["cuda", "cpu", "cuda"]))
    norms = [gradclip.clip_grad_norm_(ps, 0.01) for ps in (expected, got)]
    torch.testing.assert_close(norms[1].cpu(), norms[0])
    for x, y in zip(gradients(got), gradients(expected), strict=True):
        torch.testing.assert_close(x.cpu(), y)
