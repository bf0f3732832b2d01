"""The vectors for a clip on several ranks: gathered gradients, how the ranks hold them, and the outcome by torch's formula."""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradclip.conformance.ranks.shards import places
from vectors import build, files
from vectors.array import Array
from vectors.flags import FLAGS, RANK_FLAGS
from vectors.operations import BY_NAME
from vectors.recorded import is_power
from vectors.spec import Spec

Json = dict[str, Any]
_OPERATION = BY_NAME["torch.clip_grad_norm_"]
NATIVE = "torch@ranks"  #: torch's function on several ranks, as a recorded native
SIZES = (2, 4, 8)
_MESHES = ((2,), (4,), (2, 2))
#: meshes of eight ranks, and their vectors: eight processes are many for one machine
_EIGHT = {
    (8,): ("S0-even", "S0-uneven", "R", "P", "plain-beside", "experts-plain", "group-uneven", "missing-first", "again-missing"),
    (2, 4): ("S0-S0-uneven", "R-S0-even", "Z0-S0", "Z0-S0-uneven", "axes-all", "experts", "missing-last", "order-3"),
    (2, 2, 2): (
        "S0-S0-S0-even",
        "R-S0-S1-even",
        "Z0-R-S0",
        "Z0-Z0-S0",
        "P-S0-R-even",
        "axes-all",
        "missing-first",
        "inf-elsewhere",
    ),
}
_WIDTH = 2
#: the rows of a gradient: the same for each rank; chunks of several lengths; more ranks than rows
_ROWS = {"even": 4, "uneven": 5, "empty": 1}


@dataclass(frozen=True)
class Sharding:
    """How the ranks hold one gradient; the schema describes the fields."""

    shape: tuple[int, ...]
    placements: tuple[str, ...]
    how: str = "type"
    missing: tuple[int, ...] = ()
    axes: tuple[int, ...] | None = None
    again: bool = False
    dtype: str = "float32"
    values: tuple[float, ...] | None = None  #: None for values from the vector's id

    def as_json(self) -> Json:
        json: Json = {"how": self.how, "placements": list(self.placements)}
        if self.axes is not None:
            json["axes"] = list(self.axes)
        if self.again:
            json["again"] = True
        return json | ({"missing": list(self.missing)} if self.missing else {})


@dataclass(frozen=True)
class Case:
    """A vector before its values and its outcome."""

    id: str
    comment: str
    mesh: tuple[int, ...]
    shardings: tuple[Sharding, ...]
    max_norm: float = 1.0
    order: float = 2.0
    flags: tuple[str, ...] = ()


def path() -> Path:
    return files.VECTORS / "ranks" / f"{_OPERATION.name}.json"


def merged() -> Json:
    """The file, with the recorded outcomes of the same calls."""
    stored = json.loads(path().read_text(encoding="utf-8")) if path().exists() else None
    return files.with_records(generated((stored or {}).get("version", "1.0.0")), stored)


@functools.cache
def generated(version: str) -> Json:
    """The file without recorded outcomes; do not modify it."""
    vectors = [_vector(case) for case in cases()]
    named = sorted({flag for vector in vectors for flag in vector["flags"]})
    known = FLAGS | RANK_FLAGS
    return {
        "schema": "../schema.json",
        "version": version,
        "operation": _OPERATION.name,
        "formula": _OPERATION.text,
        "documentation": _OPERATION.native.link,
        "recorded_with": {},
        "flags": {name: files.explained(known[name]) for name in named},
        "vectors": vectors,
    }


def _vector(case: Case) -> Json:
    gradients = [_gathered(case, i) for i in range(len(case.shardings))]
    arguments = {"max_norm": case.max_norm} | ({"norm_type": case.order} if case.order != 2.0 else {})
    spec = Spec(case.id, case.comment, gradients, arguments, ulp=8 if is_power(case.order) else None)
    json = build.vector(_OPERATION, spec)
    json["flags"] = sorted({*json["flags"], *case.flags, *_flags(case)})
    json["needs"] += _needs(case)
    json["mesh"] = list(case.mesh)
    json["shardings"] = [sharding.as_json() for sharding in case.shardings]
    return json


