"""Problems of a vector file: by its schema, and beyond the schema."""

from __future__ import annotations

import functools
import importlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradclip.conformance.array import holds
from gradclip.conformance.target import FEATURES, OPERATIONS, RANK_FEATURES

__all__ = ["SHIPPED", "validators", "wrong_with_file", "wrong_with_vector"]

#: the folder of gradclip's own vectors
SHIPPED = Path(__file__).with_name("vectors") / "v1"
_MOST_ELEMENTS = 1 << 26  #: the most elements of an array, twice the suite's largest


@functools.cache
def validators() -> tuple[Any, Any]:
    """Validators of a file without its vectors, and of one vector, so that a message names the vector."""
    try:
        jsonschema = importlib.import_module("jsonschema")
    except ModuleNotFoundError as error:
        hint = "pip install 'gradclip[conformance]'"
        raise ModuleNotFoundError(
            f"The check of vector files against their schema needs jsonschema.\nHint: {hint}", name=error.name
        ) from error
    schema = json.loads((SHIPPED / "schema.json").read_text(encoding="utf-8"))
    outer = {**schema, "properties": {**schema["properties"], "vectors": {"type": "array", "minItems": 1}}}
    inner = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": "#/$defs/vector"}
    return jsonschema.Draft202012Validator(outer), jsonschema.Draft202012Validator(inner)


def _broken(validator: Any, content: Any) -> Iterator[str]:
    best_match = importlib.import_module("jsonschema").exceptions.best_match
    for error in validator.iter_errors(content):
        cause = best_match([error])
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in cause.absolute_path).lstrip(".")
        text = cause.message if len(cause.message) <= 300 else cause.message[:300] + "..."
        yield f"{place}: {text}" if place else text


def wrong_with_file(content: Any, schemas: tuple[Any, Any] | None) -> Iterator[str]:
    if schemas is not None:
        yield from (found := list(_broken(schemas[0], content)))
        if found:
            return
    if content["operation"] not in OPERATIONS:
        yield f"There is no operation {content['operation']!r}; there are {', '.join(OPERATIONS)}."


def wrong_with_vector(vector: Any, content: Any, schemas: tuple[Any, Any] | None) -> Iterator[str]:
    if schemas is None:
        return
    yield from (found := list(_broken(schemas[1], vector)))
    if found:
        return
    unknown = [flag for flag in vector["flags"] if flag not in content["flags"]]
    if unknown:
        yield f"flags: {', '.join(unknown)} is not explained in the file."
    if unknown := [need for need in vector["needs"] if need not in FEATURES and need not in RANK_FEATURES]:
        yield f"needs: there is no feature {', '.join(unknown)}."
    strange = sorted(vector["arguments"].keys() - set(OPERATIONS[content["operation"]].arguments))
    if strange:
        yield f"arguments: {content['operation']} has no argument {', '.join(strange)}."
    for place, gradient in enumerate(vector["gradients"]):
        if gradient is not None and "same_as" in gradient:
            other = gradient["same_as"]
            if other >= place or not isinstance(vector["gradients"][other], dict) or "same_as" in vector["gradients"][other]:
                yield f"gradients[{place}]: same_as must be the place of an earlier array."
    if "parameters" in vector and len(vector["parameters"]) != len(vector["gradients"]):
        yield "parameters: there must be one for each gradient."
    if "shardings" in vector:
        yield from _wrong_with_shardings(vector)
    for where, array in _arrays(vector):
        yield from (f"{where}: {message}" for message in _wrong_with_array(array))


def _wrong_with_shardings(vector: Mapping[str, Any]) -> Iterator[str]:
    mesh, ranks = vector["mesh"], math.prod(vector["mesh"])
    if len(vector["shardings"]) != len(vector["gradients"]):
        yield "shardings: there must be one for each gradient."
        return
    for place, (sharding, gradient) in enumerate(zip(vector["shardings"], vector["gradients"], strict=True)):
        if len(sharding["placements"]) != len(mesh):
            yield f"shardings[{place}]: there must be one placement for each axis of the mesh."
        if any(axis >= len(mesh) for axis in sharding.get("axes", ())) or any(
            rank >= ranks for rank in sharding.get("missing", ())
        ):
            yield f"shardings[{place}]: the mesh has {len(mesh)} axes and {ranks} ranks."
        if sharding["how"] == "group" and sum(kind[0] in "SZ" for kind in sharding["placements"]) != 1:
            yield f"shardings[{place}]: a group holds the shards along one axis of the mesh."
        if gradient is None and len(set(sharding.get("missing", ()))) < ranks:
            yield f"shardings[{place}]: null is a gradient that all ranks lack."
        if gradient is not None and any(
            kind[0] in "SZ" and int(kind[1]) >= len(gradient["shape"]) for kind in sharding["placements"]
        ):
            yield f"shardings[{place}]: it is divided along an axis that it does not have."


def _arrays(vector: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every array of a vector, with its place."""
    groups: list[tuple[str, Sequence[Any]]] = [("gradients", vector["gradients"]), ("parameters", vector.get("parameters", ()))]
    groups += [(f"expected[{i}].gradients", outcome.get("gradients", ())) for i, outcome in enumerate(vector["expected"])]
    for name, arrays in groups:
        yield from ((f"{name}[{i}]", array) for i, array in enumerate(arrays) if array is not None and "dtype" in array)
    for name, value in vector["arguments"].items():
        if value is not None and "array" in value:
            yield f"arguments.{name}", value["array"]
        elif value is not None and ("float" in value or "numpy" in value):
            number = value["float"] if "float" in value else value["value"]
            yield f"arguments.{name}", {"dtype": value.get("numpy", "float64"), "shape": [], "values": [number]}
    norms = [(f"expected[{i}].norm", outcome.get("norm")) for i, outcome in enumerate(vector["expected"])]
    yield from ((name, {**norm, "shape": [], "values": [norm["value"]]}) for name, norm in norms if norm is not None)


def _wrong_with_array(array: Mapping[str, Any]) -> Iterator[str]:
    shape, rows = array["shape"], array.get("rows")
    if rows is not None and (not shape or any(row >= shape[0] for row in rows)):
        yield f"rows {rows} do not fit the shape {shape}."
        return
    size = math.prod(shape) if rows is None else len(rows) * math.prod(shape[1:])
    if max(size, math.prod(shape)) > _MOST_ELEMENTS:
        yield f"the shape {shape} has {math.prod(shape):,} elements; at most {_MOST_ELEMENTS:,} are read."
        return
    values = array.get("values", ())
    if "values" in array and len(values) != size:
        yield f"{len(values)} values do not fill the shape {shape}{'' if rows is None else f' in {len(rows)} rows'}: {size} do."
    strange = [value for value in ((array["fill"],) if "fill" in array else values) if not holds(array["dtype"], value)]
    yield from (f"{value!r} is not a {array['dtype']}." for value in strange[:1])
