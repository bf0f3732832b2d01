"""Which operations ``torch.compile`` passes to the compiled loops; the results equal the eager path's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

import gradclip
from gradclip.backends.torch import compiled as compiled_lane
from gradclip.dialects import keras, tensorflow
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.needs("compiles")

CLIP = {"gradclip.norms", "gradclip.scale_"}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lower the thresholds, so that small gradients use the operators too."""
    for threshold in ("_MANY", "_LARGE", "_LARGE_HALVES"):
        monkeypatch.setattr(compiled_lane, threshold, 0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Seen:
    """A backend of ``torch.compile`` that runs AOTAutograd's graph, and records its operators."""

    def __init__(self) -> None:
        self.operators: set[str] = set()
        self.trace = aot_autograd(fw_compiler=self.look)

    def look(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        for node in graph.graph.nodes:  # an operator that writes in place is the first argument of another one
            self.operators |= {str(x).removesuffix(".default") for x in (node.target, *node.args[:1])}
        return make_boxed_func(graph.forward)

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        traced: Callable[..., Any] = self.trace(graph, inputs)
        return traced


def compiled(function: Callable[..., Any], expected: set[str] = CLIP) -> Callable[..., Any]:
    """Compile the function into one graph, and check the operators in it."""
    seen = Seen()
    run = torch.compile(function, fullgraph=True, backend=seen)

    def call(*args: Any) -> Any:
        result = run(*args)
        assert CLIP & seen.operators == expected
        return result

    return call


def some(dtype: torch.dtype = torch.float32, magnitude: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(shape, generator=generator) * magnitude).to(dtype) for shape in [(3, 5), (7,), (2, 1, 300)]]


RULES = {"one norm": dialect.clip_grad_norm(0.5), "nothing to clip": dialect.clip_grad_norm(1e38)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_same_as_eagerly(rule: gradclip.Rule, dtype: torch.dtype) -> None:
    clip = compiled(lambda gs: gradclip.clip_(gs, rule).norm)
    for magnitude in (1.0, 1e-30, 1e30, 1e-40):
        grads, expected = some(dtype, magnitude), some(dtype, magnitude)
        norm = clip(grads)
        eager = gradclip.clip_(expected, rule).norm
        assert torch.equal(norm, eager), magnitude
        for found, wanted in zip(grads, expected, strict=True):
            # compiled, the coefficient is a float32; eager, it is a float64
            rtol = 2e-7 if dtype == torch.float32 else 1e-2
            assert torch.allclose(found.double(), wanted.double(), rtol=rtol, atol=1e-44, equal_nan=True), magnitude


BOUNDS = [(-0.5, 0.5), (0.1, math.inf), (0.5, -0.5), (-1e30, 1e30), (-1e-41, 1e-41)]


@pytest.mark.drawn(8)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_by_value_to_the_bit(dtype: torch.dtype, bounds: tuple[float, float]) -> None:
    rule = tensorflow.clip_by_value(*bounds)
    clip = compiled(lambda gs: gradclip.clip_(gs, rule).norm, set())
    for magnitude in (1.0, 1e30, 1e-40):
        grads, expected = some(dtype, magnitude), some(dtype, magnitude)
        grads[0][1] = expected[0][1] = math.nan
        clip(grads)
        gradclip.clip_(expected, rule)
        for found, wanted in zip(grads, expected, strict=True):
            assert torch.equal(found.isnan(), wanted.isnan())
            assert torch.equal(found.nan_to_num(7.0), wanted.nan_to_num(7.0))


def test_by_value_inductor_computes() -> None:
    rule = dialect.clip_grad_value(0.5)
    for x in (torch.randn(6, 6)[::2, ::2], torch.tensor(3 + 4j).conj().imag, torch.randn(3, dtype=torch.float64)):
        expected = x.clone().clamp(-0.5, 0.5)
        compiled(lambda g: gradclip.clip_([g], rule).norm, set())(x)
        assert torch.equal(x, expected)
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([3.0, -0.1, 0.2])
    compiled(lambda p: gradclip.clip_grad_value_([p, p], 0.5), set())(parameter)
    assert torch.equal(parameter.grad, torch.tensor([0.5, -0.1, 0.2]))


def test_each_by_its_own_norm() -> None:
    grads, expected = some(), some()
    norms = compiled(lambda gs: gradclip.clip_(gs, keras.clipnorm(0.5)).norm, CLIP)(grads)
    gradclip.clip_(expected, keras.clipnorm(0.5))
    assert [float(n) for n in norms] == [float(torch.linalg.vector_norm(g, dtype=torch.float64).float()) for g in some()]
    for found, wanted in zip(grads, expected, strict=True):
        assert torch.allclose(found, wanted, rtol=2e-7)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_finite(value: float) -> None:
    grads, expected = some(), some()
    grads[1][2] = expected[1][2] = value
    rule = dialect.clip_grad_norm(0.5)
    compiled(lambda gs: gradclip.clip_(gs, rule).norm)(grads)
    gradclip.clip_(expected, rule)
    for found, wanted in zip(grads, expected, strict=True):
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found.nan_to_num(), wanted.nan_to_num())


ODD: dict[str, Callable[[], torch.Tensor]] = {
    "with gaps": lambda: torch.randn(6, 6)[::2, ::2],
    "transposed": lambda: torch.randn(3, 4).t(),
    "negative bit": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "empty": lambda: torch.randn(0, 3),
    "0-d": lambda: torch.randn(()),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_odd_memory(make: Callable[[], torch.Tensor]) -> None:
    x = make()
    expected = x.clone()
    for rule in (dialect.clip_grad_norm(0.1), dialect.clip_grad_value(0.02)):
        torch.compile(lambda g, rule=rule: gradclip.clip_([g], rule).norm, fullgraph=True, backend="aot_eager")(x)
        gradclip.clip_([expected], rule)
        assert torch.allclose(x, expected, rtol=2e-7)


def test_a_negated_element() -> None:
    x = torch.tensor(3 + 4j).conj().imag
    assert x.is_neg()
    assert float(torch.compile(lambda g: gradclip.clip_([g], RULES["one norm"]).norm, backend="aot_eager")(x)) == 4.0
    assert math.isclose(float(x), -0.5, rel_tol=1e-6)


def test_a_rule_by_value_measures_nothing() -> None:
    x = torch.tensor([3.0, 4.0])
    assert torch.compile(lambda g: gradclip.norm([g], dialect.clip_grad_value(1.0)), backend="aot_eager")(x) is None
    assert torch.equal(x, torch.tensor([3.0, 4.0]))


def test_a_coefficient_that_float32_lacks() -> None:
    grads, expected = some(magnitude=1e30), some(magnitude=1e30)
    rule = dialect.clip_grad_norm(1e-10)
    compiled(lambda gs: gradclip.clip_(gs, rule).norm)(grads)
    assert math.isclose(float(gradclip.norm(grads, rule)), 1e-10, rel_tol=1e-2)  # in float32 the coefficient has only 17 bits
    torch.ops.gradclip.scale_(expected, torch.tensor(1e-41, dtype=torch.float64))
    for found, original in zip(expected, some(magnitude=1e30), strict=True):
        assert torch.allclose(found.double(), original.double() * 1e-41, rtol=2e-7)


def test_empty_ones_among_others() -> None:
    grads = [torch.randn(0, 3), torch.tensor([3.0, 4.0])]
    norms = compiled(lambda gs: gradclip.clip_(gs, keras.clipnorm(1.0)).norm, CLIP)(grads)
    assert list(map(float, norms)) == [0.0, 5.0]
    assert torch.allclose(grads[1], torch.tensor([0.6, 0.8]))


def test_one_memory_twice_is_refused() -> None:
    """A program that was compiled for others meets them when it runs; it writes neither."""
    x, y = torch.full((1 << 21,), 2.0), torch.full((1 << 21,), 2.0)
    with pytest.raises(ValueError, match="share elements"):
        torch.ops.gradclip.scale_([x, x.view(2, -1), y], torch.tensor(0.5))
    assert torch.equal(x, torch.full_like(x, 2.0))
    assert torch.equal(y, torch.full_like(y, 2.0))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own import warns
def test_what_inductor_has_made_is_clipped() -> None:
    def step(xs: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
        grads = [x * 2 + 1 for x in xs]
        return grads, gradclip.clip_(grads, RULES["one norm"]).norm

    grads, norm = torch.compile(step, fullgraph=True)(some())
    expected, eager = step(some())
    assert math.isclose(float(norm), float(eager), rel_tol=1e-7)
    for found, wanted in zip(grads, expected, strict=True):
        assert torch.allclose(found, wanted, rtol=3e-7)


def test_in_forward_mode_torch_computes() -> None:
    rule = dialect.clip_grad_norm(1.0)
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0]))
        norm = torch.compile(lambda g: gradclip.norm([g], rule), backend="eager")(x)
        assert math.isclose(float(torch.autograd.forward_ad.unpack_dual(norm).tangent), 0.6, rel_tol=1e-6)


