"""Static programs and to_static: unknown shapes, float64, derivatives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import copies
import numpy as np
import paddle
import pytest
from frameworks.paddle import framework
from oracle import ulps
from paddle_programs import run, static_mode
from rules import kinds

import gradclip
import gradclip.backends.paddle as paddle_backend
from gradclip.backends.paddle import program
from gradclip.dialects import optax, tensorflow, torch
from gradclip.dialects import paddle as paddle_dialect

# Paddle's own backward pass of a program warns
pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")


RULES = {name: make(0.5) for name, make in kinds(lambda rule: rule.relative_to is None and rule.order >= 1).items()}
FED = [np.array([[0.75, -0.5, 3.0], [0.1, -0.0, 0.2]]), np.array([[2.0], [-0.3]])]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_program_is_what_it_is_in_dynamic_mode(rule: gradclip.Rule, dtype: str, known: bool) -> None:
    fed = [x.astype(dtype) for x in FED]
    got = run(lambda *grads: gradclip.clip(list(grads), rule).grads, *fed, known=known)
    want = gradclip.clip([paddle.to_tensor(x) for x in fed], rule).grads
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == dtype
        assert ulps(mine, framework.read(theirs), dtype) <= 4


@pytest.mark.parametrize("shapes", [[(5, 3)] * 9, [(4,), *[(5, 3)] * 9, (2, 2), *[(7,)] * 8]], ids=["alike", "mixed"])
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("limit", [0.5, 3.5, 1e9])
def test_small_gradients_of_one_shape_are_stacked(shapes: list[tuple[int, ...]], each: bool, limit: float) -> None:
    """They take fewer operations than there are gradients, keep their order, and stay bit for bit the same if not clipped."""
    rng, operations = np.random.default_rng(0), []
    fed = [(rng.standard_normal(shape) * (i + 1) / 4).astype(np.float32) for i, shape in enumerate(shapes)]
    rule = paddle_dialect.clip_grad_by_norm(limit) if each else paddle_dialect.clip_grad_by_global_norm(limit)

    def build(*inputs: Any) -> list[Any]:
        clipped = gradclip.clip(list(inputs), rule).grads
        operations.extend(op.name() for op in paddle.static.default_main_program().global_block().ops)
        return list(clipped)

    norms = [np.linalg.norm(x.astype(np.float64)) for x in fed]
    if not each:
        norms = [np.linalg.norm(norms)] * len(fed)
    for got, x, n in zip(run(build, *fed), fed, norms, strict=True):
        assert ulps(got, x.astype(np.float64) * min(1.0, limit / n), "float32") <= 4
        assert n > limit or np.array_equal(got, x)
    of_each = [name for name in operations if name in ("pd_op.scale", "pd_op.multiply", "pd_op.squared_l2_norm")]
    assert len(of_each) < len(fed)


@pytest.mark.parametrize("shape", [(3 << 18,), (1, 3, 262_147), (700, 1000), (1_000_003,), (1, 2, 1 << 19)], ids=str)
@pytest.mark.parametrize("size", [1 / 3, 1e25, 1e-25])
@pytest.mark.parametrize("has_derivative", [False, True])
@pytest.mark.parametrize("on_host_only", [True, False])
def test_a_large_gradient_is_read_in_blocks(
    shape: tuple[int, ...], size: float, has_derivative: bool, on_host_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of equal elements drifts most; their squares may also overflow or underflow in float32."""
    monkeypatch.setattr(program, "ON_HOST_ONLY", on_host_only)
    array = np.full(shape, size, np.float32)

    def build(g: Any) -> list[Any]:
        g.stop_gradient = not has_derivative
        each = gradclip.norm([g, g * 2], tensorflow.clip_by_norm(1.0))
        return [*each, gradclip.norm([g, g * 2], torch.clip_grad_norm(1.0))]

    exact = np.linalg.norm(array.astype(np.float64))
    for got, times in zip(run(build, array), (1.0, 2.0, 5**0.5), strict=True):
        assert ulps(got, exact * times, "float32") <= 4


