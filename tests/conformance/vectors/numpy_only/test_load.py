"""Vector files are decoded, and broken ones raise errors that say why."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launched import TIME_LIMIT

from gradclip.conformance import Array, load_vectors
from gradclip.conformance.load import SHIPPED, NumpyNumber, SameAs, Vector, VectorFileError
from gradclip.natives import OPERATIONS

Json = dict[str, Any]
ONE = {"dtype": "float32", "shape": [2], "values": ["0x1.8p+1", "-0x0p+0"]}
GOOD: Json = {
    "schema": "schema.json",
    "version": "1.2.3",
    "operation": "optax.clip_by_global_norm",
    "formula": "g",
    "documentation": "https://optax.readthedocs.io",
    "recorded_with": {},
    "flags": {"Other": {"explanation": "it holds", "training": "nothing"}},
    "vectors": [
        {
            "id": name,
            "comment": "one",
            "heading": None,
            "flags": ["Other"],
            "needs": ["float32"],
            "gradients": [ONE],
            "arguments": {"max_norm": {"float": "0x1p+3"}},
            "result": "required",
            "expected": [{"gradients": [ONE], "norm": None}],
            "ulp": 0,
            "source": {"kind": "closed form"},
        }
        for name in ("first", "second")
    ],
}


def written(folder: Path, file: Json) -> Path:
    path = folder / "mine.json"
    path.write_text(json.dumps(file))
    return path


def test_a_users_file(tmp_path: Path) -> None:
    (file,) = load_vectors(written(tmp_path, GOOD))
    assert (file.operation, file.version, file.flags["Other"].training) == ("optax.clip_by_global_norm", "1.2.3", "nothing")
    first, second = file.vectors
    assert (first.id, second.id) == ("optax.clip_by_global_norm/first", "optax.clip_by_global_norm/second")
    assert first.gradients == (Array((3.0, -0.0), (2,), "float32"),)
    assert (first.arguments, first.needs, first.ulp, first.iterator) == ({"max_norm": 8.0}, ("float32",), 0, False)
    assert first.expected[0].gradients == first.gradients
    assert first.json["result"] == "required"
    assert first.parameters is None
    assert load_vectors(tmp_path) == (file,)  # the folder loads too


def vector(**fields: Any) -> Vector:
    return Vector("optax.clip_by_global_norm", {**GOOD["vectors"][0], **fields})


def test_arguments_of_every_kind() -> None:
    given = {
        "a": {"float": "-inf"},
        "b": {"int": 3},
        "c": {"bool": True},
        "d": {"string": "inf"},
        "e": {"ints": [0, -1]},
        "f": None,
        "g": {"array": {"dtype": "float64", "shape": [], "values": ["0x1p-1"]}},
        "h": {"numpy": "float64", "value": "0x1p-1"},
    }
    arguments = vector(arguments=given).arguments
    assert list(arguments.values())[:6] == [-math.inf, 3, True, "inf", [0, -1], None]
    assert arguments["g"] == Array((0.5,), (), "float64")
    assert arguments["h"] == NumpyNumber("float64", 0.5)


def test_gradients_of_every_kind() -> None:
    filled = {"dtype": "complex64", "shape": [2, 2], "fill": ["0x1p+0", "nan"]}
    rows = {"dtype": "float32", "shape": [3, 1], "rows": [2, 2], "values": ["0x1p+0", "0x1p+1"]}
    loaded = vector(gradients=[None, filled, {"same_as": 1}, rows]).gradients
    assert loaded[0] is None
    assert isinstance(loaded[1], Array)
    assert len(loaded[1].values) == 4
    assert loaded[2] == SameAs(1)
    assert loaded[3] == Array((1.0, 2.0), (3, 1), "float32", None, (2, 2))


Break = Callable[[Json], None]


def at(*path: Any, value: Any) -> Break:
    """Replace the value at a path in the second vector."""

    def change(file: Json) -> None:
        target = file["vectors"][1]
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


ARRAY = ("gradients", 0)
BROKEN: dict[str, tuple[Break, str]] = {
    "a number that is no hexadecimal literal": (at(*ARRAY, "values", value=["3.0", "nan"]), "3.0"),
    "a number for a literal": (at(*ARRAY, "values", value=[3.0, 4.0]), "3.0"),
    "too few values": (at(*ARRAY, "values", value=["nan"]), "gradients[0]: 1 values do not fill the shape [2]: 2 do."),
    "an integer among floats": (at(*ARRAY, "values", value=["nan", 1]), "gradients[0]: 1 is not a float32."),
    "a truth value among floats": (at(*ARRAY, "values", value=["nan", True]), "gradients[0]: True is not a float32."),
    "an unknown dtype": (at(*ARRAY, "dtype", value="float8"), "'float8'"),
    "an unknown layout": (at(*ARRAY, "layout", value="curly"), "'curly'"),
    "no outcome": (at("expected", value=[]), "expected"),
    "two outcomes where one is required": (at("expected", value=[{"error": "limit"}, {"error": "dtype"}]), "expected"),
    "one outcome where several are permitted": (at("result", value="permitted"), "expected"),
    "an unknown result": (at("result", value="maybe"), "result: 'maybe'"),
    "a negative tolerance": (at("ulp", value=-1), "ulp: -1 is less than the minimum of 0"),
    "an id with a space": (at("id", value="a b"), "id: 'a b' does not match"),
    "an id twice": (at("id", value="first"), "Another vector of this file has this id."),
    "an unknown field": (at("comments", value="x"), "'comments' was unexpected"),
    "a flag that is not explained": (at("flags", value=["Other", "Strange"]), "flags: Strange is not explained in the file."),
    "an unknown argument": (at("arguments", "min_norm", value={"int": 1}), "has no argument min_norm."),
    "an argument of an unknown kind": (at("arguments", "max_norm", value={"number": 1}), "arguments.max_norm"),
    "the same as nothing": (at("gradients", value=[{"same_as": 0}]), "gradients[0]: same_as must be the place of an earlier"),
    "rows beyond the shape": (at(*ARRAY, "rows", value=[0, 7]), "gradients[0]: rows [0, 7] do not fit the shape [2]."),
    "a number between those of the dtype": (at(*ARRAY, "values", value=["nan", "0x1.0000001p+0"]), "p+0' is not a float32."),
    "a number beyond the dtype": (
        at(*ARRAY, "values", value=["nan", "0x1p+128"]),
        "gradients[0]: '0x1p+128' is not a float32.",
    ),
    "a limit beyond every dtype": (
        at("arguments", "max_norm", "float", value="0x1p+2000"),
        "max_norm: '0x1p+2000' is not a float64.",
    ),
    "a norm beyond the dtype": (
        at("expected", 0, "norm", value={"dtype": "float16", "value": "0x1p+16"}),
        "expected[0].norm: '0x1p+16' is not a float16.",
    ),
    "an unknown feature": (at("needs", value=["float32", "float99"]), "needs: there is no feature float99."),
    "too few parameters": (at("parameters", value=[]), "parameters: there must be one for each gradient."),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_vector_is_named_and_the_others_are_read(tmp_path: Path, how: str) -> None:
    change, message = BROKEN[how]
    file = json.loads(json.dumps(GOOD))
    change(file)
    path = written(tmp_path, file)
    with pytest.raises(VectorFileError) as raised:
        load_vectors(path)
    problems = raised.value.problems
    assert {(problem.path, problem.vector) for problem in problems} == {(str(path), file["vectors"][1]["id"])}
    assert any(message in problem.message for problem in problems)
    assert all(str(problem) in str(raised.value) for problem in problems)
    assert [loaded.id for loaded in raised.value.files[0].vectors] == ["optax.clip_by_global_norm/first"]


def test_a_vector_without_an_id_is_numbered(tmp_path: Path) -> None:
    file = json.loads(json.dumps(GOOD))
    del file["vectors"][1]["id"]
    with pytest.raises(VectorFileError, match="vector number 1: 'id' is a required property"):
        load_vectors(written(tmp_path, file))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"operation": "optax.clip_everything"},
            "There is no operation 'optax.clip_everything'; there are torch.clip_grad_norm_",
        ),
        ({"version": "1.0"}, "version: '1.0' does not match"),
        ({"vectors": []}, "vectors: [] should be non-empty"),
        ({"flags": {"Other": {"explanation": "it holds"}}}, "flags.Other: 'training' is a required property"),
        ({"author": "me"}, "('author' was unexpected)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_broken_file_is_named(tmp_path: Path, change: Json, message: str) -> None:
    path = written(tmp_path, {**GOOD, **change})
    with pytest.raises(VectorFileError) as raised:
        load_vectors(path)
    (problem,) = raised.value.problems
    assert (problem.path, problem.vector) == (str(path), None)
    assert message in problem.message
    assert raised.value.files == ()


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(VectorFileError, match=r"There are no vector files \(\*\.json\) in this folder\."):
        load_vectors(tmp_path)
    with pytest.raises(VectorFileError, match="It cannot be read: No such file or directory"):
        load_vectors(tmp_path / "none.json")
    path = tmp_path / "some.json"
    path.write_text("{,}")
    with pytest.raises(VectorFileError, match=r"some\.json: It is not JSON: "):
        load_vectors(path)
    path.write_text("[" * 100_000)
    with pytest.raises(VectorFileError, match=r"some\.json: It is not JSON: "):
        load_vectors(path)
    path.write_text("[]")
    with pytest.raises(VectorFileError, match=r"\[\] is not of type 'object'"):
        load_vectors(path)


def test_one_broken_file_of_several(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    (tmp_path / "broken.json").write_text("")
    with pytest.raises(VectorFileError) as raised:
        load_vectors(tmp_path)
    assert [problem.path for problem in raised.value.problems] == [str(tmp_path / "broken.json")]
    assert len(raised.value.files) == 1


def test_many_problems_are_counted(tmp_path: Path) -> None:
    vectors = [{**GOOD["vectors"][0], "id": f"v{i}", "ulp": "four"} for i in range(30)]
    with pytest.raises(VectorFileError, match="and 10 more") as raised:
        load_vectors(written(tmp_path, {**GOOD, "vectors": vectors}))
    assert len(raised.value.problems) == 30
    assert str(raised.value).endswith("Hint: the schema is gradclip/conformance/vectors/v1/schema.json.")


def test_without_jsonschema_only_what_gradclip_comes_with_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    code = f"""
import sys
sys.modules["jsonschema"] = None
from gradclip.conformance.load import SHIPPED, load_vectors
print(len(load_vectors() + load_vectors(SHIPPED / "ranks")))
try:
    load_vectors({str(path)!r})
except ModuleNotFoundError as error:
    print(error)
print("numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=TIME_LIMIT)
    count, what, hint, imported = done.stdout.splitlines()
    assert (int(count), imported) == (len(OPERATIONS) + 1, "False")
    assert what == "The check of vector files against their schema needs jsonschema."
    assert hint == "Hint: pip install 'gradclip[conformance]'"


def test_what_gradclip_comes_with_lies_in_the_package() -> None:
    assert (SHIPPED / "schema.json").exists()
    assert SHIPPED.parts[-4:] == ("gradclip", "conformance", "vectors", "v1")
