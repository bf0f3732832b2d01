"""The ways in which up to 8 ranks can hold a set of gradients, and what a clip of the gathered gradients gives.

A case names its mesh, and for each gradient one placement for each axis of the mesh. Every framework runs the cases that it can
hold; each makes its own tensors from :func:`local`. :func:`outcome` uses nothing of gradclip.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import oracle

import gradclip
from gradclip.dialects import optax, tensorflow, torch

MESHES = ((2,), (4,), (8,), (2, 2), (2, 4), (2, 2, 2))

#: the rows of a gradient: a multiple of every mesh; chunks of several lengths, the last one empty; more ranks than rows
ROWS = {"even": 8, "uneven": 5, "empty": 1}

#: name -> the formula of a rule, by the oracle's spelling of it
RULES = {
    "order 2": "torch.clip_grad_norm(norm_type=2.0)",
    "order 1": "torch.clip_grad_norm(norm_type=1.0)",
    "order 3": "torch.clip_grad_norm(norm_type=3.0)",
    "order inf": "torch.clip_grad_norm(norm_type=inf)",
    "order 0": "torch.clip_grad_norm(norm_type=0.0)",
    "by tensor": "tensorflow.clip_by_norm()",
    "axes": "tensorflow.clip_by_norm(axes=[-1])",
    "AGC": "optax.adaptive_grad_clip()",
    "by value": "torch.clip_grad_value()",
    "groups": "torch.clip_grad_norm(norm_type=2.0)",
    "skip": "torch.clip_grad_norm(norm_type=2.0)",
}
LIMITS = {"AGC": 0.5, "by value": 3.0, "order 0": 1.5}
FORMULAS = {str(case): case.formula for _, case in oracle.CASES}


@dataclass(frozen=True)
class Gradient:
    """How the ranks hold one gradient.

    ``placements`` has an entry for each axis of the mesh: "R" the same on each rank, "S0" or "S1" divided along an axis of the
    tensor, "Z0" or "Z1" divided after the later axes of the mesh (FSDP over tensor parallelism), "P" addends, "A" addends of a
    mean. ``how`` says what the tensor's type tells: "typed" all of it, "plain" nothing, "told" that the caller tells instead
    ("asked" by a function), "sub" that it is on the mesh of its own axes only, "equal" that its mesh is another equal one,
    "both" that its type tells the first axis and the caller the second; "sparse" is plain, "twice" is listed twice.
    """

    name: str
    shape: tuple[int, ...]
    placements: tuple[str, ...]
    how: str = "typed"
    dtype: str = "float32"

    def divided(self) -> list[int]:
        """Return the mesh axes over which it is divided."""
        return [d for d, kind in enumerate(self.placements) if kind[0] in "SZ"]

    def summed(self) -> list[int]:
        return [d for d, kind in enumerate(self.placements) if kind[0] in "PA"]


@dataclass(frozen=True)
class Case:
    mesh: tuple[int, ...]
    grads: tuple[Gradient, ...]
    rule: str
    stage: int | None = None  #: the mesh axis along which ranks have other layers
    missing: str = ""  #: "first" or "last": that shard of the first gradient is missing; "everywhere": all of it
    form: str = "in place"  #: or "new"

    def __str__(self) -> str:
        grads = "; ".join(f"{g.name}{list(g.shape)} {g.how} {' '.join(g.placements)} {g.dtype}" for g in self.grads)
        more = [f"stages along {self.stage}"] * (self.stage is not None) + [f"missing {self.missing}"] * bool(self.missing)
        return ", ".join([f"mesh {self.mesh}: {grads}", *more, self.rule, self.form])

    def topology(self) -> tuple[Any, ...]:
        """Return all but the rule and the form."""
        return self.mesh, self.grads, self.stage, self.missing

    def stages(self) -> range:
        return range(1 if self.stage is None else self.mesh[self.stage])

    def ranks(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.mesh))

    def is_missing(self, grad: Gradient, at: Sequence[int]) -> bool:
        """Whether a rank has no gradient there. Replicas miss it together."""
        if not self.missing or grad is not self.grads[0] or grad.summed():
            return False
        if self.missing == "everywhere":
            return True
        return all(at[d] == (0 if self.missing == "first" else self.mesh[d] - 1) for d in grad.divided())

    def is_even(self) -> bool:
        """Whether each gradient is divided evenly or not at all, and in the order of the mesh's axes."""
        return all(
            length % math.prod(n for n, kind in zip(self.mesh, grad.placements, strict=True) if kind == f"S{i}") == 0
            for grad in self.grads
            for i, length in enumerate(grad.shape)
        ) and not any(kind[0] == "Z" for grad in self.grads for kind in grad.placements)

    def features(self) -> set[str]:
        """Return what a sample should combine in pairs."""
        found = {f"mesh {self.mesh}", f"rule {self.rule}", f"missing {self.missing}", f"stage {self.stage}", self.form}
        for grad in self.grads:
            found |= {grad.how, grad.dtype, *grad.placements, f"{len(grad.shape)}-d"}
            rows = {len(local(np.zeros(grad.shape), self.mesh, at, grad.placements)) for at in self.ranks() if grad.shape}
            found |= {"empty" if 0 in rows else "uneven"} if grad.divided() and len(rows) > 1 else set()
        return found


