"""The generator: its arithmetic agrees with NumPy's, its formulas with the oracle's, its output with the stored files."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import files, xfails
from vectors.array import Array, array, fill, sparse
from vectors.command import main
from vectors.exact import magnitude, norm, rounded, scaled
from vectors.formulas import RefusedError, call, clipped_by
from vectors.operations import BY_NAME
from vectors.record import differences, kept

from gradclip.conformance.array import FLOATS
from gradclip.conformance.load import SHIPPED

KINDS: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


# ---- the files ----------------------------------------------------------------------------------------------------------


def test_the_files_are_what_the_generator_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out
    assert {path.name for path in files.VECTORS.iterdir()} == {path.name for path in SHIPPED.iterdir()}


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the files to a temporary folder, and let the generator use that."""
    monkeypatch.setattr(files, "VECTORS", tmp_path / "v1")
    monkeypatch.setattr(xfails, "XFAILS", tmp_path / "xfails")
    shutil.copytree(SHIPPED, tmp_path / "v1")
    shutil.copytree(SHIPPED.parents[1] / "xfails", tmp_path / "xfails")
    return tmp_path


def test_a_changed_file_is_found_and_written_anew(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied / "v1" / "keras.clipvalue.json"
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace("0x1p+0", "0x1p+1", 1), encoding="utf-8")
    assert main(["--check"]) == 1
    assert "keras.clipvalue.json is not what python tools/vectors writes" in capsys.readouterr().out
    assert main([]) == 0
    restored, original = (json.loads(text)["vectors"] for text in (path.read_text(encoding="utf-8"), before))
    for vector in original + restored:  # a changed call loses its recording
        vector.pop("native", None)
    assert restored == original


def test_expected_failures_follow_from_the_recordings(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied / "xfails" / "native-torch.json"
    before = path.read_text(encoding="utf-8")
    path.write_text(json.dumps({"torch *": {"torch.clip_grad_norm_/none_kept": "of old"}}), encoding="utf-8")
    assert main(["--check"]) == 1
    assert "native-torch.json is not what" in capsys.readouterr().out
    assert main([]) == 0
    declared = json.loads(path.read_text(encoding="utf-8"))["torch *"]
    assert declared["torch.clip_grad_norm_/E2"] == json.loads(before)["torch *"]["torch.clip_grad_norm_/E2"]
    assert declared["torch.clip_grad_norm_/E2"].startswith("NegativeLimit: ")


# ---- recordings ---------------------------------------------------------------------------------------------------------


def made(*values: str, dtype: str = "float32") -> dict[str, Any]:
    return {"gradients": [{"dtype": dtype, "shape": [len(values)], "values": list(values)}], "norm": None}


@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        ("agrees", "agrees", True),
        ("agrees", "unclaimed", False),
        ("agrees", made("nan"), False),
        (made("0x1p+0", "nan"), made("0x1.00000ep+0", "nan"), True),  # 7 ulp
        (made("0x1p+0"), made("0x1.000014p+0"), False),  # 10 ulp
        (made("0x1p+0"), made("0x1p+0", "0x1p+0"), False),
        (made("0x1p+0"), made("0x1p+0", dtype="float64"), False),
        (made("inf"), made("-inf"), False),
        (made("nan"), made("0x0p+0"), False),
        ({"error": "ValueError"}, {"error": "crashed"}, True),
        ({"error": "ValueError"}, made("nan"), False),
        (made(), {"gradients": [None], "norm": None}, False),
    ],
)
def test_recordings_are_compared_in_ulp(old: Any, new: Any, alike: bool) -> None:
    assert (not list(differences(old, new, "native"))) is alike


def test_of_what_a_native_made_the_first_values_are_kept() -> None:
    outcome = {**made(*["0x1p+0"] * 64), "norm": {"dtype": "float32", "value": "0x1p+3"}}
    assert kept(outcome, "") == {
        "gradients": [{"dtype": "float32", "shape": [64], "values": ["0x1p+0"] * 12, "total": 64}],
        "norm": {"dtype": "float32", "value": "0x1p+3"},
    }
    assert kept({"error": "ValueError: no"}, "raised") == {"error": "ValueError"}
    assert kept(None, "crashed") == {"error": "crashed"}


# ---- exact arithmetic ---------------------------------------------------------------------------------------------------


@given(st.floats(), st.sampled_from(list(KINDS)))
def test_rounds_as_numpy_does(x: float, dtype: str) -> None:
    with np.errstate(all="ignore"):
        want = float(np.array(x).astype(KINDS[dtype]))
    got = rounded(x, dtype)
    assert math.copysign(1, got) == math.copysign(1, want)
    assert got == want or (got != got and want != want)


