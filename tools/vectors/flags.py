"""The subjects of vectors: for each flag the property, and the effect on training without it.

A departure of gradclip from natives is a flag: ``infinite-limit`` is InfiniteLimit, with the departure's thread. Only the
derivative has no flag, because it is not an outcome of a call: a check tests it.
"""

from __future__ import annotations

from gradclip.conformance.load import Flag
from gradclip.natives.departures import DEPARTURES, Departure


def flag_of(departure: Departure) -> str:
    """``InfiniteLimit`` for ``infinite-limit``."""
    return "".join(word.capitalize() for word in departure.key.split("-"))


DEPARTURE_FLAGS = {flag_of(departure): departure for departure in DEPARTURES}

#: the flag of each departure that a vector can show: what must hold, and the effect on training if it does not
_DEPARTURES = {
    "InfiniteLimit": (
        "A limit of infinity only measures: every gradient is returned as it is, whatever it holds.",
        "A run that only logs its gradient norm, with a limit of infinity, trains on NaN from the first step.",
    ),
    "ZeroLimit": (
        "A limit of 0 gives zeros, also for zero gradients, unless the dialect says that 0 is off or an error.",
        "A frozen layer or a schedule that ends at 0 turns a zero gradient into NaN, and then every weight.",
    ),
    "NegativeLimit": (
        "A negative limit, or a limit of NaN, is an error; only tf.clip_by_norm counts a negative one as 0.",
        "A sign slip in a configuration trains uphill, or not clipped at all, and nothing says so.",
    ),
    "FiniteNorm": (
        "Finite gradients have a finite norm, right to the last bits, also where their squares leave the dtype.",
        "One healthy gradient of large values zeroes the step or poisons the weights with NaN.",
    ),
    "WideNorm": (
        "A norm is not narrower than float32, also if the gradients are.",
        "A trainer that skips steps whose norm is not finite skips every step; one that logs the norm logs two digits.",
    ),
    "WideArithmetic": (
        "A limit may be larger than the gradients' dtype can represent, and no intermediate result overflows.",
        "A generous limit, meant to clip nothing, turns small gradients into infinities.",
    ),
    "AccurateNorm": (
        "The norm is right to a few units in the last place, however many elements there are.",
        "A model of tens of millions of parameters is clipped at several times the limit that was asked for.",
    ),
    "Unclipped": (
        "A gradient within the limit is returned unchanged to the bit.",
        "Runs that clip nothing are not reproducible against runs without the clip.",
    ),
    "Twice": (
        "A gradient that is listed twice counts once in the norm, and is scaled once.",
        "Tied weights are scaled twice: they learn more slowly than the rest, by the square of the coefficient.",
    ),
    "Iterator": (
        "Gradients or parameters from an iterator are read once, and clipped.",
        "model.parameters() is a generator: the norm looks right in the log, and nothing was clipped.",
    ),
    "Sparse": (
        "A sparse gradient is clipped like the dense one: its duplicate rows are merged before the norm.",
        "Embeddings of frequent tokens are clipped by a norm that is too small, or the step fails.",
    ),
    "Dtypes": (
        "The clip means the same in every floating point dtype, half precision and complex numbers included.",
        "A change of precision breaks the training script, or changes what its clip means.",
    ),
    "AnyNumber": (
        "A limit or a known norm is a number or an array of any real dtype, not only the gradients' own.",
        "A limit from a configuration file or a reduced norm stops the run.",
    ),
    "Integers": (
        "A norm function refuses gradients of integers; whole bounds clip them by value, and they stay integers.",
        "Gradients come back in another dtype, or as zeros, and the optimizer takes them.",
    ),
    "DtypeKept": (
        "Each clipped gradient has the dtype of the gradient.",
        "The optimizer's state doubles in size, or mixed precision silently ends.",
    ),
    "ShapeKept": (
        "A clipped gradient has the shape of the gradient, also one without axes.",
        "A 0-d parameter is broadcast, and the optimizer's state has another shape than the parameter.",
    ),
    "NothingToClip": (
        "Without a single gradient nothing is clipped, and that is no error.",
        "A step in which all parameters are frozen stops the run.",
    ),
}