# ---- values ----------------------------------------------------------------------------------------------------------------


def values(case: Case, grad: Gradient, stage: int) -> np.ndarray:
    """Return the addends, with a first axis for each sum; every dtype represents them and their sums exactly."""
    seed = zlib.crc32(f"{grad.name} {stage}".encode())
    lengths = [case.mesh[d] for d in grad.summed()]
    return np.random.default_rng(seed).integers(-8, 9, (*lengths, *grad.shape)) / 2.0


def parameter(grad: Gradient, stage: int) -> np.ndarray:
    seed = zlib.crc32(f"parameter {grad.name} {stage}".encode())
    return np.random.default_rng(seed).integers(-8, 9, grad.shape) / 4.0


def full(case: Case, grad: Gradient, stage: int) -> np.ndarray:
    """Return the gathered gradient: summed, and 0 where a shard is missing."""
    addends, kinds = values(case, grad, stage), [grad.placements[d] for d in grad.summed()]
    for kind in kinds:
        addends = addends.mean(axis=0) if kind == "A" else addends.sum(axis=0)
    places = np.arange(math.prod(grad.shape)).reshape(grad.shape)
    gathered = addends.copy()
    for at in case.ranks():
        if case.is_missing(grad, at):
            gathered.reshape(-1)[local(places, case.mesh, at, grad.placements).reshape(-1)] = 0
    return gathered


def local(x: np.ndarray, mesh: Sequence[int], at: Sequence[int], placements: Sequence[str]) -> np.ndarray:
    """Return the shard of a rank, by its coordinates in the mesh."""
    order = sorted(range(len(mesh)), key=lambda d: (1, -d) if placements[d][0] == "Z" else (0, d))
    for d in order:
        if placements[d][0] in "SZ":
            x = chunk(x, mesh[d], at[d], int(placements[d][1]))
    return x


