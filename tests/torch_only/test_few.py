"""The short way of a clip before a step, against the engine's: to the bit, and only where it is as right."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from benchmarked import walk

import gradclip
from gradclip.backends.torch import slot as step
from gradclip.backends.torch import versions
from gradclip.backends.torch.slot import fused
from gradclip.dialects import keras, optax, tensorflow
from gradclip.dialects import torch as dialect

Params = list[torch.nn.Parameter]

RULES = {
    "torch": dialect.clip_grad_norm(1.0),
    "optax": optax.clip_by_global_norm(1.0),
    "keras": keras.global_clipnorm(1.0),
    "tensorflow": tensorflow.clip_by_global_norm(1.0),
    "unclipped": dialect.clip_grad_norm(1e6),
    "measured": dialect.clip_grad_norm(math.inf),
    "zeros": dialect.clip_grad_norm(0.0),
    "subnormal factor": dialect.clip_grad_norm(1e-43),
    **{f"order {p}": dialect.clip_grad_norm(1.0, p) for p in (1.0, 3.0, 0.0, -1.0, math.inf)},
}


@pytest.fixture(autouse=True)
def takes_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "FEW", 1 << 18)


def params(*dtypes: torch.dtype) -> Params:
    """Parameters: one has no gradient, and each gradient is transposed."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for dtype in dtypes or (torch.float32,) * 3:
        made.append(torch.nn.Parameter(torch.zeros(5, 7, dtype=dtype)))
        made[-1].grad = torch.randn(7, 5, generator=generator).to(dtype).T
    return [*made, torch.nn.Parameter(torch.zeros(2))]


def stepped(ps: Params, rule: Any, is_short: bool, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """The hook after a step; which way was taken is asserted."""
    ways: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(step, "run", lambda *args: ways.append("engine") or gradclip.core.engine.run(*args))
        optimizer = gradclip.clipped(torch.optim.SGD(ps, lr=1.0), rule, **options)
        optimizer.step()
    assert ways == ([] if is_short else ["engine"])
    return optimizer.gradclip


def both(make: Callable[[], Params], rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step by the short way and one by the engine."""
    ours, theirs = make(), make()
    one = stepped(ours, rule, True, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(step, "clip_few", lambda *_: None)
        other = stepped(theirs, rule, False, monkeypatch)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.equal(p, q)
        assert (p.grad is None and q.grad is None) or torch.equal(p.grad, q.grad)
        assert p.grad is None or p.grad._version == q.grad._version
    a, b = one.last, other.last
    assert a.norm.dtype == b.norm.dtype
    assert torch.equal(a.norm, b.norm)
    assert torch.equal(a.coefficient, b.coefficient)
    assert (a.grads, a.is_list, a.culprits, a.skip, a.zeroed) == (b.grads, b.is_list, b.culprits, b.skip, b.zeroed)
    assert a.bounds() == b.bounds()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_as_the_engine(rule: gradclip.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    both(params, rule, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    both(lambda: params(dtype, dtype), RULES["torch"], monkeypatch)
    both(lambda: params(torch.float32, dtype), RULES["torch"], monkeypatch)


def spoilt(x: torch.Tensor) -> Params:
    """Parameters, one of which has this gradient."""
    made = params()
    made[0] = torch.nn.Parameter(torch.zeros_like(x.to_dense() if x.is_sparse else x).contiguous())
    made[0].grad = x
    return made


OTHERS = {
    "NaN": torch.tensor([1.0, math.nan]),
    "infinite": torch.tensor([1.0, -math.inf]),
    "strided": torch.ones(4)[::2],
    "sparse": torch.ones(3).to_sparse(),
    "recorded": torch.ones(3, requires_grad=True) * 1,
    "complex": torch.ones(3, dtype=torch.complex64),
    "empty": torch.ones(0),
}


@pytest.mark.parametrize("x", OTHERS.values(), ids=OTHERS)
def test_what_the_engine_takes(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    ps = spoilt(x.clone() if x.is_contiguous() else x)
    hook = stepped(ps, RULES["torch"], False, monkeypatch)
    assert hook.last.culprits == (["0"] if x.numel() and not x.to_dense().isfinite().all() else [])


def test_rules_and_options_that_the_engine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    skips = dataclasses.replace(RULES["torch"], if_nonfinite="skip")
    adaptive = dialect.clip_grad_norm(gradclip.Adaptive(gradclip.limits.spike(4.0)))
    for rule in (
        skips,
        adaptive,
        tensorflow.clip_by_norm(1.0),
        dialect.clip_grad_value(1.0),
        dialect.clip_grad_norm(torch.tensor(1.0)),
    ):
        stepped(params(), rule, False, monkeypatch)
    stepped(params(), [gradclip.Group(RULES["torch"], "*")], False, monkeypatch)
    stepped(params(), RULES["torch"], False, monkeypatch, monitor=gradclip.Monitor())
    stepped(params(), RULES["torch"], False, monkeypatch, reduce=lambda x: x)
    monkeypatch.setattr(fused, "FEW", 3)
    stepped(params(), RULES["torch"], False, monkeypatch)


def test_the_error_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = dialect.clip_grad_norm(1.0, error_if_nonfinite=True)
    both(params, rule, monkeypatch)
    ps = spoilt(OTHERS["NaN"].clone())
    before = copy.deepcopy([p.grad for p in ps])
    with pytest.raises(RuntimeError, match="0"):
        stepped(ps, rule, False, monkeypatch)
    assert all(x is None or torch.equal(x.nan_to_num(), p.grad.nan_to_num()) for x, p in zip(before, ps, strict=True))


def test_a_scaled_gradient_is_unscaled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    [p] = ps = [torch.nn.Parameter(torch.zeros(2))]
    p.grad = torch.tensor([3.0, 4.0]) * 1024
    optimizer = gradclip.clipped(torch.optim.SGD(ps, lr=1.0, fused=True), dialect.clip_grad_norm(10.0))
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(1024.0), torch.tensor(0.0)
    optimizer.step()
    assert p.tolist() == [-3.0, -4.0]


def test_a_step_of_few_calls() -> None:
    """It is short because the caches forget what it calls: a step that needs more calls says why."""

    def prepare() -> Callable[[], Any]:
        ps = [torch.nn.Parameter(torch.ones(4, 4)) for _ in range(8)]
        for p in ps:
            p.grad = torch.ones(4, 4)
        return gradclip.clipped(torch.optim.SGD(ps, lr=1.0), RULES["torch"]).step

    assert "clip_few" in {name for _, name in walk.counted(prepare)}
    # PyTorch 2.4 does not tell whether it compiles: three questions take its place
    assert walk.summed(walk.counted(prepare)).calls <= (38 if versions.traces else 44)
