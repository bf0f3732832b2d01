"""The property checks themselves: their documentation and their tools."""

from __future__ import annotations

import ast
import inspect
import math

import ml_dtypes
import numpy as np
import pytest
from conformance.mutants.reference import Reference

from gradclip.conformance.array import Array
from gradclip.conformance.checks import CHECKS, FILES, Bench, Check, Mismatch
from gradclip.conformance.checks.bench import coarse, expect, noise
from gradclip.conformance.checks.formula import Formula
from gradclip.conformance.checks.registry import add
from gradclip.conformance.compare import Outcome
from gradclip.conformance.target import FEATURES, OPERATIONS
from gradclip.natives.departures import DEPARTURES
from gradclip.natives.numbers import norm


@pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))
def test_a_check_is_described(check: Check) -> None:
    assert check.name.isidentifier()
    assert check.description.endswith(".")
    assert check.training.endswith(".")
    assert set(check.needs) <= set(FEATURES)
    assert set(check.needs) & {"float16", "bfloat16", "float32", "float64", "complex64"}
    assert any(map(check.operations, OPERATIONS))
    assert check.departure in {"", *(departure.key for departure in DEPARTURES)}


def test_every_operation_has_a_limit_and_many_checks() -> None:
    for operation, native in OPERATIONS.items():
        assert native.limit in native.arguments
        assert sum(check.operations(operation) for check in CHECKS.values()) >= 40


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="two checks of the name bound"):
        add(CHECKS["bound"])


def test_nothing_is_random_and_no_clock_is_read() -> None:
    imported = set()
    for file in FILES:
        for node in ast.walk(ast.parse(inspect.getsource(file))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imported |= {node.module} if isinstance(node, ast.ImportFrom) else {alias.name for alias in node.names}
    assert not imported & {"random", "time", "datetime", "os", "secrets"}
    assert noise(3) == noise(3) == np.float32(noise(3)).tolist() != noise(3, seed=1)
    assert coarse(100) == np.float16(coarse(100)).tolist() == np.array(coarse(100), ml_dtypes.bfloat16).astype(float).tolist()


def test_the_sources_of_noise_are_the_same_everywhere() -> None:
    assert [value.hex() for value in noise(2)] == ["0x1.60b01c0000000p+2", "0x1.0825300000000p+2"]


# ---- formulas ---------------------------------------------------------------------------------------------------------------


def test_the_norm_of_numbers() -> None:
    assert norm([3.0, -4.0], 2.0) == 5
    assert norm([3e300, 4e300], 2.0) == 5e300
    assert norm([3e-320, 4e-320], 2.0) == pytest.approx(5e-320, rel=1e-3)
    assert norm([3 + 4j, 12j], 2.0) == 13
    assert norm([0.0, math.inf], 2.0) == math.inf
    assert norm([0.0, math.nan, 2.0], 0.0) == 2
    assert norm([], math.inf) == 0


@pytest.mark.parametrize(
    ("operation", "clipped"),
    [
        ("torch.clip_grad_norm_", [[3 * 2.6 / (13 + 1e-6), 4 * 2.6 / (13 + 1e-6)], [12 * 2.6 / (13 + 1e-6)]]),
        ("tensorflow.clip_by_global_norm", [[0.6, 0.8], [2.4]]),
        ("tensorflow.clip_by_norm", [[1.56, 2.08], [2.6]]),
        ("optax.clip_by_block_rms", [[3 * 2.6 / math.sqrt(12.5), 4 * 2.6 / math.sqrt(12.5)], [2.6]]),
        ("keras.clipvalue", [[2.6, 2.6], [2.6]]),
    ],
)
def test_formulas(operation: str, clipped: list[list[float]]) -> None:
    found = Formula(OPERATIONS[operation]).clipped([[3.0, 4.0], [12.0]], 2.6)
    assert [value for values in found for value in values] == pytest.approx([value for values in clipped for value in values])


# ---- the bench --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_bench_clips_as_the_formula_says(operation: str) -> None:
    bench = Bench(Reference(), operation)
    gradients = [[3.0, -4.0], [12.0, 0.0, 0.5]]
    expect(bench.clip(gradients, 2.0), bench.exact(gradients, 2.0), 1, "clipped")


@pytest.mark.parametrize("shape", [(), (2,), (1, 4), (2, 3), (2, 1, 3), (0, 3), (0,)])
def test_the_units_of_a_parameter_have_norm_1(shape: tuple[int, ...]) -> None:
    bench = Bench(Reference(), "optax.adaptive_grad_clip")
    gradient = bench.array([1.0] * math.prod(shape), shape=shape)
    (parameter,) = bench.arguments(1.0, [gradient])["parameters"]
    norms = Reference().slice_norms(parameter, Reference().unit_axes(shape))
    assert parameter.shape == shape
    assert np.all(norms == (1.0 if parameter.size else 0.0))


def test_a_difference_has_both_outcomes() -> None:
    bench = Bench(Reference(), "optax.clip")
    with pytest.raises(Mismatch, match=r"^doubled: gradient 0\[0\] is 2\.0, not 1\.0") as raised:
        expect(bench.expected([[2.0]]), bench.expected([[1.0]]), 4, "doubled")
    assert raised.value.got == Outcome((Array((2.0,), (1,), "float32"),))
    assert raised.value.expected == Outcome((Array((1.0,), (1,), "float32"),))
    assert raised.value.ulps == 2**23


def test_what_is_refused_must_stay_as_it_was() -> None:
    class Spoils(Reference):
        def run(self, operation, gradients, arguments):
            gradients[0][...] = 7
            raise ValueError

    bench = Bench(Spoils(), "optax.clip")
    with pytest.raises(Mismatch, match="was refused, but the gradients were changed: gradient 0"):
        bench.refuses([bench.array([1.0])], bench.arguments(-1.0), "a limit of -1")
    bench = Bench(Reference(), "optax.clip")
    bench.refuses([bench.array([1.0])], bench.arguments(-1.0), "a limit of -1")
    with pytest.raises(Mismatch, match="a limit of 1 was not refused") as raised:
        bench.refuses([bench.array([1.0])], bench.arguments(1.0), "a limit of 1")
    assert raised.value.expected == Outcome(error="a limit of 1")


def test_the_dtype_of_a_norm_is_not_compared() -> None:
    gradient = (Array((1.0,), (1,), "float32"),)
    norms = Array((5.0,), (), "float64"), Array((5.0,), (), "float32")
    expect(Outcome(gradient, norms[0]), Outcome(gradient, norms[1]), 0, "the norm")
    with pytest.raises(Mismatch, match="the norm"):
        expect(Outcome(gradient, Array((5.1,), (), "float64")), Outcome(gradient, norms[1]), 4, "the norm")
    with pytest.raises(Mismatch, match="the norm"):
        expect(Outcome(gradient, None), Outcome(gradient, norms[1]), 4, "the norm")