def chunk(x: np.ndarray, parts: int, which: int, axis: int) -> np.ndarray:
    """Return one of several chunks of equal length but the last, as ``torch.chunk`` makes them; it may be empty."""
    length = -(-x.shape[axis] // parts)
    start = min(which * length, x.shape[axis])
    return x[(slice(None),) * axis + (slice(start, min(start + length, x.shape[axis])),)]


def mine(case: Case, grad: Gradient, at: Sequence[int]) -> np.ndarray:
    """Return what a rank has of a gradient, missing or not."""
    addends = values(case, grad, 0 if case.stage is None else at[case.stage])
    return local(addends[tuple(at[d] for d in grad.summed())], case.mesh, at, grad.placements)


# ---- the outcome -----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    norms: list[Any]  #: one for each group; for a rule with several norms a list with one for each gradient
    clipped: dict[tuple[int, str], np.ndarray]  #: by stage and name: the gathered gradients
    factors: dict[tuple[int, str], float]  #: how much each was scaled, for addends
    skips: bool


def outcome(case: Case) -> Outcome:
    """Return what the clip of the gathered gradients gives, in float64."""
    keys = [(stage, grad.name) for stage in case.stages() for grad in case.grads]
    grads = {(stage, grad.name): grad for stage in case.stages() for grad in case.grads}
    gathered = {key: full(case, grads[key], key[0]) for key in keys}
    params = {key: parameter(grads[key], key[0]) for key in keys}
    sets = [keys]
    if case.rule == "groups":
        sets = [keys[:1] if case.stage is None else [k for k in keys if k[1] == keys[0][1]], []]
        sets[1] = [key for key in keys if key not in sets[0]]
    formula, limit = FORMULAS[RULES[case.rule]], LIMITS.get(case.rule, 1.0)
    norms, clipped = [], {}
    for of_set in sets:
        more = [[params[key] for key in of_set]] if case.rule == "AGC" else []
        new, n = formula([gathered[key] for key in of_set], limit, *more)
        norms.append(n)
        clipped |= dict(zip(of_set, new, strict=True))
    return Outcome(norms, clipped, {k: _factor(gathered[k], clipped[k]) for k in keys}, case.rule == "skip" and norms[0] > 1.0)


def _factor(before: np.ndarray, after: np.ndarray) -> float:
    place = int(np.abs(before).argmax()) if before.size else 0
    return float(after.flat[place] / before.flat[place]) if before.size and before.flat[place] else 1.0


def expected(case: Case, out: Outcome, grad: Gradient, at: Sequence[int]) -> np.ndarray:
    """Return what a rank should have of a clipped gradient."""
    key = 0 if case.stage is None else at[case.stage], grad.name
    if grad.summed():
        return mine(case, grad, at) * out.factors[key]
    return local(out.clipped[key], case.mesh, at, grad.placements)


def rule(case: Case) -> Any:
    """Return the rule, or the groups, of a case."""
    limit = LIMITS.get(case.rule, 1.0)
    if case.rule == "groups":
        made = torch.clip_grad_norm(limit)
        return [gradclip.Group(made, case.grads[0].name), gradclip.Group(made)]
    if case.rule == "skip":
        return replace(torch.clip_grad_norm(limit), skip_above=1.0)
    if case.rule == "AGC":
        return optax.adaptive_grad_clip(limit)
    if case.rule == "by value":
        return torch.clip_grad_value(limit)
    if case.rule in ("by tensor", "axes"):
        return tensorflow.clip_by_norm(limit, axes=[-1] if case.rule == "axes" else None)
    return torch.clip_grad_norm(limit, norm_type=float(case.rule.removeprefix("order ")))


# ---- which cases -----------------------------------------------------------------------------------------------------------

DTYPES = ("float32", "bfloat16", "float64", "mixed")


def typed(mesh: tuple[int, ...], kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield all placements of a matrix; and where one axis of the mesh divides what a later one has divided."""
    yield from itertools.product(kinds, repeat=len(mesh))
    for axis in ("0", "1"):
        for d in range(len(mesh) - 1):
            rest = [kinds if other < d or other > d + 1 else ("",) for other in range(len(mesh))]
            for others in itertools.product(*rest):
                yield (*others[:d], f"Z{axis}", f"S{axis}", *others[d + 2 :])


def beside(mesh: tuple[int, ...], k: int) -> list[Gradient]:
    """Return what may lie beside the gradients of one mesh, each in turn; few for a mesh of one axis."""
    last = len(mesh) - 1
    divided, replica = ("S0", *["R"] * last), ("R",) * len(mesh)
    found = [
        Gradient("plain", (3,), replica, "plain"),
        Gradient("number", (), replica, "plain"),
        Gradient("scalar", (), replica),
        Gradient("sparse", (4, 2), replica, "sparse"),
        Gradient("told", (mesh[0] * 2, 2), divided, "told"),
        Gradient("told", (mesh[0] * 3,), divided, "asked"),
        Gradient("equal", (6, 2), divided, "equal"),
        Gradient("twice", (5, 2), replica, "twice"),
    ]
    if last:
        found += [
            Gradient("sub", (5, 2), ("R",) * last + ("S0",), "sub"),
            Gradient("sub", (6,), ("S0",) + ("R",) * last, "sub"),
            Gradient("both", (4 * math.prod(mesh), 2), ("S0", "S0", *["R"] * (last - 1)), "both"),
        ]
    return [*found[k % len(found) :], *found[: k % len(found)]]


def cases(
    kinds: Sequence[str] = ("S0", "S1", "R", "P"), each: int = 6, meshes: Sequence[tuple[int, ...]] = MESHES
) -> list[Case]:
    """Return the enumeration: every placement on every mesh and each division, each with several neighbours in turn."""
    found: list[Case] = []
    turn = itertools.count()
    for mesh in meshes:
        for placements in typed(mesh, kinds):
            divisions = ROWS if any(kind[0] in "SZ" for kind in placements) else {"even": 8}
            for rows in divisions.values():
                shape = (4, rows) if "S1" in placements or "Z1" in placements else (rows, 4)
                others = tuple("R" if kind[1:] == "1" else kind for kind in reversed(placements) if kind[0] != "Z")
                vector = Gradient("vector", (rows + 2,), (*others, *["R"] * (len(mesh) - len(others))))
                for neighbour in beside(mesh, next(turn))[:each]:
                    found.append(_case(mesh, (Gradient("matrix", shape, placements), vector, neighbour), len(found)))
        found += _stages(mesh, len(found), kinds)
    return found


def _stages(mesh: tuple[int, ...], start: int, kinds: Sequence[str]) -> Iterator[Case]:
    """Yield pipelines along each axis of a mesh, whose stages are divided over the other axes."""
    turn = itertools.count(start)
    for stage in range(len(mesh)):
        for placements in itertools.product(*[("R",) if d == stage else kinds for d in range(len(mesh))]):
            how = "sub" if len(mesh) > 1 else "plain"
            for rows in ROWS.values() if len(mesh) > 1 else (3,):
                shape = (4, rows) if "S1" in placements else (rows, 4)
                grads = (Gradient("matrix", shape, placements, how), Gradient("plain", (3,), ("R",) * len(mesh), "plain"))
                yield _case(mesh, grads, next(turn), stage)


def _case(mesh: tuple[int, ...], grads: tuple[Gradient, ...], k: int, stage: int | None = None) -> Case:
    """Return a case whose other features are drawn by its number."""
    draw = random.Random(k)
    dtype = draw.choice(DTYPES)
    dtypes = [dtype] * len(grads) if dtype != "mixed" else draw.sample(DTYPES[:3], len(grads))
    grads = tuple(replace(grad, dtype=own) for grad, own in zip(grads, dtypes, strict=True))
    refused = {name for name in REFUSED if why(name, grads, stage)}
    rule = draw.choice([name for name in RULES if name not in refused or draw.random() < 0.1])
    missing = draw.choice(("", "", "first", "last", "everywhere"))
    return Case(mesh, grads, rule, stage, missing, draw.choice(("in place", "new")))


#: rules that some gradients or stages refuse
REFUSED = ("by tensor", "axes", "AGC", "by value")


def why(rule: str, grads: Sequence[Gradient], stage: int | None = None) -> str:
    """Return why a rule refuses these gradients, as the error says, or ""."""
    if rule not in REFUSED:
        return ""
    if stage is not None:
        return "reduce= is for a rule with one norm over all gradients"
    if rule in ("axes", "AGC") and any(grad.how in ("told", "asked", "both") for grad in grads):
        return "needs complete gradients"
    reasons = ["still to be summed"] if rule != "by tensor" and any(grad.summed() for grad in grads) else []
    if rule == "axes" and any(not grad.shape for grad in grads):
        reasons.append("axes|dimension")
    return "|".join(reasons)  # with several, a rank tells the one that its own gradients show


def in_pairs(given: Iterable[Case], at_most: int) -> list[Case]:
    """Return a sample in which each two features meet that meet anywhere: always the case with the most new pairs."""
    all_ = list(given)
    pairs = [set(itertools.combinations(sorted(case.features()), 2)) for case in all_]
    queue = [(-len(found), k) for k, found in enumerate(pairs)]
    heapq.heapify(queue)
    met: set[tuple[str, str]] = set()
    chosen: list[Case] = []
    while queue and len(chosen) < at_most:
        _, k = heapq.heappop(queue)
        new = len(pairs[k] - met)  # it can only have become less: the best that is still right is the best of all
        if queue and new < -queue[0][0]:
            heapq.heappush(queue, (-new, k))
        elif new:
            chosen.append(all_[k])
            met |= pairs[k]
    return chosen


ulps = oracle.ulps
