"""``torch.jit.trace``, ``make_fx`` and ``torch.export`` record a clip for any values and lengths, or raise a clear error."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import gradclip
from gradclip.dialects import keras, optax, tensorflow
from gradclip.dialects import torch as dialect

Function = Callable[[torch.Tensor], torch.Tensor]


def in_place(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    gradclip.clip_([copy], dialect.clip_grad_norm(1.0))
    return copy


#: a function of one tensor, and its value at [30, 40]
FUNCTIONS: dict[str, tuple[Function, list[float]]] = {
    "one norm": (lambda x: gradclip.clip(x, dialect.clip_grad_norm(1.0)).grads, [0.6, 0.8]),
    "in place": (in_place, [0.6, 0.8]),
    "by a tensor": (lambda x: gradclip.clip(x, dialect.clip_grad_norm(torch.tensor(1.0))).grads, [0.6, 0.8]),
    "by a value": (lambda x: gradclip.clip(x, dialect.clip_grad_value(35.0)).grads, [30.0, 35.0]),
    "each norm": (lambda x: gradclip.clip(x, keras.clipnorm(1.0)).grads, [0.6, 0.8]),
    "along an axis": (lambda x: gradclip.clip(x, tensorflow.clip_by_norm(1.0, axes=0)).grads, [0.6, 0.8]),
    "root mean square": (lambda x: gradclip.clip(x, optax.clip_by_block_rms(1.0)).grads, [0.6 * 2**0.5, 0.8 * 2**0.5]),
    "total": (lambda x: gradclip.get_total_norm([x]), [50.0]),
    "total, p = 1": (lambda x: gradclip.get_total_norm([x], 1.0), [70.0]),
    "total, p = 3": (lambda x: gradclip.get_total_norm([x], 3.0), [91000 ** (1 / 3)]),
    "total, p = inf": (lambda x: gradclip.get_total_norm([x], math.inf), [40.0]),
    "total, p = 0": (lambda x: gradclip.get_total_norm([x, x * 0], 0.0), [1.0]),
}


def jit(function: Function, x: torch.Tensor) -> Function:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # of torch.jit itself
        traced: Function = torch.jit.trace(function, x, check_trace=False)
    return traced


RECORDERS: dict[str, Callable[[Function, torch.Tensor], Function]] = {
    "jit.trace": jit,
    "make_fx": lambda f, x: make_fx(f)(x),
    "make_fx before dispatch": lambda f, x: make_fx(f, pre_dispatch=True)(x),
    "make_fx, fake": lambda f, x: make_fx(f, tracing_mode="fake")(x),
    "make_fx, symbolic": lambda f, x: make_fx(f, tracing_mode="symbolic")(x),
}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # a trace is for the lengths that it has seen
@pytest.mark.parametrize("record", RECORDERS.values(), ids=RECORDERS)
@pytest.mark.parametrize(("function", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_other_values_than_the_recorded_ones(
    function: Function, expected: list[float], record: Callable[[Function, torch.Tensor], Function]
) -> None:
    recorded = record(function, torch.tensor([3.0, 4.0]))
    assert torch.allclose(recorded(torch.tensor([30.0, 40.0])).reshape(-1), torch.tensor(expected), rtol=1e-6)


@pytest.mark.parametrize("record", RECORDERS.values(), ids=RECORDERS)
def test_a_recorded_norm_cannot_be_looked_at(record: Callable[[Function, torch.Tensor], Function]) -> None:
    rule = dialect.clip_grad_norm(1.0, error_if_nonfinite=True)
    with pytest.raises(ValueError, match="impossible while tracing"):
        record(lambda x: gradclip.clip(x, rule).grads, torch.tensor([3.0, 4.0]))


EXPORTED: dict[str, gradclip.Rule] = {
    "one norm": dialect.clip_grad_norm(1.0),
    "p = 0": dialect.clip_grad_norm(1.0, 0.0),
    "root mean square": optax.clip_by_block_rms(0.1),
    "along an axis": tensorflow.clip_by_norm(1.0, axes=[0]),
    "per example": optax.per_example_global_norm_clip(0.5),
}


@pytest.mark.drawn(6)
@pytest.mark.needs("compiles_all")
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("rule", EXPORTED.values(), ids=EXPORTED)
def test_an_exported_clip_is_for_any_length(rule: gradclip.Rule, strict: bool) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return gradclip.clip([x, y], rule).grads

    given = (torch.tensor([[3.0, 4.0], [1.0, 2.0]]), torch.ones(2))
    length = torch.export.Dim("length", min=2)
    program = torch.export.export(Module(), given, dynamic_shapes=({0: length}, {0: length}), strict=strict)
    others = [torch.arange(10.0).reshape(5, 2), torch.arange(5.0)]
    for found, expected in zip(program.module()(*others), gradclip.clip(others, rule).grads, strict=True):
        assert torch.allclose(found, expected, rtol=1e-6)


MASKED = torch.masked.masked_tensor
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: MASKED(torch.tensor([3.0, 4.0]), torch.tensor([True, False])), r"x\.to_tensor\(0\.0\)"),
    "nested, strided": (lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)]), "x.unbind"),
    "nested, jagged": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "x.unbind"),
    "sparse CSR": (lambda: torch.eye(2).to_sparse_csr(), "to_sparse_coo"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of:UserWarning", "ignore:Sparse CSR:UserWarning")
@pytest.mark.parametrize(("make", "hint"), REFUSED.values(), ids=REFUSED)
def test_a_tensor_of_another_form_is_refused(make: Callable[[], Any], hint: str) -> None:
    for rule in (dialect.clip_grad_norm(1.0), dialect.clip_grad_value(1.0), tensorflow.clip_by_norm(1.0, axes=[0])):
        for clip in (gradclip.clip, gradclip.clip_):
            with pytest.raises(gradclip.core.errors.DTypeError, match=hint):
                clip([make()], rule)


def _of(clip: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: clip(wrap(x))


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"w": x * 2}], ids=["alone", "list", "dict"])
def test_names_alone_cannot_be_clipped(wrap: Callable[[Any], Any]) -> None:
    for clip in (lambda x: gradclip.clip(x, dialect.clip_grad_norm(1.0)), lambda x: gradclip.clip_grad_norm_(x, 1.0)):
        with pytest.raises(TypeError, match=r"torch\.fx\.symbolic_trace records only names"):
            torch.fx.symbolic_trace(_of(clip, wrap))
    odd: list[Callable[[Any], Any]] = [
        lambda x: gradclip.Monitor().update([x]),
        lambda x: gradclip.clip([torch.ones(2)], dialect.clip_grad_norm(x)),
        lambda x: gradclip.scale_by_norm([torch.ones(2)], dialect.clip_grad_norm(1.0), x),
    ]
    for call in odd:
        with pytest.raises(TypeError, match=r"must be a (number|float),? or a tensor.*\nReceived: .*Proxy"):
            torch.fx.symbolic_trace(_of(call, lambda x: x))
