"""The lanes of eager tensors: which tensors each one takes, and what only PyTorch's tensors can be."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import gradclip
from gradclip.backends.torch import TorchBackend
from gradclip.dialects import optax
from gradclip.dialects import torch as dialect


def test_a_bound_beyond_one_of_several_dtypes() -> None:
    """float16 cannot represent 1e5, and the other gradients may differ from the first one's dtype."""
    grads = [torch.tensor([2e5, -2e5, 1.0]), torch.tensor([6e4, -math.inf, 1.0], dtype=torch.float16)]
    gradclip.clip_(grads, dialect.clip_grad_value(1e5))
    assert grads[0].tolist() == [1e5, -1e5, 1.0]
    assert grads[1].tolist() == [60000.0, -math.inf, 1.0]


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
def test_what_goes_by_the_reference(x: torch.Tensor) -> None:
    assert TorchBackend().lane([torch.ones(2), x]) is None


@pytest.mark.parametrize("clip", [gradclip.clip, gradclip.clip_])
def test_the_negative_bit(clip: Callable[..., gradclip.ClipResult]) -> None:
    """The memory of such a tensor contains the negated elements."""
    for rule, want in (
        (dialect.clip_grad_norm(1.0), [-0.588348, 0.784464, -0.196116]),
        (dialect.clip_grad_value(1.0), [-1.0, 1, -1]),
    ):
        x = torch._neg_view(torch.tensor([3.0, -4.0, 1.0]))
        assert clip([x], rule).grads[0].tolist() == pytest.approx(want, rel=1e-5)
        assert clip is gradclip.clip_ or x.tolist() == [-3.0, 4.0, -1.0]


def test_forward_mode_keeps_the_tangent() -> None:
    def clipped(x: torch.Tensor) -> torch.Tensor:
        return gradclip.clip([x], dialect.clip_grad_norm(1.0)).grads[0]

    x, tangent = torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0])
    _, want = torch.func.jvp(clipped, (x,), (tangent,))
    with torch.autograd.forward_ad.dual_level():
        result = torch.autograd.forward_ad.unpack_dual(clipped(torch.autograd.forward_ad.make_dual(x, tangent)))
    assert result.tangent is not None
    torch.testing.assert_close(result.tangent, want)
    assert want.abs().max() > 0


def test_memory_that_holds_the_negative() -> None:
    """The imaginary part of a conjugate is such a tensor."""
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


def test_two_tensors_in_one_place_are_scaled_once() -> None:
    """torch scales them twice. The tensors are large, and several threads work on them."""
    x = torch.ones(1 << 20)
    norm = gradclip.clip_([x, x.view(2, -1)], dialect.clip_grad_norm(0.5)).norm
    assert float(norm) == 1024.0
    assert (x == x[0]).all()
    assert x[0].item() == pytest.approx(0.5 / 1024, rel=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_what_is_traced_is_recorded() -> None:
    """``torch.jit.trace`` must see each operation."""
    traced = torch.jit.trace(lambda x: gradclip.clip_([x.clone()], dialect.clip_grad_value(1.0)).grads[0], torch.ones(3))
    assert traced(torch.full([3], 5.0)).tolist() == [1.0] * 3
