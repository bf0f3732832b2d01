from collections.abc import Callable
from typing import Any

_Run = Callable[[object], object] | None

def squares(
    pieces: list[Any], sizes: list[int] | None, kind: int, run: _Run = None, large: int = 0, part: int = 0
) -> list[float]: ...
def multiply(
    targets: list[Any],
    sources: list[Any],
    sizes: list[int] | None,
    kind: int,
    factor: float | list[float],
    run: _Run = None,
    large: int = 0,
    part: int = 0,
) -> None: ...
def clamp(
    targets: list[Any],
    sources: list[Any],
    sizes: list[int] | None,
    kind: int,
    lower: float,
    upper: float,
    run: _Run = None,
    large: int = 0,
    part: int = 0,
) -> None: ...
def fit(
    pieces: list[Any],
    sizes: list[int] | None,
    kind: int,
    lower: float,
    upper: float,
    run: _Run = None,
    large: int = 0,
    part: int = 0,
) -> list[bool]: ...
def copy(
    targets: list[Any],
    sources: list[Any],
    sizes: list[int] | None,
    kind: int,
    run: _Run = None,
    large: int = 0,
    part: int = 0,
) -> None: ...
def take(work: object) -> None: ...
