"""gradclip's vector files match the schema, are complete, and every number in them is representable in its dtype."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from vectors import ranks, xfails
from vectors.cases import CASES, ORDERED
from vectors.departed import CASES as DEPARTED
from vectors.flags import DEPARTURE_FLAGS, FLAGS
from vectors.operations import BY_NAME, OPERATIONS
from vectors.record import NATIVES

from gradclip.conformance import load_vectors
from gradclip.conformance.array import COMPLEX, FLOATS, number_from_json, number_to_json, rounded
from gradclip.conformance.checks import CHECKS
from gradclip.conformance.load import SHIPPED
from gradclip.conformance.target import FEATURES
from gradclip.natives import OPERATIONS as CATALOGUE

FILES = {file.operation: file for file in load_vectors()}
NORMS = [operation.name for operation in OPERATIONS if not operation.by_value]
VALUES = [operation.name for operation in OPERATIONS if operation.by_value]
every_operation = pytest.mark.parametrize("name", CATALOGUE)

#: listed departures that no vector can show: they need other calls, or more than one
NOT_OUTCOMES = re.compile(
    r"of a dict|derivative|foreach|clipping nan|axes \[0\]|to static|share a gradient|nn.Embedding|two replicas|legacy"
)


def test_there_is_one_file_for_each_operation() -> None:
    assert FILES.keys() == CATALOGUE.keys() == BY_NAME.keys()
    assert {path.stem for path in SHIPPED.glob("*.json")} == {*CATALOGUE, "schema"}


@every_operation
def test_a_file_matches_the_schema(name: str) -> None:
    assert load_vectors(SHIPPED / f"{name}.json", validate=True) == (FILES[name],)


def test_the_schema_is_one() -> None:
    schema = json.loads((SHIPPED / "schema.json").read_text(encoding="utf-8"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_all_of_it_is_small() -> None:
    files = list(SHIPPED.glob("*.json"))
    assert sum(path.stat().st_size for path in files) < 130_000 * len(files)


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_function_has_enough_vectors(name: str) -> None:
    assert len({vector.id for vector in FILES[name].vectors}) == len(FILES[name].vectors) >= 60


@pytest.mark.parametrize("name", VALUES)
def test_a_value_function_has_enough_vectors(name: str) -> None:
    assert len({vector.id for vector in FILES[name].vectors}) == len(FILES[name].vectors) >= 25


@pytest.mark.parametrize("name", NORMS)
def test_every_recorded_case_is_there(name: str) -> None:
    ordered = "norm_type" in CATALOGUE[name].arguments
    wanted = {case.name for case in CASES if ordered or case.natives != ORDERED}
    assert wanted - {vector.heading for vector in FILES[name].vectors} == set()


def listed() -> Iterator[Any]:
    """Yield each native function of an operation, with each of its departures and the cases that these list."""
    natives = {native: operation.name for operation in OPERATIONS for native in operation.natives}
    for flag, departure in DEPARTURE_FLAGS.items():
        for native, cases in DEPARTED[departure.key].items():
            if native in natives:
                yield pytest.param(natives[native], flag, cases, id=f"{native} {flag}")


@pytest.mark.parametrize(("name", "flag", "cases"), list(listed()))
def test_every_departure_has_flagged_vectors(name: str, flag: str, cases: tuple[str, ...]) -> None:
    flagged = {vector.heading for vector in FILES[name].vectors if flag in vector.flags}
    assert [case for case in cases if case not in flagged and not NOT_OUTCOMES.search(case)] == []


def test_every_departure_is_a_flag_but_for_a_check_and_what_no_vector_holds() -> None:
    used = {flag for file in FILES.values() for vector in file.vectors for flag in vector.flags}
    assert DEPARTURE_FLAGS.keys() - used == {"Derivative", "LegacyPrograms", "SummedFirst"}
    assert used == FLAGS.keys()


@every_operation
def test_the_flags_of_a_file_are_those_of_its_vectors(name: str) -> None:
    assert set(FILES[name].flags) == {flag for vector in FILES[name].vectors for flag in vector.flags}


@every_operation
def test_needs_are_features(name: str) -> None:
    for vector in FILES[name].vectors:
        assert [need for need in vector.needs if need not in FEATURES] == []
        dtypes = {gradient["dtype"] for gradient in vector.json["gradients"] if gradient and "dtype" in gradient}
        assert dtypes <= set(vector.needs)
        assert ("several" in vector.needs) == (len(vector.gradients) > 1)


@every_operation
def test_every_native_was_recorded_on_every_vector(name: str) -> None:
    recorders = BY_NAME[name].recorders
    assert tuple(FILES[name].recorded_with) == recorders
    assert all(re.fullmatch(r"\d+\.\d+.*", v) for versions in FILES[name].recorded_with.values() for v in versions.values())
    assert [vector.id for vector in FILES[name].vectors if tuple(vector.native) != recorders] == []


@every_operation
def test_a_native_agrees_or_an_expected_failure_says_why_not(name: str) -> None:
    for native in FILES[name].recorded_with:
        framework, _, backend = native.partition("@")
        path = SHIPPED.parents[1] / "xfails" / f"native-{framework}.json"
        declared = json.loads(path.read_text(encoding="utf-8"))[f"{framework} * on {backend}" if backend else f"{framework} *"]
        differing = {vector.id for vector in FILES[name].vectors if vector.native[native] not in ("agrees", "unclaimed")}
        assert differing == {case for case in declared if case in {vector.id for vector in FILES[name].vectors}}


@pytest.mark.parametrize("native", [native for native in NATIVES if native != ranks.NATIVE])
def test_a_check_that_a_native_fails_is_declared_with_a_cause(native: str) -> None:
    failed = {
        case: why for case, why in xfails.stored(native)[xfails.pattern_of(native)].items() if case.split("/")[1] in CHECKS
    }
    assert failed
    assert {case: xfails.check_reason(native, case) for case in failed} == failed  # and the reason is not one run's output


def literals(name: str) -> Iterator[tuple[str, Any]]:
    """Yield every number of a file as it is written, with its dtype."""

    def walk(json: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(json, dict) and "dtype" in json:
            yield from ((json["dtype"], number) for number in json.get("values", ()))
            yield from ((json["dtype"], json[key]) for key in ("fill", "value") if key in json)
        elif isinstance(json, dict):
            if "float" in json:
                yield "float64", json["float"]
            yield from (found for value in json.values() for found in walk(value))
        elif isinstance(json, list):
            yield from (found for value in json for found in walk(value))

    for vector in FILES[name].vectors:
        yield from walk(vector.json)


@every_operation
def test_numbers_are_written_exactly_and_are_of_their_dtype(name: str) -> None:
    found = list(literals(name))
    assert len(found) > 100
    for dtype, literal in found:
        number = number_from_json(literal)
        assert number_to_json(number) == literal
        for part in (number.real, number.imag) if isinstance(number, complex) else (number,):
            real = COMPLEX.get(dtype, dtype)
            assert part != part or real not in FLOATS or rounded(part, real) == part


def test_an_unchanged_gradient_is_compared_to_the_bit() -> None:
    vector = next(vector for vector in FILES["tensorflow.clip_by_norm"].vectors if vector.heading == "B4")
    assert vector.ulp == 0
    assert vector.expected[0].gradients[0] == vector.gradients[0]


def test_what_no_formula_says_comes_from_a_native_or_is_a_convention() -> None:
    sources = {vector.id: vector.source for file in FILES.values() for vector in file.vectors}
    assert sources["torch.clip_grad_norm_/A1"] == {"kind": "closed form"}
    assert sources["torch.clip_grad_norm_/E2"] == {"kind": "convention"}  # torch reverses the sign of the gradients
    assert sources["paddle.clip_grad_norm_/J-3"]["kind"] == sources["torch.clip_grad_norm_/K1"]["kind"] == "recorded"
    assert sources["torch.clip_grad_norm_/K1"]["version"] == FILES["torch.clip_grad_norm_"].recorded_with["torch"]["torch"]


def test_where_devices_differ_several_outcomes_are_permitted() -> None:
    permitted = [vector for file in FILES.values() for vector in file.vectors if vector.json["result"] == "permitted"]
    assert len(permitted) > 20
    assert all(len(vector.expected) > 1 for vector in permitted)
    assert {"bounds-crossed", "subnormal-result"} <= {vector.json["id"] for vector in permitted}


def test_a_file_is_read_by_anyone() -> None:
    """A reader needs only json and a parser of C99's hexadecimal floats."""
    file = json.loads((SHIPPED / "torch.clip_grad_norm_.json").read_text(encoding="utf-8"))
    vector = next(vector for vector in file["vectors"] if vector["id"] == "A1")
    (gradient,), (outcome,) = vector["gradients"], vector["expected"]
    assert [float.fromhex(x) for x in gradient["values"]] == [3.0, 4.0]
    assert float.fromhex(vector["arguments"]["max_norm"]["float"]) == 1.0
    assert float.fromhex(outcome["norm"]["value"]) == 5.0
    assert [round(float.fromhex(x), 6) for x in outcome["gradients"][0]["values"]] == [0.6, 0.8]
