from typing import Any

_Sizes = list[int] | None

# ``shared``: a function that returns the number of threads for large work, the size that counts as large, the size of its
# parts, and the address of OpenMP's function
def squares(pieces: list[Any], sizes: _Sizes, kind: int, *shared: Any) -> list[float]: ...
def fit(pieces: list[Any], sizes: _Sizes, kind: int, lower: float, upper: float, *shared: Any) -> list[bool]: ...
def multiply(
    targets: list[Any], sources: list[Any], sizes: _Sizes, kind: int, factor: float | list[float], *shared: Any
) -> None: ...
def clamp(
    targets: list[Any], sources: list[Any], sizes: _Sizes, kind: int, lower: float, upper: float, *shared: Any
) -> None: ...