def _gathered(case: Case, place: int) -> Array | None:
    """The gathered gradient: 0 where a shard is missing; None if no rank has it."""
    sharding = case.shardings[place]
    if len(sharding.missing) == math.prod(case.mesh):
        return None
    draw = random.Random(f"{case.id} {place}")
    size = math.prod(sharding.shape)
    values = list(sharding.values or (draw.choice((-1, 1)) * draw.randint(1, 16) / 2 for _ in range(size)))
    for rank in sharding.missing:
        for k in places(sharding.shape, case.mesh, rank, sharding.placements):
            values[k] = 0.0
    return Array(sharding.dtype, sharding.shape, tuple(values))


def _needs(case: Case) -> list[str]:
    """How the call names the groups of plain shards: one group, if every gradient is a shard over the same axis."""
    told = [sharding for sharding in case.shardings if sharding.how == "group"]
    axes = {next(axis for axis, kind in enumerate(sharding.placements) if kind != "R") for sharding in told}
    return [] if not told else ["group"] if len(told) == len(case.shardings) and len(axes) == 1 else ["shards"]


def _flags(case: Case) -> Iterator[str]:
    """The subjects that the way of holding them shows."""
    ranks = range(math.prod(case.mesh))
    for sharding in case.shardings:
        kinds = set(sharding.placements)
        if any(kind[0] in "SZ" for kind in kinds):
            yield "ToldShards" if sharding.how == "group" else "AllShards"
            if len({len(places(sharding.shape, case.mesh, rank, sharding.placements)) for rank in ranks}) > 1:
                yield "UnevenShards"
        if "R" in kinds and sharding.axes is None and not sharding.missing:
            yield "ReplicasOnce"
        if any(kind[0] == "Z" for kind in kinds):
            yield "StridedShards"
        if "P" in kinds:
            yield "StillToSum"
        if sharding.missing:
            yield "MissingShard"
    hows = {sharding.how for sharding in case.shardings}
    if "plain" in hows and len(hows) > 1:
        yield "PlainBeside"
    if any(sharding.axes is not None or sharding.again for sharding in case.shardings):
        yield "SeveralMeshes"


# ---- which cases --------------------------------------------------------------------------------------------------------


def cases() -> list[Case]:
    found = [case for mesh in _MESHES for case in _of(mesh)]
    for mesh, wanted in _EIGHT.items():
        by_name = {case.id.partition("-")[2]: case for case in _of(mesh)}
        found += [by_name[name] for name in wanted]
    repeated = {case.id for case in found if sum(other.id == case.id for other in found) > 1}
    if repeated:
        raise ValueError(f"several vectors are called {', '.join(sorted(repeated))}")
    return found


def _of(mesh: tuple[int, ...]) -> Iterator[Case]:
    name = "x".join(map(str, mesh))
    for make in (_placed, _beside, _missing, _numbers, _grouped, *((_strided, _on_axes) if len(mesh) > 1 else (_in_one,))):
        for case in make(mesh):
            yield replace(case, id=f"{name}-{case.id}")


def _dense(mesh: Sequence[int], **more: Any) -> Sharding:
    """A gradient that is divided along its rows over each axis of the mesh."""
    return Sharding(**{"shape": (2 * math.prod(mesh), _WIDTH), "placements": ("S0",) * len(mesh), **more})


def _replica(mesh: Sequence[int], **more: Any) -> Sharding:
    return Sharding(**{"shape": (3,), "placements": ("R",) * len(mesh), **more})