OTHER_FLAGS = {
    "Axes": Flag(
        "The norm is taken over the named axes, which are kept for the product; negative ones count from the end.",
        "Rows are clipped by the norms of columns: constraints on embeddings or kernels hold for the wrong units.",
    ),
    "Boundary": Flag(
        "At the limit itself nothing changes, and just above it hardly anything.",
        "Gradients at the limit jump, or are clipped although they should not be.",
    ),
    "CrossedBounds": Flag(
        "Where the lower bound is above the upper one the dialect says which wins, or that it is an error.",
        "Every element becomes one constant, and training continues on it.",
    ),
    "Epsilon": Flag(
        "torch and Paddle add 1e-6 to the norm before they divide: small norms are clipped to much less than the limit.",
        "Ported hyperparameters do not transfer: with tiny gradients the effective limit is another one.",
        ("https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/utils/clip_grad.py",),
    ),
    "ErrorIfNonfinite": Flag(
        "error_if_nonfinite raises for an infinite or NaN norm, and leaves every gradient as it was.",
        "A step that should be skipped is taken, or half of the gradients are scaled already.",
        ("https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/utils/clip_grad.py",),
    ),
    "Examples": Flag(
        "Each example is clipped by its own norm over all gradients, and then they are summed.",
        "The privacy guarantee of differentially private training does not hold.",
        ("https://arxiv.org/abs/1607.00133",),
    ),
    "Flushed": Flag(
        "Results below the least normal number are exact, or 0 where the device flushes them.",
        "Tiny gradients vanish on one device and not on another.",
    ),
    "GlobalNorm": Flag(
        "One norm over all gradients, or one for each: the two differ as soon as there are two gradients.",
        "Clipping each separately changes the direction of the step; clipping all by one norm does not.",
    ),
    "KnownNorm": Flag(
        "A norm that the caller passes is used as it is, and none is measured.",
        "Sharded training clips by the norm of its own shard.",
    ),
    "Layout": Flag(
        "How a gradient lies in memory does not matter.",
        "Transposed weights or expanded gradients are clipped by garbage, or not written.",
    ),
    "LimitType": Flag(
        "A limit is a number, whatever type it has: an int, a NumPy number, an array of one element.",
        "The script works with 1.0 and fails with 1.",
    ),
    "MixedDtypes": Flag(
        "The norm over gradients of several dtypes is as accurate as the widest of them.",
        "In mixed precision, the gradients of one dtype decide how much those of the other are clipped.",
    ),
    "NegativeZero": Flag("The sign of a zero is kept.", "Results are not the same to the bit from run to run."),
    "NoneKept": Flag(
        "None, a parameter without a gradient, stays where it is and adds nothing to the norm.",
        "Gradients move up a place, and are applied to the parameters of their neighbours.",
    ),
    "NormOrder": Flag(
        "The norm has any order of the dialect; 0 counts the gradients that are not zero, infinity is the largest.",
        "The clip uses another norm than the one that was configured.",
        ("https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/utils/clip_grad.py",),
    ),
    "NotFinite": Flag(
        "NaN and infinity are neither hidden nor spread further than the dialect says.",
        "A broken step looks healthy: NaN became 1 in a comparison, and the loss scaler does not see it.",
    ),
    "SwappedBounds": Flag(
        "The order of the two bounds is the dialect's own: the upper one first in Paddle, the lower one in TensorFlow.",
        "Every element is clipped to one constant.",
    ),
    "Units": Flag(
        "The limit of a unit (a vector, a column, an output channel) is relative to the norm of its parameter.",
        "Layers with small weights take steps that are too large, those with large weights hardly any.",
        ("https://arxiv.org/abs/2102.06171",),
    ),
}

FLAGS: dict[str, Flag] = OTHER_FLAGS | {
    name: Flag(explanation, training, (DEPARTURE_FLAGS[name].link,)) for name, (explanation, training) in _DEPARTURES.items()
}

#: the subjects of a clip on several ranks
RANK_FLAGS = {
    "AllShards": Flag(
        "The norm counts the shards of every rank.",
        "Each rank scales its shards by its own norm: the step's direction changes, and most steps are clipped too little.",
        ("https://github.com/areal-project/AReaL/issues/312",),
    ),
    "ToldShards": Flag(
        "Plain tensors that are shards, such as experts, count with those of the other ranks of their group.",
        "Each rank has another norm, and scales shared weights by another number: the replicas of the model drift apart.",
        ("https://github.com/NVIDIA-NeMo/Automodel/issues/3816",),
    ),
    "ReplicasOnce": Flag(
        "A gradient that is the same on several ranks counts once.",
        "The more ranks there are, the larger the norm and the smaller the steps: a tuned limit fails at another scale.",
        ("https://github.com/NVIDIA-NeMo/RL/pull/3788",),
    ),
    "StillToSum": Flag(
        "The norm of a gradient that is still to be summed is that of the sum.",
        "The addends of the ranks partly cancel, so their norms say little about the step that is taken.",
    ),
    "UnevenShards": Flag(
        "Shards may differ in length, and a rank may have an empty one.",
        "A model whose size is no multiple of the number of ranks stops, or is clipped by NaN.",
    ),
    "StridedShards": Flag(
        "Shards count, whichever axis of the mesh has divided the gradient first.",
        "FSDP2 over tensor parallelism stops in the first step.",
    ),
    "MissingShard": Flag(
        "A rank that lacks a gradient takes part in the reduction, and its shard counts 0.",
        "Training hangs in the first step in which an expert or a layer gets no gradient on one of the ranks.",
    ),
    "PlainBeside": Flag(
        "A plain tensor beside sharded ones is the same on each rank, and counts once.",
        "The gradients that are not sharded count once for each rank, or not at all.",
    ),
    "SeveralMeshes": Flag(
        "Gradients of several meshes have one norm over all of them, in the same groups on each rank.",
        "Tensor or expert parallelism beside FSDP stops, hangs, or clips by the norm of a part of the model.",
        ("https://github.com/meta-pytorch/torchtune/issues/2420",),
    ),
}
