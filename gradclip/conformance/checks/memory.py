"""The memory that a clip writes: in place or not, as claimed; nothing shared, and nothing left half done."""

from __future__ import annotations

from typing import Any

from gradclip.conformance.checks.bench import Bench, expect, require
from gradclip.conformance.checks.registry import check
from gradclip.conformance.compare import Outcome
from gradclip.natives import Applied

GRADIENTS = ([3.0, -4.0], [0.25, 0.5])


@check(
    "The caller's own gradients are clipped.",
    training="The optimizer steps with gradients that were never clipped, because the caller relies on its own arrays.",
    needs=("float32", "in place"),
)
def in_place(bench: Bench) -> None:
    for values in GRADIENTS:
        array = bench.array(values)
        clipped, _ = bench.call([array], bench.arguments(1.0, [array]))
        expect(bench.outcome([array]), bench.outcome(clipped), 0, "the input after the call")
        expect(bench.outcome([array]), Outcome(bench.exact([values], 1.0).gradients), 4, "the input after the call")


@check(
    "The caller's gradients stay unchanged.",
    training="Gradients that are kept for accumulation, logging or a second clip are changed behind the caller's back.",
    needs=("float32", "functional"),
)
def functional(bench: Bench) -> None:
    for limit in (1.0, 1e4):
        for values in GRADIENTS:
            array = bench.array(values)
            before = bench.outcome([array])
            bench.call([array], bench.arguments(limit, [array]))
            expect(bench.outcome([array]), before, 0, f"the input after the call, limit {limit}")


@check(
    "No two results share memory, and no result shares an input's unless clipped in place; immutable arrays may share.",
    training="Writing to one gradient (noise, decay, the next accumulation) changes another.",
    needs=("float32", "several"),
    # an optimizer only reads the results of these, so an unclipped gradient may be returned itself
    of=lambda formula: formula.native.applied is not Applied.SLOT or formula.native.in_place,
)
def no_aliasing(bench: Bench) -> None:
    for limit in (1.0, 1e4):
        arrays = [bench.array(values) for values in ([3.0, -4.0], [0.25, 0.5], [3.0, -4.0])]
        clipped, _ = bench.call(arrays, bench.arguments(limit, arrays))
        for i, array in enumerate(clipped):
            own = arrays[i] if "in place" in bench.claims else None
            others = [*clipped[:i], *clipped[i + 1 :], *(x for x in arrays if x is not own)]
            before = bench.outcome(others)
            if _overwritten(array):
                expect(bench.outcome(others), before, 0, f"the other arrays after result {i} was overwritten, limit {limit}")


def _overwritten(array: Any) -> bool:
    """Write to every element, if that can be done."""
    try:
        array[...] = 77.0
    except Exception:  # frameworks raise various exceptions for an immutable array
        return False
    return True


@check(
    "A call that fails because of one gradient leaves all the others as they were.",
    training="Half of the gradients are clipped when the step is caught and tried again: they are clipped twice.",
    needs=("float32", "several"),
)
def failed_call(bench: Bench) -> None:
    arrays = [bench.array([3.0, -4.0]), object()]
    bench.refuses(arrays, bench.arguments(1.0, arrays), "an object that is not a gradient")
    require(len(arrays) == 2, "the caller's list was changed")
