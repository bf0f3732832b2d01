"""Every fast path of the torch backend is a second implementation: it agrees with the one that it stands in for."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
import torch

import gradclip
from gradclip.backend import Backend
from gradclip.backends.torch import TorchBackend
from gradclip.dialects import optax, paddle
from gradclip.dialects import torch as dialect

HOOKS = ("plain", "fast_total", "fast_norms", "fast_norm", "euclidean", "scaled", "scale_", "clamp_")
RULES = [dialect.clip_grad_norm(0.5), paddle.clip_grad_by_norm(0.5), optax.clip(0.01), dialect.clip_grad_norm(1e9)]
SETS = {
    "small": [(3, 4), (5,), ()],
    "a large one": [(300, 301), (7,)],
    "many": [(16,)] * 300,
    "more than a block": [(16000,)] * 70,
    "channels last": [(8, 16, 15, 15)],
}

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(params=HOOKS)
def without(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def gradients(name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator).to(dtype) for shape in SETS[name]]
    return [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in made]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("in_place", [False, True])
def test_with_and_without(without: str, name: str, dtype: torch.dtype, in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = gradclip.clip_ if in_place else gradclip.clip
    fast = [clip(gradients(name, dtype), rule) for rule in RULES]
    monkeypatch.setattr(TorchBackend, without, getattr(Backend, without))
    slow = [clip(gradients(name, dtype), rule) for rule in RULES]
    for mine, theirs in zip(fast, slow, strict=True):
        for x, y in zip(mine.grads, theirs.grads, strict=True):
            assert x.dtype == y.dtype
            assert x.stride() == y.stride()
            difference = (x.double() - y.double()).abs().max().item()
            ulp = max(torch.finfo(dtype).eps, 2.0**-46)  # torch's float64 norm is a running sum, good to so much
            assert difference <= 4 * ulp * y.double().abs().max().item()
    unclipped = zip(gradients(name, dtype), fast[-1].grads, strict=True)
    assert all(torch.equal(x, y) for x, y in unclipped)


def test_a_bound_beyond_one_of_several_dtypes() -> None:
    """float16 has no 1e5, and the first dtype of several is not that of all."""
    grads = [torch.tensor([2e5, -2e5, 1.0]), torch.tensor([6e4, -math.inf, 1.0], dtype=torch.float16)]
    gradclip.clip_(grads, dialect.clip_grad_value(1e5))
    assert grads[0].tolist() == [1e5, -1e5, 1.0]
    assert grads[1].tolist() == [60000.0, -math.inf, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shapes", [[(2**22 + 77,)], [(2**17 + 3,), (5000,), (100,)] * 9, [(100, 7)] * 400], ids=str)
def test_equal_elements(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    """Whose float32 sums all round the same way."""
    for value in (0.1, 0.37, 3.3e-3):
        grads = [torch.full(shape, value, dtype=dtype) for shape in shapes]
        exact = float(grads[0].ravel()[0]) * math.sqrt(sum(map(torch.Tensor.numel, grads)))
        assert oracle.ulps(gradclip.norm(grads, dialect.clip_grad_norm(1.0)), exact, "float32") <= 4


@pytest.mark.parametrize("value", [1e30, 1e-30, 1e-40], ids=str)
@pytest.mark.parametrize("count", [10, 100_000])
def test_what_leaves_float32_on_the_way(value: float, count: int) -> None:
    x = torch.full((count,), value)
    exact = float(np.float32(value)) * count**0.5
    assert oracle.ulps(gradclip.norm([x, x[:1].clone() * 0], dialect.clip_grad_norm(1.0)), exact, "float32") <= 4


def test_one_gradient_twice_is_not_plain() -> None:
    x = torch.tensor([3.0, 4.0])
    backend = TorchBackend()
    assert backend.plain([x, x.clone()]) == "float32"
    assert backend.plain([x, x]) == ""
    assert gradclip.norm([x, x], dialect.clip_grad_norm(1.0)) == 5.0


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(3).expand(2, 3),
        torch.ones(4)[::2],
        torch.ones(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.int32),
        torch.ones(2, requires_grad=True),
    ],
    ids=["expanded", "strided", "sparse", "complex", "integer", "recorded"],
)
def test_what_is_not_plain(x: torch.Tensor) -> None:
    assert TorchBackend().plain([torch.ones(2), x]) == ""


def test_memory_that_holds_the_negative() -> None:
    """As that of the imaginary part of a conjugate does."""
    by_norm, by_value = dialect.clip_grad_norm(1.0), dialect.clip_grad_value(1.0)
    for clip, rule in ((gradclip.clip, by_norm), (gradclip.clip, by_value), (gradclip.clip_, by_value)):
        x = torch.tensor([3.0 + 4.0j]).conj().imag
        assert x.is_neg()
        assert clip(x, rule).grads.item() == pytest.approx(-1.0)


def test_zeros_without_memory() -> None:
    for rule in (dialect.clip_grad_norm(1.0), optax.clip_by_block_rms(0.5), dialect.clip_grad_value(0.5)):
        zeros, ones = gradclip.clip([torch._efficientzerotensor(3), torch.ones(4)], rule).grads
        assert (zeros + torch.zeros(3)).tolist() == [0.0] * 3
        assert ones.tolist() == pytest.approx([0.5] * 4)


def test_two_tensors_in_one_place_are_scaled_twice() -> None:
    """As torch scales them, and not by two threads at once."""
    x = torch.ones(1 << 21)
    gradclip.clip_([x, x.view(2, -1)], dialect.clip_grad_norm(0.5))
    assert (x == x[0]).all()
    assert x[0].item() == pytest.approx(0.25 / (1 << 22), rel=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_what_is_traced_is_recorded() -> None:
    """By ``torch.jit.trace``, which has to see each operation."""
    traced = torch.jit.trace(lambda x: gradclip.clip_([x.clone()], dialect.clip_grad_value(1.0)).grads[0], torch.ones(3))
    assert traced(torch.full([3], 5.0)).tolist() == [1.0] * 3