@pytest.mark.parametrize("rule", [torch.clip_grad_norm(1.0), tensorflow.clip_by_norm(1.0)], ids=["global", "each"])
def test_a_large_gradient_is_not_overwritten_while_it_is_read(rule: gradclip.Rule) -> None:
    """A program may let the last operation on a value reuse its memory; the norm reads that memory as rows."""

    def build(g: Any) -> list[Any]:
        made = g + 1  # a program never overwrites its own inputs
        measured = gradclip.norm([made], rule)
        return [measured[0] if isinstance(measured, list) else measured, paddle.nn.functional.relu(made)]

    array = -np.random.default_rng(0).random((1 << 12, 1 << 10)).astype(np.float32) - 2
    for _ in range(3):
        got, zeros = run(build, array)
        assert ulps(got, np.linalg.norm((array + 1).astype(np.float64)), "float32") <= 4
        assert not zeros.any()


def test_many_numbers_as_gradients() -> None:
    fed = [np.array(i, np.float32) for i in range(1, 13)]
    rule = tensorflow.clip_by_norm(4.0)
    assert run(lambda *grads: gradclip.clip(list(grads), rule).grads, *fed) == [min(i, 4.0) for i in range(1, 13)]


@pytest.mark.parametrize("count", [1, 9])
def test_the_derivative_of_a_large_norm(count: int) -> None:
    rng = np.random.default_rng(0)
    fed = [rng.standard_normal((40, 1024)).astype(np.float32) * 4 for _ in range(count)]
    fed[0] = rng.standard_normal((600, 1024)).astype(np.float32) if count == 1 else fed[0]

    def derivatives(*inputs: Any) -> list[Any]:
        for x in inputs:
            x.stop_gradient = False
        return list(paddle.static.gradients([gradclip.norm(list(inputs), torch.clip_grad_norm(1.0))], list(inputs)))

    exact = np.linalg.norm([np.linalg.norm(x.astype(np.float64)) for x in fed])
    for got, x in zip(run(derivatives, *fed), fed, strict=True):
        assert ulps(got, x.astype(np.float64) / exact, "float32") <= 4


def test_unclipped_to_the_bit() -> None:
    """It holds even after the process used a 0: then a program treats any -0 in an operation as that 0."""
    gradient = np.array([[0.0, -0.0, 1e-40], [0.5, -0.25, 0.1]], np.float32)
    run(lambda g: [paddle.scale(g, 2.0, bias=0.0)], gradient)
    for rule in (torch.clip_grad_norm(9.0), tensorflow.clip_by_norm(9.0, axes=[0]), optax.clip(9.0)):
        (got,) = run(lambda g, rule=rule: gradclip.clip([g], rule).grads, gradient, known=False)
        assert got.tobytes() == gradient.tobytes()


@pytest.mark.parametrize("limit", [1.0 + 2**-40, 1.0 - 2**-40])
def test_a_limit_of_a_program_has_64_bits(limit: float) -> None:
    """Paddle makes a Python number a float32, even beside a float64 value of a program."""
    (got,) = run(lambda g: gradclip.clip([g], tensorflow.clip_by_norm(limit)).grads, np.array([1.0]))
    assert got == min(limit, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", [(-0.5, 0.25), (-np.inf, 0.25), (0.0, 0.0), (0.1, 0.2), (2.0, -2.0)], ids=str)
@pytest.mark.parametrize("has_derivative", [False, True])
def test_every_element_is_clipped_by_value(bounds: tuple[float, float], dtype: str, has_derivative: bool) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, -7.0, 0.3], dtype)

    def build(g: Any) -> list[Any]:
        g.stop_gradient = not has_derivative
        return [gradclip.clip(g, tensorflow.clip_by_value(*bounds)).grads]

    for shift in range(len(values)):  # vector operations clip several at a time, the rest go one by one
        array = np.resize(np.roll(values, shift), 37)
        wanted = np.maximum(np.minimum(array, bounds[1]), bounds[0]).astype(dtype)
        for known in (True, False):
            assert np.array_equal(run(build, array, known=known)[0], wanted, equal_nan=True)


