"""The report lists slower cases under their reasons, and says which ones nobody has explained."""

from __future__ import annotations

from benchmark_command.outcomes import case, outcome

from benchmarks.outcome import Outcome
from benchmarks.reasons import LEVEL, NOT_EXPLAINED, Reason, not_ahead

CLIP = "torch/clip_grad_norm_/tensor/unclipped/float32/eager"
COMPILED = "torch/clip_grad_norm_/mlp/clipped/float32/compile"
GLOBAL = "numpy/clip_by_global_norm/mlp/clipped/float32/eager"
VALUE = "numpy/clip_by_value/mlp/clipped/float32/eager"
KNOWN = (Reason("It compiles to the same.", ("*/compile",)), Reason("Never.", ("torch", "jax/*")))


def listed(found: Outcome, *reasons: Reason) -> dict[str, list[str]]:
    """Return the lines under each reason, in this order."""
    blocks = not_ahead(found, reasons).split("\n\n")
    return dict(zip((why.strip("*") for why in blocks[::2]), (block.splitlines() for block in blocks[1::2]), strict=True))


def test_the_first_reason_that_fits_and_what_has_none_comes_before_it() -> None:
    found = listed(outcome(case(CLIP, 0.5), case(COMPILED, 0.5), case(VALUE, 0.8)), *KNOWN)
    assert found == {
        NOT_EXPLAINED: [
            f"- `{VALUE}`: 0.80 (0.79 to 0.81); at least 0.9 (no eager case is slower)",
            "- `2 cases`: 0.63, at least 3 (geometric mean of the eager cases)",
            "- `1 cases`: 0.50, at least 1.1 (geometric mean of the compiled cases)",
        ],
        "It compiles to the same.": [f"- `{COMPILED}`: 0.50 (0.49 to 0.51); at least 0.85 (no compiled case is slower)"],
        "Never.": [f"- `{CLIP}`: 0.50 (0.49 to 0.51); at least 0.9 (no eager case is slower)"],
    }
    assert next(iter(found)) == NOT_EXPLAINED


def test_what_the_noise_explains() -> None:
    level, below = case(VALUE, 0.97, high=1.01), case(GLOBAL, 0.97, high=0.99)
    found = listed(outcome(level, below, case(CLIP, 1e6)))
    assert [line[: line.index(":")] for line in found[LEVEL]] == [f"- `{VALUE}`"]
    assert [line[: line.index(":")] for line in found[NOT_EXPLAINED]] == [f"- `{GLOBAL}`"]


def test_failures_are_listed_and_nothing_is_said_of_what_is_ahead() -> None:
    found = listed(outcome(case(CLIP, 4.0), case(COMPILED, failures={"gradclip": "ValueError: x"})))
    assert found == {NOT_EXPLAINED: [f"- `{COMPILED}`: gradclip: ValueError: x"]}
    assert not_ahead(outcome(case(CLIP, 4.0))) == "In no case."