def test_autograd_hears_of_it() -> None:
    weight, x = torch.randn(3, requires_grad=True), torch.randn(3)
    for rule, operators in ((dialect.clip_grad_norm(0.1), CLIP), (dialect.clip_grad_value(0.1), set())):
        loss = (weight * x).sum()
        compiled(lambda g, rule=rule: gradclip.clip_([g], rule).norm, operators)(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_where_a_derivative_is_wanted_torch_computes() -> None:
    rule = dialect.clip_grad_norm(1.0)
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    compiled(lambda g: gradclip.clip([g * 1], rule).grads[0].sum(), set())(x).backward()
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    gradclip.clip([y * 1], rule).grads[0].sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert torch.allclose(x.grad, y.grad)


def test_in_transforms_torch_computes() -> None:
    rule, rows = dialect.clip_grad_norm(1.0), torch.randn(4, 5) * 3
    mapped = torch.func.vmap(lambda g: gradclip.clip(g, rule).grads)
    slope = torch.func.grad(lambda g: gradclip.clip(g, rule).grads.sum())
    assert torch.allclose(compiled(mapped, set())(rows), mapped(rows))
    assert torch.allclose(compiled(slope, set())(rows[0]), slope(rows[0]))


def test_of_other_dtypes_torch_computes() -> None:
    rule = dialect.clip_grad_norm(1.0)
    grads = [torch.randn(3), torch.randn(3, dtype=torch.float64)]
    found = compiled(lambda gs: gradclip.clip_(gs, rule).norm, set())([g.clone() for g in grads])
    assert math.isclose(float(found), float(gradclip.norm(grads, rule)), rel_tol=1e-6)


@pytest.mark.needs("compiles_all")
@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_needs_no_gradclip(strict: bool) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return gradclip.clip([x], dialect.clip_grad_norm(1.0)).grads[0]

    program = torch.export.export(Module(), (torch.randn(3),), strict=strict)
    assert not [node for node in program.graph.nodes if "gradclip" in str(node.target)]


def test_an_exported_program_has_any_length() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            x = x * 1
            return gradclip.clip_([x], dialect.clip_grad_value(0.5)).grads[0]

    program = torch.export.export(Module(), (torch.randn(4),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    assert torch.equal(program.module()(torch.full((9,), 2.0)), torch.full((9,), 0.5))


def test_in_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.tensor([3.0, 4.0])
        assert float(compiled(lambda g: gradclip.clip_([g], dialect.clip_grad_norm(1.0)).norm)(x)) == 5.0
        assert torch.allclose(x, torch.tensor([0.6, 0.8]))


def test_few_small_ones_are_left_to_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule = dialect.clip_grad_norm(1.0)
    compiled(lambda gs: gradclip.clip_(gs, rule).norm, set())(some())
    compiled(lambda gs: gradclip.clip_(gs, rule).norm)([torch.randn(8) for _ in range(40)])
    compiled(lambda gs: gradclip.clip_(gs, rule).norm)([torch.randn(1 << 18)])
    compiled(lambda gs: gradclip.clip_(gs, dialect.clip_grad_value(1.0)).norm, set())([torch.randn(1 << 18)])


def test_the_operators_hold_to_their_schemas() -> None:
    torch.library.opcheck(torch.ops.gradclip.norms.default, (some(),))
    torch.library.opcheck(torch.ops.gradclip.scale_.default, (some(), torch.tensor(0.5)))


def test_without_a_compiler_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradclip.backends.host.kernels.KINDS", {})
    rule = dialect.clip_grad_norm(1.0)
    compiled(lambda gs: gradclip.clip_(gs, rule).norm, set())(some())