def test_a_limit_of_numpy() -> None:
    gradient, limit = np.array([[3.0, 4.0], [6.0, 8.0]]), np.array([[1.1], [2.2]])
    (got,) = run(lambda g: [gradclip.clip_by_norm(g, limit, axes=1)], gradient)
    dynamic = framework.read(gradclip.clip_by_norm(paddle.to_tensor(gradient), limit, axes=1))
    assert ulps(got, gradient * limit / [[5.0], [10.0]], "float64") <= 2
    assert ulps(dynamic, gradient * limit / [[5.0], [10.0]], "float64") <= 2


@pytest.mark.parametrize("values", [[3e200, 4e200], [3e-200, 4e-200]])
@pytest.mark.parametrize("order", [2.0, 3.0])
def test_a_finite_float64_has_a_finite_norm(values: list[float], order: float) -> None:
    rule = torch.clip_grad_norm(1.0, order)
    (got,) = run(lambda g: [gradclip.norm([g], rule)], np.array(values))
    exact = sum((v / values[0]) ** order for v in values) ** (1 / order) * values[0]
    assert ulps(got, exact, "float64") <= 4


def test_pairs_of_a_program() -> None:
    """append_backward returns pairs, and clip accepts them without a drop-in."""
    with static_mode():
        program, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(program, startup):
            one, frozen = (paddle.create_parameter([2], "float32", attr=paddle.ParamAttr(need_clip=n)) for n in (True, False))
            weights = paddle.to_tensor(np.array([3.0, 4.0], np.float32))
            pairs = paddle.static.append_backward((one * weights).sum() + (frozen * weights).sum())
            result = gradclip.clip(pairs, torch.clip_grad_norm(1.0))
            assert [p is q for (p, _), (q, _) in zip(result.grads, pairs, strict=True)] == [True, True]
            with pytest.raises(TypeError, match="value of a static program cannot be written in place"):
                gradclip.clip_(pairs, torch.clip_grad_norm(1.0))
            with pytest.warns(gradclip.core.errors.GradclipWarning, match="None of the parameters has a gradient"):
                gradclip.clip([one], torch.clip_grad_norm(1.0))
            fetch = [next(g for p, g in result.grads if p.is_same(q)) for q in (one, frozen)]
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        clipped, kept, norm = executor.run(program, fetch_list=[*fetch, result.norm])
    assert ulps(clipped, [0.6, 0.8], "float32") <= 4
    assert kept.tolist() == [3.0, 4.0]
    assert norm == 5.0


# ---- derivatives ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [RULES["global"], RULES["axes (-1,)"], RULES["tensor, mean"]], ids=str)
def test_the_derivative_in_a_program(rule: gradclip.Rule) -> None:
    weight = np.array([[0.3, -1.1, 0.7], [0.9, 0.4, -0.2]])

    def derivative(x: Any, w: Any) -> list[Any]:
        x.stop_gradient = False
        return list(paddle.static.gradients([(gradclip.clip([x], rule).grads[0] * w).sum()], [x]))

    (got,) = run(derivative, FED[0], weight)

    def loss(grads: list[Any]) -> Any:
        return (gradclip.clip(grads, rule).grads[0] * paddle.to_tensor(weight)).sum()

    (dynamic,) = framework.derivative(loss, [paddle.to_tensor(FED[0])])
    assert ulps(got, dynamic, "float64") <= 4
    (zero,) = run(derivative, np.zeros((2, 3)), weight)
    assert ulps(zero, weight, "float64") <= 1


def test_a_gradient_with_a_history() -> None:
    """With ``create_graph=True`` a clipped ``.grad`` stays a function of the parameter; other gradients are not recorded."""
    parameter = paddle.create_parameter([2], "float64", default_initializer=paddle.nn.initializer.Assign(np.array([1.0, 2.0])))
    (gradient,) = paddle.grad((parameter**3).sum(), [parameter], create_graph=True)
    clipped = gradclip.clip(gradient, tensorflow.clip_by_norm(1.0)).grads
    clipped[0].backward()
    x, y = 3.0, 12.0  # d/da x / sqrt(x² + y²), where x = 3a² and y = 3b²
    want = np.array([y**2 * 6.0, -x * y * 12.0]) / (x**2 + y**2) ** 1.5
    assert ulps(framework.read(parameter.grad), want, "float64") <= 4
    result = gradclip.clip(parameter, tensorflow.clip_by_norm(0.1))
    assert result.norm.stop_gradient
    assert result.grads.stop_gradient


