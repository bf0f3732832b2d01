"""The ready-made targets of this run's framework: gradclip passes all that it claims; the native behaves as declared."""

from __future__ import annotations

import inspect
import json
import math
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from frameworks.base import Framework
from vectors.command import main as record

from gradclip.commands.cli import main
from gradclip.conformance import Report, check_target, gradclip_target, native_target
from gradclip.conformance.adapted import features_of
from gradclip.conformance.array import COMPLEX, FLOATS, INTEGERS, rounded, spacing
from gradclip.conformance.cases import plan
from gradclip.conformance.target import FEATURES, OPERATIONS, OPTIONS, load_arrays
from gradclip.core.errors import ArgumentError

LAYOUTS = {"transposed", "strided", "expanded"}
#: features that no operation can use, because the framework has no such arrays; gradclip claims all others somewhere
LACKS: dict[str, set[str]] = {
    "numpy": {"sparse", "traced", "differentiable"},
    "torch": set(),
    "tensorflow": {*LAYOUTS, "subnormal", "in place"},
    "paddle": set(),
    "jax": {*LAYOUTS, "sparse", "subnormal", "in place"},
}
NATIVES = {"torch": "torch", "tensorflow": "tensorflow", "paddle": "paddle", "jax": "optax"}


@pytest.fixture(scope="module")
def arrays(backend: Framework) -> Any:
    return load_arrays(backend.name)


def wrong(report: Report) -> list[str]:
    return [f"{result.status} {result.case}: {result.message}" for result in report.results if not result.conformant]


# ---- gradclip ---------------------------------------------------------------------------------------------------------------


def test_gradclip_claims_everything(backend: Framework) -> None:
    claims = gradclip_target(backend.name).claims
    assert claims.keys() == OPERATIONS.keys()
    lacks = LACKS[backend.name] if getattr(backend, "compiles", True) else {*LACKS[backend.name], "traced"}
    assert FEATURES.keys() - set().union(*claims.values()) == lacks
    for operation, features in claims.items():
        assert {*FLOATS, *COMPLEX, *INTEGERS} <= set(features)
        assert ("norm" in features) == OPERATIONS[operation].returns_norm
        options = set(OPERATIONS[operation].arguments[1:]) & FEATURES.keys()
        assert options <= set(features), "an argument of the native is not claimed"


@pytest.mark.accuracy
def test_gradclip_conforms(backend: Framework, pytestconfig: pytest.Config) -> None:
    """Without ``--slow`` each framework gets a part of the cases, its own; JAX compiles for each shape."""
    every = 1 if pytestconfig.getoption("--slow") else {"numpy": 3, "jax": 15}.get(backend.name, 8)
    drawn = [case for case in plan().known if zlib.crc32(f"{backend.name} {case}".encode()) % every == 0]
    report = check_target(gradclip_target(backend.name), select=drawn)
    assert wrong(report) == []
    counts = report.counts()
    assert counts["expected"] == 0
    assert counts["pass"] > 6 * counts["unclaimed"]


# ---- the native -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def native_run(backend: Framework, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """Return the command's exit status and report for the native. Paddle may crash; the native runs in its own process."""
    path = tmp_path_factory.mktemp("native") / "report.json"
    return main(["conformance", f"native:{NATIVES[backend.name]}", "--json", str(path)]), path


@pytest.mark.needs("trains")
def test_a_native_target_claims_each_of_its_operations_and_arguments(backend: Framework) -> None:
    target = native_target(NATIVES[backend.name])
    own = {operation for operation, native in OPERATIONS.items() if native.family == backend.name}
    assert set(target.claims) == own
    for operation, features in target.claims.items():
        native = OPERATIONS[operation]
        function = getattr(sys.modules[native.framework], native.last, None)  # Paddle's and Keras's are elsewhere
        missing = set() if function is None else OPTIONS - inspect.signature(function).parameters.keys()  # of an older version
        assert set(native.arguments[1:]) & FEATURES.keys() <= set(features) | missing
        assert ("norm" in features, "in place" in features) == (native.returns_norm, native.in_place)


@pytest.mark.slow("a changed native; the environment pins its version")
@pytest.mark.needs("trains")  # NumPy has no clip by norm
@pytest.mark.needs("has_recorded_natives")
def test_the_native_conforms_but_for_what_is_declared(backend: Framework, native_run: tuple[int, Path]) -> None:
    status, path = native_run
    assert status == 0
    report = Report.from_json(json.loads(path.read_text(encoding="utf-8")))
    assert wrong(report) == []
    assert report.counts()["expected"] > 0
    assert report.counts()["pass"] > report.counts()["expected"]