@pytest.mark.parametrize("dtype", KINDS)
def test_rounds_once(dtype: str) -> None:
    """A number just above the midpoint of two neighbours; float64 cannot represent it."""
    bits = FLOATS[dtype][0]
    middle = 1 + mpmath.mpf(2) ** -bits
    assert rounded(middle, dtype) == 1.0
    assert rounded(middle + mpmath.mpf(2) ** -200, dtype) == 1 + 2.0 ** (1 - bits)
    assert rounded(mpmath.mpf(2) ** 2000, dtype) == math.inf
    assert rounded(-(mpmath.mpf(2) ** -2000), dtype) == 0.0


def test_norms_of_large_and_of_repeated_numbers() -> None:
    assert norm([(3e200, 1), (4e200, 1)], 2.0) == mpmath.sqrt(mpmath.mpf(3e200) ** 2 + mpmath.mpf(4e200) ** 2)
    assert norm([(2.0, 2**26)], 2.0) == 2.0**14
    assert (norm([(3.0, 1), (0.0, 5)], 0), norm([(3.0, 1), (0.0, 1)], -1), norm([], 2.0)) == (1, 0, 0)
    assert mpmath.isnan(norm([(3.0, 1)], math.nan))
    assert magnitude(3e-200 + 4e-200j) == mpmath.sqrt(mpmath.mpf(3e-200) ** 2 + mpmath.mpf(4e-200) ** 2)


def test_products_keep_signs_of_zeros_and_spread_nan() -> None:
    assert math.copysign(1, scaled(-2.0, mpmath.mpf(0), "float32")) == -1
    assert math.isnan(scaled(math.inf, mpmath.mpf(0), "float32"))
    assert math.isnan(scaled(1.0, mpmath.nan, "float32"))
    assert scaled(1 + 2j, mpmath.mpf(0.5), "complex64") == 0.5 + 1j


def test_duplicate_rows_are_added() -> None:
    assert sparse([1, 1], [[1.0, 2.0], [3.0, 4.0]], 2).dense() == array([[0.0, 0.0], [4.0, 6.0]])


# ---- the formulas, implemented twice ------------------------------------------------------------------------------------


def operation_of(case: oracle.Case) -> str | None:
    names = {
        "clip_grad_by_norm": "ClipGradByNorm",
        "clip_grad_by_global_norm": "ClipGradByGlobalNorm",
        "clip_grad_by_value": "ClipGradByValue",
    }
    name = f"{case.dialect}.{names.get(case.function, case.function)}"
    return next((found for found in (name, f"{name}_") if found in BY_NAME), None)


SHARED = [(limit_name, case) for limit_name, case in oracle.CASES if operation_of(case)]


@pytest.mark.parametrize("limit", [0.5, 100.0])
@pytest.mark.parametrize(("limit_name", "case"), SHARED, ids=[str(case) for _, case in SHARED])
def test_the_formulas_are_the_oracle_s(limit_name: str, case: oracle.Case, limit: float) -> None:
    rng = np.random.default_rng(3)
    shapes = [(4, 3), (4,), (4, 2, 2)]
    gradients, parameters = ([rng.normal(size=shape) for shape in shapes] for _ in range(2))
    extra = (parameters,) if "params" in case.needs else ()
    want, _ = case.formula(gradients, limit, *extra)
    given_to = call(
        [array(g.tolist(), "float64") for g in gradients],
        {limit_name: limit, **case.arguments},
        [array(p.tolist(), "float64") for p in parameters],
    )
    operation = BY_NAME[operation_of(case) or ""]
    got, _ = clipped_by(operation.formula, given_to)
    for mine, theirs in zip(got, want, strict=True):
        assert mine is not None
        assert theirs is not None
        assert mine.shape == theirs.shape
        assert oracle.ulps(np.array(mine.values).reshape(mine.shape), theirs, "float64") <= 16


def test_all_operations_but_those_of_one_oracle_case_are_compared() -> None:
    assert {operation_of(case) for _, case in SHARED} == BY_NAME.keys()


def test_one_value_many_times_is_clipped_as_so_many_values() -> None:
    for name, operation in BY_NAME.items():
        shape = (5, 2) if "per_example" in name else (10,)
        limits = {"clip_value_min": -0.5, "clip_value_max": 0.5} if not operation.limit else {operation.limit: 0.5}
        results = []
        for gradient in (fill(3.0, shape), Array("float32", shape, (3.0,) * 10)):
            (clipped,), _ = clipped_by(operation.formula, call([gradient], limits, [Array("float32", shape, (1.0,) * 10)]))
            assert clipped is not None
            results.append([x for value, times in clipped.cells for x in [value] * times])
        assert results[0] == results[1], name


def test_an_error_is_of_the_call() -> None:
    with pytest.raises(RefusedError, match="limit"):
        clipped_by(BY_NAME["torch.clip_grad_norm_"].formula, call([array([1.0])], {"max_norm": -1.0}, None))
    with pytest.raises(RefusedError, match="axes"):
        clipped_by(BY_NAME["tensorflow.clip_by_norm"].formula, call([array([1.0])], {"clip_norm": 1.0, "axes": 3}, None))
