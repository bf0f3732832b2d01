"""Random clips on four ranks: how each gradient is placed, which ranks lack it, which rank makes a mistake; the exact norm.

Every rank draws the same case from a seed, so each knows what all of them have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import oracle

RANKS = 4
MESHES = {"line": (4,), "square": (2, 2), "pair": (2,)}  #: a pair is the second axis of the square
SHAPES = ((8, 4), (5, 3), (1, 6), (3, 2), (4, 4), (2, 1))
ORDERS = (2.0, 2.0, 2.0, 1.0, 3.0, math.inf, -math.inf, 0.0, 0.5, -1.0)
MISTAKES = ("NaN", "read-only", "placement")


@dataclass
class Gradient:
    name: str
    mesh: str
    shape: tuple[int, ...]
    of_param: tuple[str, ...]  #: a word for each axis of the mesh: "S0", "S1", "R"; of a plain tensor nothing
    placed: tuple[str, ...]  #: the same of the gradient; "P" and "A" are addends of a sum and a mean
    how: str  #: "typed", "bare" (a plain gradient of a DTensor), "plain" (the same on all ranks), "told" (by shards=)
    missing: set[int]  #: the ranks without it
    is_frozen: bool
    seed: int

    def local(self, rank: int) -> np.ndarray:
        """Return what a rank has, if it lacks nothing."""
        drawn = np.random.default_rng(self.seed + (1000 * stage(self.mesh, rank)))
        if self.how == "told":
            drawn = np.random.default_rng(self.seed + rank)
        full = drawn.normal(size=self.shape)
        for word, length, at in zip(self.placed, MESHES.get(self.mesh, ()), self.at(rank), strict=True):
            if word[0] == "S":
                axis = int(word[1])
                step = -(-full.shape[axis] // length)
                full = full.take(range(min(at * step, full.shape[axis]), min((at + 1) * step, full.shape[axis])), axis)
            elif word in "PA":
                full = full * (1 + at)
        return full.astype("float32")

    def at(self, rank: int) -> tuple[int, ...]:
        return coordinates(self.mesh, rank)

    def pieces(self, ranks: list[int]) -> Iterator[np.ndarray]:
        """Yield the distinct pieces that some of these ranks have."""
        if self.how == "told":
            yield from (self.local(rank).astype("float64") for rank in ranks if rank not in self.missing)
            return
        cells: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
        for rank in ranks:
            if rank not in self.missing:
                words = list(zip(self.placed, self.at(rank), strict=True))
                cell = (stage(self.mesh, rank), *(at for word, at in words if word[0] == "S"))
                copy = tuple(at for word, at in words if word == "R")
                cells.setdefault(cell, {}).setdefault(copy, []).append(rank)
        for copies in cells.values():
            addends = copies[min(copies)]
            if not set("PA").intersection(self.placed):
                addends = addends[:1]
            share = math.prod(n for n, word in zip(MESHES.get(self.mesh, ()), self.placed, strict=True) if word == "A")
            yield sum(self.local(rank).astype("float64") for rank in addends) / share


@dataclass
class Case:
    seed: int
    gradients: list[Gradient]
    order: float
    has_stages: bool  #: whether the two pairs are stages of a pipeline, whose norms ``reduce=`` makes one
    mistake: tuple[str, int, int] | None  #: what, on which rank, with which gradient
    device: bool  #: whether no value is free to read

    def norm(self, rank: int) -> float:
        """Return the exact norm that a rank should get."""
        pairs = [[0, 1], [2, 3]]
        found = []
        for grad in self.gradients:
            which = [[*range(RANKS)]] if grad.mesh != "pair" else pairs if self.has_stages else [pairs[rank // 2]]
            for ranks in which:  # each stage has a gradient of its own
                pieces = [x.ravel() for x in grad.pieces(ranks)]
                found += [np.concatenate(pieces)] if pieces else []
        if self.order == 0:
            return float(sum(bool(x.any()) for x in found))
        full = [x for x in found if x.size]
        return float(oracle.norm(np.concatenate(full), self.order)) if full else 0.0

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: order {self.order}, stages {self.has_stages}, mistake {self.mistake}, device {self.device}"
        ]
        for grad in self.gradients:
            words = f"{' '.join(grad.of_param)} -> {' '.join(grad.placed)}"
            lines.append(f"  {grad.name} {grad.shape} {grad.how} on {grad.mesh}: {words}, missing on {sorted(grad.missing)}")
        return "\n".join(lines)


def coordinates(mesh: str, rank: int) -> tuple[int, ...]:
    return {"line": (rank,), "square": divmod(rank, 2), "pair": (rank % 2,), "": ()}[mesh]


def stage(mesh: str, rank: int) -> int:
    """Return which pair a rank is in, where the pairs have different gradients."""
    return rank // 2 if mesh == "pair" else 0


def _missing(draw: random.Random) -> set[int]:
    how = draw.choice(["none"] * 5 + ["one"] * 2 + ["some"] * 2 + ["all"])
    if how == "one":
        return {draw.randrange(RANKS)}
    if how == "some":
        return {rank for rank in range(RANKS) if draw.random() < 0.5}
    return set(range(RANKS)) if how == "all" else set()


def _gradient(draw: random.Random, i: int, mesh: str) -> Gradient:
    how = draw.choice(["typed"] * 6 + ["bare", "plain", "told"])
    shape, seed = draw.choice(SHAPES), draw.randrange(10**6)
    if how in ("plain", "told"):
        missing = draw.choice([set(), set(range(RANKS))]) if how == "plain" else _missing(draw)
        return Gradient(f"{how}{i}", "", shape, (), (), how, missing, False, seed)
    axes = len(MESHES[mesh])
    words = ["S0", "S1", "R"]
    of_param = tuple(draw.choice(words) for _ in range(axes))
    placed = of_param
    if how == "bare":
        placed = ("R",) * axes
    elif draw.random() < 0.35:
        placed = tuple(draw.choice([*words, "P", "A"]) for _ in range(axes))
    frozen = draw.random() < 0.1
    return Gradient(
        f"{how}{i}", mesh, shape, of_param, placed, how, set(range(RANKS)) if frozen else _missing(draw), frozen, seed
    )


def drawn(seed: int) -> Case:
    draw = random.Random(seed)
    order, has_stages = draw.choice(ORDERS), draw.random() < 0.2
    meshes = (
        ["pair"]
        if has_stages
        else draw.choice([["line"], ["square"], ["line", "square"], ["line", "pair"], ["square", "pair"]])
    )
    gradients = [_gradient(draw, i, draw.choice(meshes)) for i in range(draw.randint(1, 5))]
    if has_stages:
        gradients = [grad for grad in gradients if grad.how in ("typed", "bare")] or [_typed(draw)]
    mistake = None
    if draw.random() < 0.15:
        what, rank, i = draw.choice(MISTAKES[order == 0 :]), draw.randrange(RANKS), draw.randrange(len(gradients))
        grad = gradients[i]
        is_sharded = grad.placed == grad.of_param and "R" not in grad.placed
        if grad.how == "typed" and is_sharded and rank not in grad.missing and grad.local(rank).size > 1:
            mistake = (what, rank, i)
    return Case(seed, gradients, order, has_stages, mistake, draw.random() < 0.2)


def _typed(draw: random.Random) -> Gradient:
    return Gradient("typed", "pair", (8, 4), ("S0",), ("S0",), "typed", set(), False, draw.randrange(10**6))
