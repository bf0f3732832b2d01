"""The norms in a log: JSON lines, CSV, a monitor's saved state, TensorBoard's events. The standard library reads them all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gradclip.core.errors import ArgumentError, shown

__all__ = ["LogError", "read_log"]

_KNOWN = ("norm_before", "norm", "grad_norm", "gradient_norm", "total_norm")  # in order of preference
_LARGEST = 1 << 28  #: bytes
Norms = TypeVar("Norms")


class LogError(ArgumentError):
    """A log that cannot be read, or that has no norms."""


def read_log(
    path: str, key: str | None = None, say: Callable[[str], object] = lambda text: None
) -> list[float] | Mapping[str, Any]:
    """The norms in a file, or a monitor's state.

    Args:
        path: of the file, which may be a pipe, or of a folder of TensorBoard's events; ``-`` for standard input.
        key: the key of each line, the column or the tag of the norm; if None, the one that is named like a norm.
        say: called with each file before it is read, if there are several.

    Raises:
        LogError: for a missing or empty log, one without norms, or one with several and no ``key``.
    """
    where = Path(path)
    try:
        if where.is_dir() or "tfevents" in where.name:
            return _numbers_of(_by_tag(_events_in(where) if where.is_dir() else [where], say), key, path)
        text = _text(path)
    except OSError as error:
        raise LogError("The log cannot be read.", f"{shown(str(error.filename or path))}: {error.strerror}") from None
    if not text.strip():
        raise LogError("The log is empty.", shown(path), "record the norm before the clip at every step.")
    return (
        _of_json(text, key, path)
        if text.lstrip()[0] in "{[" or _is_number(text.split(None, 1)[0])
        else _of_csv(text, key, path)
    )


def _events_in(folder: Path) -> list[Path]:
    """TensorBoard's files in a folder. A folder that cannot be read raises, where ``rglob`` would find nothing."""

    def fail(error: OSError) -> None:
        raise error

    found = [Path(inner) / name for inner, _, names in os.walk(folder, onerror=fail) for name in names if "tfevents" in name]
    if not found:
        hint = "name the file, such as norms.jsonl, metrics.csv or monitor.json."
        raise LogError("The folder has no files of TensorBoard's events.", shown(str(folder)), hint)
    return sorted(found)


