"""The compiled loops alone: every float16 and bfloat16 number, every length near a block, and invalid arguments."""

from __future__ import annotations

import array
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradclip.backends.host import _kernels, kernels

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}
HALVES = [name for name in DTYPES if name.endswith("16")]
LENGTHS = [0, 1, 7, 31, 32, 33, 63, 64, 65, 1000, (1 << 11) - 1, 1 << 11, (1 << 11) + 1, 3 * (1 << 11) + 5]
EVERY = np.arange(1 << 16, dtype=np.uint16)  # the bits of every float16
AROUND_ZERO = [(0.0, 1.0), (-0.0, 1.0), (-1.0, -0.0), (-1.0, 0.0), (0.0, 0.0), (-1e-30, 1e30), (-9.0, 9.0)]


def buffer(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind == "f" else x.view(np.uint16)


def product(x: np.ndarray, factor: float) -> np.ndarray:
    made = np.empty_like(x)
    _kernels.multiply([buffer(made)], [buffer(x)], [x.size], kernels.KINDS[str(x.dtype)], factor)
    return made


def between(x: np.ndarray, lower: float, upper: float) -> np.ndarray:
    made = np.empty_like(x)
    _kernels.clamp([buffer(made)], [buffer(x)], [x.size], kernels.KINDS[str(x.dtype)], lower, upper)
    return made


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Bit for bit equal, except for the payload of a NaN."""
    are_nan = np.isnan(want.astype(np.float64))
    bits = f"u{got.itemsize}"
    return bool(
        np.isnan(got.astype(np.float64))[are_nan].all() and np.array_equal(got.view(bits)[~are_nan], want.view(bits)[~are_nan])
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_known(dtype: str) -> None:
    assert dtype in kernels.KINDS


@pytest.mark.parametrize("times", [1, 32, 33])
@pytest.mark.parametrize("dtype", HALVES)
def test_the_square_of_every_half(dtype: str, times: int) -> None:
    """Each alone, and as many as the kernel adds in parallel."""
    values = EVERY.view(DTYPES[dtype])
    found = _kernels.squares(list(np.repeat(EVERY[:, None], times, axis=1)), None, kernels.KINDS[dtype])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(found, times * values.astype(np.float64) ** 2, equal_nan=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("factor", [1.0, 1 / 3, 0.999, 2.0**-8, 1e-4, 1e-30, 3.7, 0.0, math.inf, math.nan])
@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_times_a_number(dtype: str, factor: float) -> None:
    """All together, and each alone."""
    values = EVERY.view(DTYPES[dtype])
    want = (values.astype(np.float32) * np.float32(factor)).astype(values.dtype)
    alone = np.empty_like(EVERY)
    _kernels.multiply(list(alone[:, None]), list(EVERY[:, None]), None, kernels.KINDS[dtype], factor)
    assert same(product(values, factor), want)
    assert same(alone.view(values.dtype), want)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", HALVES)
def test_every_float32_near_a_tie_is_rounded_to_even(dtype: str) -> None:
    """Products of halves near 1 and factors near them give the midpoints between two halves, and the midpoints' neighbours."""
    one = np.ones(1, DTYPES[dtype])
    values = EVERY.view(DTYPES[dtype]).astype(np.float32)
    ties = (values[:-1] / 2 + values[1:] / 2)[np.isfinite(values[:-1]) & np.isfinite(values[1:])]
    numbers = [ties, np.nextafter(ties, np.float32(math.inf)), np.nextafter(ties, np.float32(-math.inf))]
    for number in np.concatenate(numbers)[:: 97 if dtype == "float16" else 193].tolist():
        assert same(product(one, number), np.float32([number]).astype(one.dtype)), number


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_length(dtype: str, size: int) -> None:
    """The norms match exact sums; the loops neither count nor write elements beyond the end."""
    rng = np.random.default_rng(size)
    memory = rng.normal(size=size + 40).astype(DTYPES[dtype])
    x, rest = memory[:size], memory[size:].copy()
    (found,) = _kernels.squares([buffer(x)], [size], kernels.KINDS[dtype])
    exact = math.fsum(float(v) ** 2 for v in x) if dtype != "float64" else float(sum(Fraction(float(v)) ** 2 for v in x))
    assert abs(found - exact) <= 32 * np.spacing(exact)
    wide = np.float64 if dtype == "float64" else np.float32
    assert same(product(x, 0.3), (x.astype(wide) * wide(0.3)).astype(x.dtype))
    assert same(between(x, -0.5, 0.25), np.clip(x.astype(wide), wide(-0.5), wide(0.25)).astype(x.dtype))
    _kernels.multiply([buffer(x)], [buffer(x)], [size], kernels.KINDS[dtype], 0.0)
    assert not x.any()
    assert memory[size:].tobytes() == rest.tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "bounds", [*AROUND_ZERO, (-1.0, 1.0), (-math.inf, 0.5), (0.1, 0.2), (-0.1, math.inf), (2.0, 2.0)], ids=str
)
@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_between_bounds(dtype: str, bounds: tuple[float, float]) -> None:
    """As in float32: no zero is below the other, and a clipped element equals the bound."""
    x = EVERY.view(DTYPES[dtype])
    wide, (lower, upper) = x.astype(np.float32), np.array(bounds, np.float32)
    want = np.where(wide > upper, upper, np.where(wide < lower, lower, wide)).astype(DTYPES[dtype])
    assert same(between(x, *bounds), want)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # ARM's casts report signalling NaNs
