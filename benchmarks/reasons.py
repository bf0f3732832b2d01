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
        "A right result in bfloat16 is computed in float32 and rounded once: a program converts the whole tensor, which takes "
        "twice the memory, and back. (Paddle has no native for bfloat16.)",
        ("paddle/*/*/*/bfloat16/static", "tensorflow/global_norm/*/*/bfloat16/function"),
    ),
    Reason(
        "Paddle's kernel reads, scales and writes a tensor in one operation, with a norm that is 21 ulp off at 1,024 elements "
        "and 129 at 100,352. A right norm must be known before the tensor is scaled.",
        ("paddle/ClipGradByNorm/*/*/*/eager",),
    ),
    Reason(
        "In a program, a right norm takes several operations: a conversion or products of rows, their sum, and a check that no "
        "square overflowed. The native is one operation. For small gradients the number of operations decides: one that makes "
        "a tensor takes 10 us, one in place 4. The native takes 26 ms for LoRA's 256 gradients; multiplying them by known "
        "numbers takes 20 ms, and the fastest norm, a wrong one, 14 ms. The native takes 0.26 ms for the MLP's six; "
        "the products alone take 0.25, wrong float32 sums alone 0.28.",
        ("paddle/*Norm/*/*/*/static",),
    ),
    Reason(
        "A factor that is right in float32 needs a conversion each way. These alone take longer than the native's one product "
        "in bfloat16, by a factor of 8 bits. The only operation that takes both dtypes, a normalisation, fails where oneDNN "
        "has no more than AVX2.",
        ("tensorflow/*norm/*/*/bfloat16/function",),
    ),
    Reason(
        "XLA writes the terms of a sum to memory unless there are at most 32. With 16 terms in a float64 sum, it writes an "
        "eighth of the gradients' bytes, a quarter in half precision, and twice as much for one large tensor. Sums in two "
        "steps would write a hundredth, in twice the time.",
        ("tensorflow/global_norm/*/*/*/xla",),
    ),
    Reason(
        "TensorFlow's operations for bounds turn subnormal numbers into 0; keeping them costs a comparison and a selection.",
        ("tensorflow/*clip*value/*/*/*/function", "tensorflow/*clip*value/*/*/*/xla"),
    ),
    Reason(
        "XLA computes more than a few thousand numbers in a thread of its own, and waking that thread takes longest: a clip by "
        "value of the MLP's largest tensor takes 117 us, and 36 us if the thread is still awake. The native's six computations "
        "wake it while Python prepares the next one. gradclip checks all gradients first, and wakes it with its only "
        "computation.",
        ("jax/clip/mlp/clipped/*/eager", "jax/keras.clipvalue/mlp/clipped/*/eager"),
    ),
    Reason(
        "XLA compiles both sides to the same program.",
        ("jax/clip/*/*/*/jit", "jax/clip/*/*/*/donated", "jax/keras.clipvalue/*/*/*/jit"),
    ),
    Reason(
        "Inductor makes the same loops for both sides. TorchDynamo checks its guards in each call: 283 here, 231 for the "
        "native.",
        ("torch/clip_grad_value_/*/*/*/compile",),
    ),
    Reason(
        "A right norm in half precision is summed in float64. The call of the compiled loops takes 35 us. The native's whole "
        "program, which sums in float32, takes 40 us; Inductor's own conversion to float64 is even slower.",
        ("torch/*/mlp/*/bfloat16/compile",),
    ),
    Reason(
        "A training step has just written the gradients into the caches of both cores, where the native's two threads find "
        "them. For a loop of 11 us, waking a second thread takes longer.",
        ("torch/clip_grad_value_/mlp/clipped/float32/eager",),
    ),
    Reason(
        "A compiled program cannot read a value, so it contains the check that no square overflowed or vanished, and a branch "
        "to the careful norm. In each call XLA does some work for every sum, even in a branch that is not taken. A branch "
        "alone takes 1.1 of the 11 ms for ResNet-50's gradients, each clipped by its own norm.",
        ("tensorflow/*/function", "jax/*/jit", "jax/*/donated", "torch/*/compile"),
    ),
    Reason(
        "Both sides read and write the same memory once.",
        ("*/ClipGradByValue/*/clipped", "*/clip*value/tensor/clipped", "jax/*clip*/tensor/clipped/*/eager"),
    ),
    Reason(
        "A large tensor that needs no clip is returned itself. The small ones, 6 % of these bytes, are bounded in one compiled "
        "call, which makes new arrays: asking each of them first would take longer. (These cases are 2.9 to 4.4 times faster.)",
        ("jax/clip/resnet50/unclipped/*/eager", "jax/keras.clipvalue/resnet50/unclipped/*/eager"),
    ),
    Reason(
        "Half of the time goes to eight checks for each of 2,000 gradients, whether the loops can clip it; the native checks "
        "nothing.",
        ("torch/clip_grad_value_/vectors/*/*/eager",),
    ),
    Reason(
        "A few microseconds go to finding the backend, the checks and making a rule, where the whole clip takes tens of "
        "microseconds.",
        ("numpy/*/mlp", "paddle/*/mlp", "tensorflow/*/mlp", "jax/*/mlp", "torch/*/mlp", "tensorflow/clip_by_value/*/*/*/eager"),
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
    """Case -> its remarks, and whether they are no more than the noise of the measurement."""
    cases = {case["key"]: case for case in outcome.compared}
    found = {case["key"]: ([_ratio(case)], bool(case["high"] >= 1)) for case in outcome.behind}
    for miss in missed(outcome, FLOORS):
        said, _ = found.get(miss.name, ([], False))
        if miss.floor.quantity != "ratio":
            said = [*said, f"{miss.got}, {miss.bound}"]
        elif miss.name in cases:
            said = [*(said or [_ratio(cases[miss.name])]), miss.bound]
        else:
            said = [miss.got]  # it failed
        found[miss.name] = said, False
    return found


def _ratio(case: dict[str, Any]) -> str:
    return f"{case['ratio']:.2f} ({case['low']:.2f} to {case['high']:.2f})"