def _text(path: str) -> str:
    """The text of a file or a pipe; ``-`` is standard input."""
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            raw = file.read(_LARGEST + 1)
    except (FileNotFoundError, ValueError):  # a NUL in the name
        raise LogError("There is no such log.", shown(path)) from None
    if len(raw) > _LARGEST:
        raise LogError("The log is too large.", shown(path), f"the limit is {_LARGEST >> 20} MiB; give every tenth norm.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LogError("The log is not text in UTF-8.", f"{shown(path)}: {error.reason} at byte {error.start}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---- JSON ------------------------------------------------------------------------------------------------------------------


def _of_json(text: str, key: str | None, path: str) -> list[float] | Mapping[str, Any]:
    try:
        whole = _loaded(text, path)
    except json.JSONDecodeError:
        lines = [_line(line, number, path) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    else:
        if isinstance(whole, dict) and {"version", "sections"} <= whole.keys():
            return _without(key, whole, "This log is the state of a monitor, which has no keys.")
        lines = whole if isinstance(whole, list) else [whole]
    if not any(isinstance(line, dict) for line in lines):
        numbers = [_number(x, number, path) for number, x in enumerate(lines, 1)]
        return _without(key, numbers, "This log has numbers only, and no keys.")
    columns: dict[str, list[tuple[int, Any]]] = {}
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict):
            raise LogError("Either all lines are numbers, or all are objects.", _at(number, path, line))
        for name, value in line.items():
            columns.setdefault(name, []).append((number, value))
    return _numbers_of(columns, key, path)


def _without(key: str | None, norms: Norms, why: str) -> Norms:
    if key is not None:
        raise LogError(why, f"--key {shown(key)}", "leave --key out.")
    return norms


def _loaded(text: str, path: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float)
    except RecursionError:
        raise LogError("The log is nested too deeply.", shown(path)) from None


def _float(digits: str) -> float:
    """A number that is written in digits; infinity is not."""
    value = float(digits)
    if math.isinf(value):
        raise LogError("A number of the log does not fit in a float.", shown(digits))
    return value


def _integer(digits: str) -> float:
    """An integer where it is exact as a float, as a monitor's counts are; Python reads no integer of more than 4300 digits."""
    value = _float(digits)
    return int(value) if abs(value) < 1 << 53 else value


def _line(line: str, number: int, path: str) -> Any:
    try:
        return _loaded(line, path)
    except json.JSONDecodeError:
        if _is_number(line):  # nan, inf
            return float(line)
        raise LogError("A line is not JSON.", _at(number, path, line)) from None


def _at(number: int, path: str, value: object) -> str:
    return f"line {number} of {shown(path)}: {shown(value)}"


# ---- CSV -------------------------------------------------------------------------------------------------------------------


def _of_csv(text: str, key: str | None, path: str) -> list[float]:
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise LogError("The log is neither JSON nor CSV.", f"{shown(path)}: {error}") from None
    columns: dict[str, list[tuple[int, Any]]] = {}
    for number, row in enumerate(rows, 2):
        for name, value in row.items():
            if name is not None and value not in (None, ""):  # a logger leaves out missing values
                columns.setdefault(name.strip(), []).append((number, value))
    return _numbers_of(columns, key, path)


# ---- the column ------------------------------------------------------------------------------------------------------------


def _numbers_of(columns: Mapping[str, Sequence[tuple[int, Any]]], key: str | None, path: str) -> list[float]:
    return [_number(x, number, path) for number, x in columns[_chosen(list(columns), key, path)]]


def _chosen(names: list[str], key: str | None, path: str) -> str:
    among = ", ".join(name[:60] for name in names[:12]) or "none"
    if key is not None:
        if key not in names:
            raise LogError("The log has no such key.", f"key={shown(key)}, keys: {among}")
        return key
    for known in _KNOWN:  # "train/grad_norm" too
        for name in names:
            if name.lower().replace("-", "_").rpartition("/")[2] == known:
                return name
    found = [name for name in names if "norm" in name.lower() and "after" not in name.lower()]
    if len(found) == 1:
        return found[0]
    what = "The log has several norms." if found else "The log has no norms."
    raise LogError(what, f"{shown(path)}, keys: {among}", "--key says which one.")


def _number(x: Any, number: int, path: str) -> float:
    if isinstance(x, bool) or not isinstance(x, (int, float, str)) or (isinstance(x, str) and not _is_number(x)):
        raise LogError("A norm must be a number.", _at(number, path, x))
    return _float(x) if isinstance(x, str) and x.strip("+-. ")[:1].isdigit() else float(x)


# ---- TensorBoard -----------------------------------------------------------------------------------------------------------
# Source: the format of TFRecord files (tensorflow.org/tutorials/load_data/tfrecord), and TensorBoard's event.proto,
# summary.proto and tensor.proto: Event.step = 2, Event.summary = 5, Summary.value = 1, Value.tag = 1, Value.simple_value = 2,
# Value.tensor = 8, TensorProto.tensor_content = 4, TensorProto.float_val = 5, TensorProto.double_val = 6.


def _by_tag(files: Sequence[Path], say: Callable[[str], object]) -> dict[str, list[tuple[int, Any]]]:
    """The scalars of each tag, with the step of each, in the order of the steps."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for number, file in enumerate(files, 1):
        if len(files) > 1:
            say(f"reading {file} ({number} of {len(files)}) ...")
        for record in _records(file):
            try:
                for tag, step, scalar in _scalars(record):
                    found.setdefault(tag, []).append((step, scalar))
            except (AttributeError, LookupError, TypeError, ValueError, struct.error):
                raise LogError("This is not a TensorBoard event file, or it is damaged.", shown(str(file))) from None
    return {tag: sorted(values, key=lambda pair: pair[0]) for tag, values in found.items()}


def _scalars(record: bytes) -> Iterator[tuple[str, int, float]]:
    """The tag, the step and the number of each scalar in an event."""
    event = _fields(record)
    step = next((int(x) for x in event.get(2, ())), 0)
    for summary in event.get(5, ()):
        for value in _fields(summary).get(1, ()):
            parts = _fields(value)
            scalar = _scalar(parts)
            if scalar is not None:
                yield parts[1][0].decode(), step, scalar


def _records(file: Path) -> Iterator[bytes]:
    data = file.read_bytes()
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length > len(data):
            return  # the file is still being written
        yield data[at + 12 : at + 12 + length]
        at += 16 + length


def _fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a message of Protocol Buffers, by number: integers for varints, bytes for all else."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        value: Any
        if kind == 0:
            value, at = _varint(message, at)
        else:
            length, at = {1: (8, at), 5: (4, at)}.get(kind) or _varint(message, at)
            value, at = message[at : at + length], at + length
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _scalar(parts: Mapping[int, list[Any]]) -> float | None:
    """The number of a summary's value, stored directly or as a tensor; None if it is not a scalar."""
    if 2 in parts:
        return float(struct.unpack("<f", parts[2][0])[0])
    tensor = _fields(parts[8][0]) if 8 in parts else {}
    for field, size, form in ((4, 4, "<f"), (4, 8, "<d"), (5, 4, "<f"), (6, 8, "<d")):
        if field in tensor and len(tensor[field][0]) == size:
            return float(struct.unpack(form, tensor[field][0])[0])
    return None
