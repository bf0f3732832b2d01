"""Why a case is behind its native or below a floor, as data, and the list of those cases under their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.case import matches
from benchmarks.floors import FLOORS, missed
from benchmarks.outcome import Outcome

__all__ = ["LEVEL", "NOT_EXPLAINED", "REASONS", "Reason", "not_ahead"]

LEVEL = "Level with the native: the interval of the ratio reaches 1."
NOT_EXPLAINED = "Not explained."


@dataclass(frozen=True)
class Reason:
    """Why some cases are not ahead."""

    why: str  #: a sentence, in Markdown
    only: tuple[str, ...]  #: patterns of cases


#: the first that fits a case is its reason
REASONS: tuple[Reason, ...] = (
    Reason(
        "torch adds up one running sum a lane, and rounds each norm of half precision: tens of ulp at 100,000 elements. "
        "Sums of rows of 256, made float32 first, are within 4, and cost 1.2 to 2 times as much where a cache holds the "
        "gradients.",
        ("torch/get_total_norm", "torch/clip_grad_norm_/*/*/bfloat16", "torch/clip_grad_norm_/lora"),
    ),
    Reason(
        "Each of many tensors is asked whether it may be written before the first one is, and is then clamped by a call "
        "of its own.",
        ("torch/clip_grad_value_/vectors", "torch/clip_grad_value_/mlp"),
    ),
    Reason(
        "Paddle's kernel reads, scales and writes a tensor in one operation, with a norm that is 21 ulp off at 1,024 "
        "elements and 129 at 100,352; a right one has to be known before the tensor is scaled.",
        ("paddle/ClipGradByNorm/*/*/*/eager",),
    ),
    Reason(
        "Of few small gradients a program's time is that of its operations, some 5 us each. An exact norm is a cast, a "
        "sum and a check that no square overflowed where the native is one operation.",
        ("paddle/*/static",),
    ),
    Reason(
        "TensorFlow's minimum and maximum make 0 of subnormal numbers; to keep them costs a comparison and a selection.",
        ("tensorflow/clip_by_value/*/function", "tensorflow/keras.clipvalue/*/function", "tensorflow/clip_by_value/*/xla"),
    ),
    Reason(
        "Nobody may look at a value here, so the check that no square overflowed or vanished is part of the program, and "
        "a branch to the careful norm; the norm is used twice, by the check and by the coefficient, which is one more "
        "fusion a gradient.",
        ("tensorflow/*/function", "tensorflow/*/xla", "jax/*/jit", "jax/*/donated", "torch/*/compile"),
    ),
    Reason(
        "A few microseconds of finding the backend, checking and making a rule, for gradients of which the whole clip "
        "takes tens.",
        ("numpy/*/mlp", "paddle/*/mlp", "tensorflow/*/mlp", "jax/*/mlp", "torch/*/mlp"),
    ),
)


def not_ahead(outcome: Outcome, reasons: tuple[Reason, ...] = REASONS) -> str:
    """The cases behind the native, or below a floor, under their reasons, in Markdown; those without one come first."""
    groups: dict[str, list[str]] = {why: [] for why in (NOT_EXPLAINED, *(reason.why for reason in reasons), LEVEL)}
    for name, (said, level) in _found(outcome).items():
        why = next((reason.why for reason in reasons if matches(name, reason.only)), LEVEL if level else NOT_EXPLAINED)
        groups[why].append(f"- `{name}`: {'; '.join(said)}")
    parts = ["\n".join((f"**{why}**\n", *lines)) for why, lines in groups.items() if lines]
    return "\n\n".join(parts) or "In no case."


def _found(outcome: Outcome) -> dict[str, tuple[list[str], bool]]:
    """By name what there is to say, and whether it is no more than the noise of the measurement."""
    cases = {case["key"]: case for case in outcome.compared}
    found = {case["key"]: ([_ratio(case)], bool(case["high"] >= 1)) for case in outcome.behind}
    for miss in missed(outcome, FLOORS):
        said, _ = found.get(miss.name, ([], False))
        if miss.floor.quantity == "ratio" and miss.name in cases:
            said = [*(said or [_ratio(cases[miss.name])]), miss.bound]
        else:
            said = [*said, f"{miss.got}, {miss.bound}"]
        found[miss.name] = said, False
    return found


def _ratio(case: dict[str, Any]) -> str:
    return f"{case['ratio']:.2f} ({case['low']:.2f} to {case['high']:.2f})"
