"""What came of one clip, and how far it is from float64."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from gradclip.natives import Native

__all__ = ["ALLOWED", "FIELDS", "FOLDER", "Outcome", "Row", "Table", "Untraced", "outcome", "ulps"]

ALLOWED = 4.0  #: ulp: what a patch release may change, and so what a call may be off
FOLDER = "GRADCLIP_REPLACED"  #: the environment variable with the folder where each process writes its rows
FIELDS = ("norm", "native_norm", "gradient", "native_gradient")
_EVERY = 0.5  #: seconds between two writes of a process: one that is ended has written before


@dataclass(frozen=True)
class Outcome:
    """What a call did: an error, or a norm and gradients, each as float64 with the name of its dtype."""

    error: Exception | None = None
    norm: tuple[np.ndarray, str] | None = None
    grads: Sequence[tuple[np.ndarray, str]] = ()


@dataclass
class Row:
    """The calls of one native: how many, and the largest finite errors in ulp, of dtypes narrower than float64."""

    calls: int = 0
    uncompared: int = 0  #: of tensors without plain numbers: the native made them
    departed: int = 0  #: calls in which the native's formula makes NaN, and gradclip none: one of its departures
    beyond: int = 0  #: other calls whose norm or gradients are more than ``ALLOWED`` off in gradclip
    norm: float = 0.0
    native_norm: float = 0.0
    gradient: float = 0.0
    native_gradient: float = 0.0
    first: str = ""  #: the first call beyond, or departed, in words

    def note(self, ours: Outcome, native: Outcome, exact: Outcome, what: str) -> None:
        """Add a call."""
        self.calls += 1
        if ours.error is not None or exact.error is not None:
            off = 0.0 if (ours.error is None) == (native.error is None) else math.inf
        else:  # the native may lack a kernel for the dtype
            mine, theirs = _distances(ours, exact), (0.0, 0.0) if native.error else _distances(native, exact)
            is_wider = not any(dtype == "float64" for _, dtype in (*ours.grads, *filter(None, [ours.norm])))
            for name, one in zip(FIELDS, (mine[0], theirs[0], mine[1], theirs[1]), strict=True) if is_wider else ():
                setattr(self, name, max(getattr(self, name), one if math.isfinite(one) else 0.0))
            off = max(mine)
        if off > ALLOWED:
            is_departure = _has_nan(exact) and not _has_nan(ours)
            self.departed += is_departure
            self.beyond += not is_departure
            self.first = self.first or f"{what}: {off:.3g} ulp {ours.error or native.error or ''!r}"

    def add(self, other: Row) -> None:
        """Add the calls of another process."""
        for name in ("calls", "uncompared", "departed", "beyond"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in FIELDS:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.first = self.first or other.first


class _Here(threading.local):
    is_inside = False  #: gradclip or a native runs: what these call is theirs


@dataclass
class Table:
    """The rows of this process, by the native's name; it writes them into a folder."""

    folder: Path
    rows: dict[str, Row] = field(default_factory=dict)
    before_write: list[Callable[[], None]] = field(default_factory=list)  #: called at the end of the process

    def __post_init__(self) -> None:
        self._here = _Here()
        self._lock = threading.Lock()
        self._written = 0.0
        atexit.register(self._close)

    @property
    def is_inside(self) -> bool:
        """Whether this thread compares a call."""
        return self._here.is_inside

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What is called here is neither replaced nor counted."""
        self._here.is_inside = True
        try:
            yield
        finally:
            self._here.is_inside = False

    def row(self, name: str) -> Row:
        return self.rows.setdefault(name, Row())

    def skip(self, name: str) -> None:
        """Count a call that could not be compared."""
        with self._lock:
            self.row(name).uncompared += 1

    def note(self, name: str, ours: Outcome, native: Outcome, exact: Outcome, what: str) -> None:
        """Add a call."""
        with self._lock:
            self.row(name).note(ours, native, exact, what)
            if time.monotonic() - self._written > _EVERY:
                self.write()

    def write(self) -> None:
        """Write the rows into the file of this process."""
        self._written = time.monotonic()
        text = json.dumps({name: asdict(row) for name, row in self.rows.items()})
        (self.folder / f"{os.getpid()}.json").write_text(text, encoding="utf-8")

    def _close(self) -> None:
        for function in self.before_write:
            function()
        self.write()


class Untraced:
    """For frameworks whose compiled programs are not compared."""

    def traced(self, native: Native, functions: Any, given: Any, rest: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """The native's own result."""
        return functions[0](given, *rest, **options)


def outcome(call: Callable[[], tuple[Any, Sequence[Any]]], read: Callable[[Any], tuple[np.ndarray, str]]) -> Outcome:
    """The outcome of a call that returns a norm, or None, and gradients."""
    try:
        norm, grads = call()
    except Exception as error:
        return Outcome(error=error)
    return Outcome(norm=None if norm is None else read(norm), grads=[read(x) for x in grads])


def ulps(got: tuple[np.ndarray, str], exact: tuple[np.ndarray, str]) -> float:
    """The largest distance from an exact result, in units in the last place of the dtype that was got.

    >>> import numpy as np
    >>> ulps((np.array([1 + 2.0**-22]), "float32"), (np.array([1.0]), "float64"))
    2.0
    """
    import numpy as np

    (mine, dtype), (want, _) = got, exact
    if mine.shape != want.shape:
        return math.inf
    narrow = np.abs(want).astype("float32" if dtype == "bfloat16" else dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(narrow).astype("float64") * (2.0**16 if dtype == "bfloat16" else 1.0)
        distance = np.abs(mine - want) / unit
    is_same = (mine == want) | (np.isnan(mine) & np.isnan(want)) | (mine == narrow)
    distance = np.where(np.isfinite(mine) & np.isfinite(want) & np.isfinite(unit), distance, math.inf)
    return float(np.where(is_same & ~np.isfinite(distance), 0.0, distance).max(initial=0.0))


def _has_nan(one: Outcome) -> bool:
    return any((x != x).any() for x, _ in (*one.grads, *filter(None, [one.norm])))


def _distances(got: Outcome, exact: Outcome) -> tuple[float, float]:
    """How far a norm and gradients are off, in ulp."""
    norm = 0.0 if got.norm is None or exact.norm is None else ulps(got.norm, exact.norm)
    if len(got.grads) != len(exact.grads):
        return norm, math.inf
    return norm, max((ulps(*pair) for pair in zip(got.grads, exact.grads, strict=True)), default=0.0)