@pytest.mark.parametrize(
    "bounds",
    [(0.0, 1.0), (-0.0, -0.0), (-1.0, -0.0), (-1e-30, 1e30), (0.1, 0.2), (-math.inf, 0.5), (-math.inf, math.inf)],
    ids=str,
)
@pytest.mark.parametrize("dtype", HALVES)
def test_which_halves_fit(dtype: str, bounds: tuple[float, float]) -> None:
    """A half fits if it is between the bounds in float32 and not NaN; ``clamp`` would not change it."""
    with np.errstate(over="ignore"):
        lower, upper = np.array(bounds, DTYPES[dtype]).astype(np.float32)
    wide = EVERY.view(DTYPES[dtype]).astype(np.float32)
    found = _kernels.fit([EVERY[i : i + 1] for i in range(EVERY.size)], None, kernels.KINDS[dtype], *bounds)
    assert np.array_equal(found, (wide >= lower) & (wide <= upper))


@pytest.mark.parametrize("size", LENGTHS[1:])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_that_does_not_fit_wherever_it_is(dtype: str, size: int) -> None:
    kind, x = kernels.KINDS[dtype], np.random.default_rng(size).uniform(-0.5, 0.25, size).astype(DTYPES[dtype])
    for place in {0, size // 2, size - 1}:
        for value in (0.25, -0.5, 0.26, -0.6, math.nan, -math.inf, math.inf):
            fits = -0.5 <= value <= 0.25
            kept, x[place] = x[place], value
            for sharing in ((), (three, 1, 1000)):
                assert _kernels.fit([buffer(x)] * 2, None, kind, -0.5, 0.25, *sharing) == [fits, fits], (place, value)
                assert _kernels.fit([buffer(x)], None, kind, -math.inf, math.inf, *sharing) == [not math.isnan(value)]
            x[place] = kept


def test_what_fits_bounds_of_0_and_of_no_elements() -> None:
    for values, fits in (([-0.0, 0.0], True), ([-0.0, 5e-324], False), ([], True)):
        assert _kernels.fit([np.array(values)], None, kernels.KINDS["float64"], 0.0, 0.0) == [fits]


@pytest.mark.parametrize("offset", range(1, 8))
@pytest.mark.parametrize("dtype", DTYPES)
def test_at_any_address(dtype: str, offset: int) -> None:
    """Also at addresses that elements usually do not have; the loops write nothing before or after."""
    kind, x = kernels.KINDS[dtype], np.random.default_rng(0).normal(size=2500).astype(DTYPES[dtype])
    memory = np.full(x.nbytes + 16, 7, np.uint8)
    end = offset + x.nbytes
    memory[offset:end] = x.view(np.uint8)
    address, sizes = [memory.ctypes.data + offset], [x.size]
    assert _kernels.squares(address, sizes, kind) == _kernels.squares([buffer(x)], sizes, kind)
    assert _kernels.fit(address, sizes, kind, -9.0, 9.0) == [True]
    _kernels.multiply(address, address, sizes, kind, 0.3)
    assert memory[offset:end].tobytes() == product(x, 0.3).tobytes()
    _kernels.clamp(address, address, sizes, kind, -0.1, 0.2)
    assert memory[offset:end].tobytes() == between(product(x, 0.3), -0.1, 0.2).tobytes()
    assert {*memory[:offset].tolist(), *memory[end:].tolist()} == {7}


@pytest.mark.parametrize("most", [0.25, 100.0], ids=["everywhere", "in-places"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_in_place_of_what_is_large(dtype: str, most: float) -> None:
    """The results are the same whether many elements exceed the bounds or few."""
    size = (1 << 21) // np.dtype(DTYPES[dtype]).itemsize + 37
    x = np.random.default_rng(0).normal(size=size).astype(DTYPES[dtype])
    x[[0, 511, 512, size // 2, size - 38, size - 1]] = [200, -200, math.inf, -math.inf, math.nan, 300]
    want = np.concatenate([between(x[i : i + 1000], -50, most) for i in range(0, size, 1000)])
    for sharing in ((), (three, 1, 1001)):
        made = x.copy()
        _kernels.clamp([buffer(made)], [buffer(made)], None, kernels.KINDS[dtype], -50, most, *sharing)
        assert same(made, want)


def three() -> int:
    return 3


@pytest.mark.parametrize("part", [1, 7, 1000, 1 << 20])
def test_what_several_threads_take_parts_of(part: int) -> None:
    sources = [np.arange(size, dtype=np.float32) for size in (0, 1, 999, 1000, 1001, 5000, 0)]
    made = [np.zeros_like(x) for x in sources]
    assert _kernels.squares(sources, None, 0, three, 1, part) == [float((x.astype(np.float64) ** 2).sum()) for x in sources]
    _kernels.multiply(made, sources, None, 0, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], three, 1, part)
    assert all(np.array_equal(got, x * (i + 1)) for i, (got, x) in enumerate(zip(made, sources, strict=True)))
    _kernels.clamp(made, sources, None, 0, 3.0, 900.0, three, 1, part)
    assert all(np.array_equal(got, x.clip(3, 900)) for got, x in zip(made, sources, strict=True))
    assert _kernels.fit(made, None, 0, 3.0, 900.0, three, 1, part) == [True] * 7
    assert _kernels.fit(made, None, 0, 3.0, 899.0, three, 1, part) == [True] * 2 + [False] * 4 + [True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_is_the_same_for_any_number_of_threads(dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(1 << 20) + 77).astype(DTYPES[dtype])
    (alone,) = _kernels.squares([buffer(x)], None, kernels.KINDS[dtype])
    for count in (-1, 0, 1, 2, 3, 5, 1 << 40):  # less than one means one, more than there are parts means that many
        assert _kernels.squares([buffer(x)], None, kernels.KINDS[dtype], lambda: count, 1, kernels.SHARES[1]) == [alone]  # noqa: B023


def test_little_work_is_done_here() -> None:
    x = np.ones(9, np.float32)
    assert _kernels.squares([x], None, 0, pytest.fail, 10, 2) == [9.0]


def test_memory_that_would_be_written_twice_is_refused() -> None:
    """Also if it overlaps only partly; nothing is written. Into new memory the same sources may overlap."""
    x = np.ones(1000, np.float32)
    for other in (x, x[5:], x[:1]):
        both = [other, np.zeros(0, np.float32), x]
        with pytest.raises(ValueError, match="Pieces that are written in place overlap"):
            _kernels.multiply(both, both, None, 0, 0.5, pytest.fail, 1, 10)
        assert x.sum() == 1000
        made = [np.zeros_like(piece) for piece in both]
        _kernels.multiply(made, both, None, 0, 0.5, three, 1, 10)
        assert [float(piece.sum()) for piece in made] == [piece.size * 0.5 for piece in both]


def test_who_is_asked_for_the_number_of_threads_fails() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    x = array.array("f", [3.0] * 9)
    for threads, error in ((interrupted, KeyboardInterrupt), (lambda: "2", TypeError), (2, TypeError)):
        with pytest.raises(error):
            _kernels.multiply([x], [x], None, 0, 0.5, threads, 9, 2)
        assert x.tolist() == [3.0] * len(x)
        x.append(3.0)  # nothing refers to it any more


@pytest.mark.parametrize("value", [1e30, 1e-30, 1e-45, 3.4e38])
def test_squares_that_float32_lacks(value: float) -> None:
    x = np.full(50_000, value, np.float32)
    (found,) = _kernels.squares([x], [x.size], 0)
    assert found == pytest.approx(50_000 * float(x[0]) ** 2, rel=1e-13)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("place", [0, 40, (1 << 14) + 3, 49_999])
def test_what_is_not_finite(place: int, value: float) -> None:
    for dtype in DTYPES.values():
        x = np.ones(50_000, dtype)
        x[place] = value
        (found,) = _kernels.squares([buffer(x)], [x.size], kernels.KINDS[str(x.dtype)])
        assert math.isnan(found) if math.isnan(value) else found == math.inf


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_nan_as_a_factor(dtype: str) -> None:
    for bits in (0x7FF8000000000000, 0xFFFFFFFFFFFFFFFF, 0x7FF0000000000001):
        factor = float(np.uint64(bits).view(np.float64))
        assert np.isnan(product(np.ones(40, DTYPES[dtype]), factor).astype(np.float64)).all()


def test_several_pieces_each_with_its_factor_by_address_and_without_numpy() -> None:
    pieces = [array.array("f", [3.0, 4.0]), array.array("f"), array.array("f", [5.0])]
    addresses, sizes = [piece.buffer_info()[0] for piece in pieces], [2, 0, 1]
    assert _kernels.squares(addresses, sizes, 0) == _kernels.squares(pieces, sizes, 0) == [25.0, 0.0, 25.0]
    _kernels.multiply(addresses, addresses, sizes, 0, [2.0, 9.0, 0.5])
    _kernels.clamp(pieces[:1], pieces[:1], sizes[:1], 0, 7.0, 7.5)
    assert [piece.tolist() for piece in pieces] == [[7.0, 7.5], [], [2.5]]


X = np.ones(4, np.float32)
READ_ONLY = np.ones(4, np.float32)
READ_ONLY.flags.writeable = False
WRONG: list[tuple[Any, ...]] = [
    (_kernels.squares, (X,), [4], 0),
    (_kernels.squares, [X], [4], 4),
    (_kernels.squares, [X], [4], -1),
    (_kernels.squares, [X], [4, 4], 0),
    (_kernels.squares, [X], [5], 0),
    (_kernels.squares, [X], [4], 1),
    (_kernels.squares, [X], ["4"], 0),
    (_kernels.squares, [X[::2]], [2], 0),
    (_kernels.squares, [X, object()], [4, 4], 0),
    (_kernels.squares, [1 << 70], [4], 0),
    (_kernels.squares, [0], [4], 0),
    (_kernels.squares, [X], [-4], 0),
    (_kernels.squares, [X.ctypes.data], [-1], 0),
    (_kernels.squares, [X], [(1 << 62) + 4], 0),
    (_kernels.multiply, [READ_ONLY], [X], [4], 0, 0.5),
    (_kernels.multiply, [X], [X[:3]], [4], 0, 0.5),
    (_kernels.multiply, [X, X], [X], [4], 0, 0.5),
    (_kernels.multiply, [X.reshape(2, 2)], [X.reshape(2, 2).T], [4], 0, 0.5),
    (_kernels.multiply, [X], [X], [4], 0, []),
    (_kernels.multiply, [X], [X], [4], 0, "0.5"),
    (_kernels.multiply, [X], [X], [4], 0, ["0.5"]),
    (_kernels.multiply, [X, X], [X], None, 0, 0.5),
    (_kernels.multiply, [X], [X[:3]], None, 0, 0.5),
    (_kernels.squares, [X.astype(np.float64)], None, 0),
    (_kernels.squares, [X], 4, 0),
    (_kernels.squares, [X.ctypes.data], None, 0),
    (_kernels.squares, [X], None, 0, None, 1, 0),
    (_kernels.clamp, [READ_ONLY], [X], [4], 0, 0.0, 0.5),
    (_kernels.clamp, [X], [X], [4], 0, "0", 0.5),
    (_kernels.fit, [X], [5], 0, 0.0, 0.5),
    (_kernels.fit, [X], [4], 0, 0.0, "1"),
]


@pytest.mark.parametrize("call", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_what_is_no_gradient_is_refused_and_nothing_written(call: tuple[Any, ...]) -> None:
    loop, *arguments = call
    with pytest.raises((TypeError, ValueError, OverflowError, BufferError, IndexError)):
        loop(*arguments)
    assert X.tolist() == READ_ONLY.tolist() == [1.0] * 4
    memoryview(X).release()  # nothing refers to it any more
