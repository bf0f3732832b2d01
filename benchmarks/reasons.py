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
        "Almost half of the cases are compiled ones, where the compiler makes much the same loops of both sides and the floor "
        "is 1: their mean is 1.3, that of the eager ones 5.4.",
        ("* cases",),
    ),
    Reason(
        "gradclip takes what the machine needs to move the bytes, or nearly that, as the multiples of the limit show. The "
        "native is nearer to that than the floor supposes where its tensors fit the cache one by one.",
        (
            "numpy/clip_grad_norm_/resnet50",
            "numpy/clip_grad_norm_/gpt2",
            "paddle/ClipGradByNorm/resnet50/unclipped/*/eager",
            "paddle/ClipGradByNorm/gpt2/unclipped/*/eager",
        ),
    ),
    Reason(
        "The limit was measured some seconds before, on a machine whose memory is up to 1.7 times as fast in some minutes as "
        "in others. In another run these were 1.01 and 1.18 of it.",
        ("torch/clip_grad_norm_/gpt2/*/float32/eager",),
    ),
    Reason(
        "The loops take as long as for one array of the size, 3.7 ms. The other millisecond goes to Python, and to code and "
        "objects that 100 MB of gradients have driven out of the caches: 0.3 to have 161 gradients of their parameters, 0.4 to "
        "ask what each is and where, 0.25 to make a tensor of the norm, which takes 6 us where all that is in the cache.",
        ("paddle/ClipGradByGlobalNorm/resnet50/*/float32/eager", "paddle/clip_grad_norm_/resnet50/*/float32/eager"),
    ),
    Reason(
        "What is right in bfloat16 is computed in float32 and rounded once: a program converts a whole tensor, which is "
        "twice as much memory, and back. (Of Paddle there is no native for it.)",
        ("paddle/*/*/*/bfloat16/static", "tensorflow/global_norm/*/*/bfloat16/function"),
    ),
    Reason(
        "Paddle's kernel reads, scales and writes a tensor in one operation, with a norm that is 21 ulp off at 1,024 "
        "elements and 129 at 100,352; a right one has to be known before the tensor is scaled.",
        ("paddle/ClipGradByNorm/*/*/*/eager",),
    ),
    Reason(
        "A right norm in a program is a conversion or products of rows, their sum and a check that no square overflowed, "
        "each an operation of its own, where the native is one; and of small gradients the time is that of the operations: "
        "10 us for one that makes a tensor, 4 in place. LoRA's 256 take the native 26 ms; to multiply them by known numbers "
        "takes 20, and the quickest norm, a wrong one, 14.",
        ("paddle/*Norm/*/*/*/static",),
    ),
    Reason(
        "A factor that is right in float32 takes a conversion each way, which alone take longer than the native's one "
        "product of bfloat16, by a factor of 8 bits. The one operation that takes both, a normalisation, fails where oneDNN "
        "has no more than AVX2.",
        ("tensorflow/*norm/*/*/bfloat16/function",),
    ),
    Reason(
        "XLA writes to memory what it sums, unless a sum has at most 32 numbers. With 16 to a float64 sum an eighth of the "
        "gradients is written, of halves a quarter, of one large tensor twice that; summed in two steps it would be a "
        "hundredth, in twice the time.",
        ("tensorflow/global_norm/*/*/*/xla",),
    ),
    Reason(
        "TensorFlow's operations for bounds make 0 of subnormal numbers; to keep them costs a comparison and a selection.",
        ("tensorflow/*clip*value/*/*/*/function", "tensorflow/*clip*value/*/*/*/xla"),
    ),
    Reason(
        "XLA computes what has more than a few thousand numbers in a thread of its own, and to wake that takes longer than "
        "all else: bounds for the MLP's largest tensor 117 us, and 36 if the thread is still awake. The native's six "
        "computations wake it while Python prepares the next; gradclip looks whether all fits, and then has one computation "
        "wake it.",
        ("jax/clip/mlp/clipped/*/eager", "jax/keras.clipvalue/mlp/clipped/*/eager"),
    ),
    Reason(
        "XLA compiles both sides to the same program.",
        ("jax/clip/*/*/*/jit", "jax/clip/*/*/*/donated", "jax/keras.clipvalue/*/*/*/jit"),
    ),
    Reason(
        "Inductor makes the same loops for both sides, and TorchDynamo checks in each call that what it has read is still "
        "so: by 283 conditions here, 231 for the native.",
        ("torch/clip_grad_value_/*/*/*/compile",),
    ),
    Reason(
        "A right norm of halves is summed in float64: by the compiled loops, of which the call takes 35 us. The native's "
        "whole program, which sums in float32, takes 40; Inductor's own conversion to float64 is slower still.",
        ("torch/*/mlp/*/bfloat16/compile",),
    ),
    Reason(
        "What a training step has just written lies in the caches of both cores, where the native's two threads find it. To "
        "wake a second thread for a loop of 11 us takes longer.",
        ("torch/clip_grad_value_/mlp/clipped/float32/eager",),
    ),
    Reason(
        "Nobody may look at a value here, so the check that no square overflowed or vanished is part of the program, and a "
        "branch to the careful norm. XLA does some work in each call for every sum, in a branch that is not taken too; and a "
        "branch by itself, whatever is in it, takes 1.1 of the 11 ms of ResNet-50's gradients, each by its own norm.",
        ("tensorflow/*/function", "jax/*/jit", "jax/*/donated", "torch/*/compile"),
    ),
    Reason(
        "Both sides read and write the same memory once.",
        ("*/ClipGradByValue/*/clipped", "*/clip*value/tensor/clipped", "jax/*clip*/tensor/clipped/*/eager"),
    ),
    Reason(
        "Half of the time are questions, eight for each of 2,000 gradients, whether all are what the loops are for; the "
        "native asks none.",
        ("torch/clip_grad_value_/vectors/*/float32/eager",),
    ),
    Reason(
        "A few microseconds of finding the backend, checking and making a rule, for gradients of which the whole clip takes "
        "tens.",
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
    """By name what there is to say, and whether it is no more than the noise of the measurement."""
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