def _placed(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Each placement, each division, alone and beside a replica."""
    for placements in itertools.product(("S0", "S1", "R", "P"), repeat=len(mesh)):
        divided = any(kind[0] == "S" for kind in placements)
        for rows_name, rows in (_ROWS if divided and "P" not in placements else {"even": 4}).items():
            shape = (_WIDTH, rows) if "S1" in placements and "S0" not in placements else (rows, _WIDTH)
            comment = f"placements {' '.join(placements)}" + (f", {rows_name}" if divided else "")
            beside = _replica(mesh) if rows_name == "even" else None
            sharding = (Sharding(shape, placements), *([beside] if beside and set(placements) != {"R"} else []))
            yield Case("-".join((*placements, rows_name) if divided else placements), comment, mesh, sharding)


def _beside(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Gradients of several kinds in one call."""
    plain, expert = _replica(mesh, how="plain"), _dense(mesh, how="group")
    yield Case("plain", "plain tensors, the same on each rank", mesh, (plain, _replica(mesh, how="plain", shape=(2, 2))))
    yield Case("plain-beside", "a plain replica beside shards", mesh, (_dense(mesh), plain))
    yield Case("number", "0-d gradients", mesh, (_dense(mesh), _replica(mesh, shape=()), _replica(mesh, shape=(), how="plain")))
    if len(mesh) == 1:
        yield Case("experts", "plain shards, with their group", mesh, (expert, _dense(mesh, how="group", shape=(5, 3))))
        yield Case("experts-beside", "plain shards with their group, beside shards", mesh, (_dense(mesh), expert))
        yield Case(
            "experts-plain", "plain shards with their group, beside shards and a replica", mesh, (_dense(mesh), expert, plain)
        )
    yield Case("again", "shards on two equal meshes, made one after the other", mesh, (_dense(mesh), _dense(mesh, again=True)))
    mixed = (_dense(mesh, dtype="bfloat16"), _dense(mesh, shape=(5, 1)), _replica(mesh, dtype="bfloat16"))
    yield Case("mixed", "two dtypes", mesh, mixed)


def _missing(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Gradients that some ranks lack."""
    last = math.prod(mesh) - 1
    rest = tuple(range(last + 1))
    lacking = {"first": (0,), "last": (last,), "everywhere": rest} | ({"all-but-first": rest[1:]} if last > 1 else {})
    for name, missing in lacking.items():
        sharding = (_dense(mesh, missing=missing), _replica(mesh))
        yield Case(f"missing-{name}", f"ranks {list(missing)} lack a shard", mesh, sharding)
    again = (_dense(mesh, missing=(last,)), _dense(mesh, again=True))
    yield Case("again-missing", f"shards on two equal meshes, and rank {last} lacks the first", mesh, again)
    both = tuple(_dense(mesh, missing=(last,)) for _ in range(2))
    yield Case("nothing-here", f"rank {last} has no gradient at all", mesh, both)


def _numbers(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Orders, limits and values."""
    size = 2 * math.prod(mesh) * _WIDTH
    sharding = (_dense(mesh), _replica(mesh))
    for order in (1.0, 3.0, math.inf):
        yield Case(f"order-{order:g}", f"order {order:g}", mesh, sharding, order=order)
        if math.isfinite(order):
            yield Case(
                f"order-{order:g}-partial",
                f"order {order:g}, still to be summed",
                mesh,
                (_summed(mesh), *sharding),
                order=order,
            )
    yield Case("inf-elsewhere", "the largest value is on the last rank", mesh, (_last(mesh, 64.0),), order=math.inf)
    yield Case("within", "within the limit", mesh, sharding, max_norm=1000.0)
    yield Case(
        "between",
        "each rank's own norm is within the limit, and the norm is not",
        mesh,
        (_ones(mesh, size),),
        max_norm=math.sqrt(size) * 0.875,
    )
    yield Case("no-limit", "a limit of infinity", mesh, sharding, max_norm=math.inf)
    yield Case("nan", "NaN on the last rank", mesh, (_last(mesh, math.nan), _replica(mesh)))
    yield Case("infinite", "infinity on the last rank", mesh, (_last(mesh, math.inf), _replica(mesh)))
    yield Case("zero", "zeros", mesh, (_dense(mesh, values=(0.0,) * size),))
    if len(mesh) == 1:
        yield Case("float64", "float64", mesh, tuple(_dense(mesh, dtype="float64") for _ in range(2)))
        yield Case("bfloat16", "bfloat16", mesh, tuple(_dense(mesh, dtype="bfloat16") for _ in range(2)))
        yield Case("large", "squares beyond float32", mesh, (_ones(mesh, size, 2.0**100),))


def _grouped(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Plain shards alone, all over the first axis: a call can name their one process group."""
    placements = ("S0", *("R",) * (len(mesh) - 1))

    def shard(rows: int, **more: Any) -> Sharding:
        return Sharding((rows, _WIDTH), placements, "group", **more)

    size = math.prod(mesh)
    last = tuple(range(size - size // mesh[0], size))
    yield Case("group-uneven", "plain shards over one group, of several lengths", mesh, (shard(5), shard(1)))
    yield Case("group-missing", "the last ranks of the group lack a plain shard", mesh, (shard(4, missing=last), shard(8)))
    both = (shard(4, missing=last), shard(8, missing=last))
    yield Case("group-nothing-here", "the last ranks of the group have no gradient at all", mesh, both)
    yield Case("group-order-3", "plain shards over one group, order 3", mesh, (shard(4), shard(8)), order=3.0)
    values = (*(float(k % 3 + 1) for k in range(8 * _WIDTH - 1)), 64.0)
    yield Case("group-inf", "the largest value is on the group's last rank", mesh, (shard(8, values=values),), order=math.inf)


def _strided(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Shards that the later axes of the mesh have divided before the first: FSDP over tensor parallelism."""
    placements = {("Z0", *("R",) * (len(mesh) - 2), "S0"), ("Z0",) * (len(mesh) - 1) + ("S0",)}
    for kinds in sorted(placements):
        for rows_name, rows in {"even": 2 * math.prod(mesh), "uneven": math.prod(mesh) + 1}.items():
            name = "-".join(kinds) + ("-uneven" if rows_name == "uneven" else "")
            sharding = Sharding((rows, _WIDTH), kinds)
            yield Case(name, f"placements {' '.join(kinds)}, {rows_name}", mesh, (sharding, _dense(mesh), _replica(mesh)))
    missing = Sharding((2 * math.prod(mesh), _WIDTH), ("Z0",) * (len(mesh) - 1) + ("S0",), missing=(1,))
    yield Case("strided-missing", "rank 1 lacks a strided shard", mesh, (missing, _replica(mesh)))


def _summed(mesh: Sequence[int]) -> Sharding:
    return Sharding((2, _WIDTH), ("P",) * len(mesh))


def _ones(mesh: Sequence[int], size: int, value: float = 1.0) -> Sharding:
    return _dense(mesh, values=(value,) * size)


def _last(mesh: Sequence[int], value: float) -> Sharding:
    """A gradient with this value as its last one."""
    size = 2 * math.prod(mesh) * _WIDTH
    return _dense(mesh, values=(*(float(k % 3 + 1) for k in range(size - 1)), value))


def _in_one(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Many small gradients, of which each rank has few values."""
    yield Case("many", "eight gradients of one row", mesh, tuple(Sharding((1, 3), ("S0",)) for _ in range(8)))


def _on_axes(mesh: tuple[int, ...]) -> Iterator[Case]:
    """Gradients on meshes of some axes of the mesh only."""
    others = ("R",) * (len(mesh) - 2)
    first, second = ("S0", "R", *others), ("R", "S0", *others)
    rows, columns = Sharding((4, _WIDTH), first, axes=(0,)), Sharding((5, _WIDTH), second, axes=(1,))
    yield Case("axis-0", "shards on the mesh of the first axis", mesh, (rows, rows))
    yield Case("axes", "shards on the meshes of each axis", mesh, (rows, columns))
    yield Case("axes-all", "shards on the whole mesh and on the mesh of each axis", mesh, (_dense(mesh), rows, columns))
    expert = Sharding((4, _WIDTH), first, "group")
    yield Case(
        "experts", "plain shards over the first axis, replicas over the second, beside shards", mesh, (_dense(mesh), expert)
    )
    size = math.prod(mesh)
    half = tuple(range(size - size // mesh[0], size))
    two = (Sharding((4, _WIDTH), first, missing=half), Sharding((6, _WIDTH), first, again=True))
    yield Case("again-axis-missing", "shards along an axis of two equal meshes; the second half lacks the first", mesh, two)
    parallel = Sharding((6, _WIDTH), first, axes=(0,), missing=half)
    yield Case("axes-missing", "the second half lacks its shard on the mesh of the first axis", mesh, (columns, parallel))