# ---- to_static -----------------------------------------------------------------------------------------------------------


@pytest.mark.drawn(4)
@pytest.mark.parametrize("call", ["clip([a, b], RULE).grads", "clip_by_global_norm([a, b], 1.0)[0]"])
@pytest.mark.parametrize("first", [True, False], ids=["in a new process", "after another call"])
@pytest.mark.parametrize("full_graph", [True, False])
def test_to_static_calls_it_as_it_is(call: str, first: bool, full_graph: bool, tmp_path: Path) -> None:
    """It also works as the very first call, which loads the backend."""
    lines = ["import warnings", "with warnings.catch_warnings():", "    warnings.simplefilter('ignore')", "    import paddle"]
    lines += ["import gradclip", "from gradclip.dialects import torch", "RULE = torch.clip_grad_norm(1.0)"]
    lines += ["warnings.simplefilter('error')", "def traced(a, b):", f"    return gradclip.{call}"]
    lines += [] if first else ["gradclip.clip(paddle.to_tensor([1.0]), RULE)"]
    lines += ["a, b = paddle.to_tensor([3.0, 4.0]), paddle.to_tensor([12.0])"]
    lines += [f"got = paddle.jit.to_static(traced, full_graph={full_graph})(a, b)", "print(*got[0].tolist(), *got[1].tolist())"]
    script = tmp_path / "script.py"  # to_static reads the source
    script.write_text("\n".join(lines))
    done = copies.run("paddle", str(script))
    assert done.returncode == 0, done.stderr
    assert ulps(np.array(done.stdout.split(), np.float64), np.array([3.0, 4.0, 12.0]) / 13, "float32") <= 4


def test_to_static_in_its_default_mode() -> None:
    """In a process of its own: Paddle runs each frame by its own evaluator then, and a crash of that ended all tests once."""
    done = copies.run("paddle", "-c", "from paddle_only import test_programs; test_programs.check_the_default_mode()")
    assert done.returncode == 0, done.stderr


def check_the_default_mode() -> None:
    """It breaks the graph for any result type: Paddle lets no function that it treats as an operation return a dataclass."""
    a, b = paddle.to_tensor([3.0, 4.0]), paddle.to_tensor([12.0])

    def whole(a: Any, b: Any) -> Any:
        return gradclip.clip([a, None, b], torch.clip_grad_norm(1.0))

    def inside(a: Any, b: Any) -> Any:
        result = gradclip.clip({"a": a * 2, "b": b * 2}, gradclip.Group(torch.clip_grad_norm(1.0), "a", counted="*"))
        return result.grads["a"] + 1, result.grads["b"], result.norm

    def by_a_tensor(a: Any, b: Any) -> Any:
        return gradclip.clip([a, b], tensorflow.clip_by_global_norm(b.sum() / 12)).grads[0]

    for _ in range(2):
        result = paddle.jit.to_static(whole)(a, b)
        assert type(result) is gradclip.ClipResult
        assert (result.grads[1], float(result.norm)) == (None, 13.0)
        first, second, norm = paddle.jit.to_static(inside)(a, b)
        assert ulps(first.numpy(), 1 + np.array([6.0, 8.0]) / 26, "float32") <= 4
        assert (second.tolist(), float(norm)) == ([24.0], 26.0)
        assert ulps(paddle.jit.to_static(by_a_tensor)(a, b).numpy(), np.array([3.0, 4.0]) / 13, "float32") <= 4


def test_to_static_reads_no_file_of_gradclip() -> None:
    """In its default mode it would translate them, which in Paddle 3.0 does not end for some."""
    files = {name: str(x.__file__) for name, x in sys.modules.items() if name.partition(".")[0] == "gradclip" and x.__file__}
    read = {name for name, file in files.items() if not file.startswith(tuple(paddle_backend._FOLDERS))}
    assert read == set()
    assert {"gradclip.dropins.torch", "gradclip.steps.step", "gradclip.backends.paddle"} <= files.keys()