@pytest.mark.slow("a changed native; the environment pins its version")
@pytest.mark.needs("trains")
@pytest.mark.needs("has_recorded_natives")
def test_the_recording_holds(backend: Framework, native_run: tuple[int, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The recorded outcomes are what the native does today."""
    _, path = native_run
    assert record(["--check", "--record", NATIVES[backend.name], "--report", str(path)]) == 0, capsys.readouterr().out


def test_there_are_natives_of_frameworks_that_clip_only() -> None:
    with pytest.raises(ArgumentError, match=r"There is no native of this name\.\nReceived: framework='numpy'"):
        native_target("numpy")


# ---- arrays -----------------------------------------------------------------------------------------------------------------


def samples(dtype: str) -> list[Any]:
    if dtype == "bool":
        return [True, False]
    if dtype in INTEGERS:
        greatest = 2**31 - 1 if dtype == "int32" else 2**63 - 1
        return [0, -7, greatest, -greatest - 1]
    part = COMPLEX.get(dtype, dtype)
    reals = [0.0, -0.0, rounded(0.1, part), spacing(0.0, part), -3.5, math.inf, -math.inf, math.nan]
    return [complex(real, 1.5) for real in reals] if dtype in COMPLEX else reals


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, *INTEGERS])
def test_arrays_are_exact(arrays: Any, dtype: str) -> None:
    values = samples(dtype)
    for shape in ([len(values)], [1, len(values), 1]):
        read, found, name = arrays.read(arrays.make(values, shape, dtype))
        assert list(map(repr, read)) == list(map(repr, values))
        assert (list(found), name) == (shape, dtype)
    assert arrays.read(arrays.make(values[:1], [], dtype))[:2] == (values[:1], ())
    assert tuple(arrays.read(arrays.make([], [0, 3], dtype))[1]) == (0, 3)


def test_layouts(backend: Framework, arrays: Any) -> None:
    assert LAYOUTS.isdisjoint(LACKS[backend.name]) == hasattr(arrays, "make_layout")
    for layout in LAYOUTS - LACKS[backend.name]:
        values = [2.0] * 6 if layout == "expanded" else [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        for dtype in FLOATS:
            read, shape, name = arrays.read(arrays.make_layout(values, [2, 3], dtype, layout))
            assert (list(read), list(shape), name) == (values, [2, 3], dtype)


@pytest.mark.needs("has_sparse")
def test_sparse_arrays_are_read_as_what_they_stand_for(backend: Framework, arrays: Any) -> None:
    for dtype in ("float32", "float64"):
        made = arrays.make_sparse([0, 2, 2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [4, 2], dtype)
        assert backend.is_sparse(made)
        read, shape, name = arrays.read(made)
        assert list(read) == [1.0, 2.0, 0.0, 0.0, 8.0, 10.0, 0.0, 0.0]
        assert (tuple(shape), name) == ((4, 2), dtype)


@pytest.mark.needs("trains")
def test_trace_and_derivative(arrays: Any) -> None:
    called = []

    def function(grads: list[Any]) -> list[Any]:
        called.append(len(grads))
        return [grads[0] * grads[1], grads[1] * 2.0]

    made = [arrays.make([3.0, 4.0], [2], "float32"), arrays.make([5.0, -1.0], [2], "float32")]
    traced = [list(arrays.read(array)[0]) for array in arrays.trace(function)(made)]
    assert traced == [[15.0, -4.0], [10.0, -2.0]]
    assert set(called) == {2}
    derivatives = [list(arrays.read(array)[0]) for array in arrays.derivative(function, made)]
    assert derivatives == [[5.0, -1.0], [5.0, 6.0]]
    (first, second) = arrays.derivative(lambda grads: [grads[0] * 1.0], made)
    assert [list(arrays.read(array)[0]) for array in (first, second)] == [[1.0, 1.0], [0.0, 0.0]]


def test_any_arrays_can_be_adapted(arrays: Any) -> None:
    class Few:
        """Two methods are enough: the suite finds the supported dtypes by trying them."""

        def make(self, values: Any, shape: Any, dtype: str) -> Any:
            if dtype != "float32":
                raise TypeError(dtype)
            return arrays.make(values, shape, dtype)

        read = staticmethod(arrays.read)

    features = features_of(Few())
    assert features & {*FLOATS, *COMPLEX, *INTEGERS} == {"float32"}
    assert features.isdisjoint({*LAYOUTS, "sparse", "traced", "differentiable"})
    target = gradclip_target(Few(), name="few")
    report = check_target(target, select=["*/A*", "*/both-sides"])
    assert wrong(report) == []
    assert {result.operation for result in report.results if result.status == "pass"} >= {"optax.clip", "keras.clipnorm"}
