"""Collectives and bytes of a clip on 2 to 64 devices, read from the programs that XLA compiles; nothing runs.

``XLA_FLAGS=--xla_force_host_platform_device_count=64 python -m jax_only.distributed.counting`` prints the table of
``docs/collectives.md``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import gradclip
from gradclip.backends.jax import places
from gradclip.dialects import optax as dialect

SIZES = (2, 4, 8, 16, 32, 64)
COUNT = 10
RULE = dialect.clip_by_global_norm(1.0)
WIDTHS = {"f64": 8, "f32": 4, "s64": 8, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "pred": 1}
KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"


class Collective(NamedTuple):
    kind: str
    bytes: int  #: bytes of its result
    is_in_branch: bool


def collectives(text: str) -> list[Collective]:
    """Return the collectives of a compiled program, from XLA's text."""
    branches = {name.strip(" %") for names in re.findall(r"branch_computations=\{(.*?)\}", text) for name in names.split(",")}
    branches |= set(re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", text))
    found, computation = [], ""
    for line in text.splitlines():
        header = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        computation = header[1] if header else computation
        call = re.match(rf"\s+(?:ROOT )?%\S+ = (.*?) ({KINDS})(?:-start)?\(", line)
        if call:
            found.append(Collective(call[2], _bytes(call[1]), computation in branches))
    return found


def _bytes(shape: str) -> int:
    """Return the bytes of a shape such as ``(f32[], f32[64,2]{1,0})``."""
    return sum(
        WIDTHS[dtype] * math.prod(int(n) for n in lengths.split(",") if n)
        for dtype, lengths in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shape)
    )


def compiled(function: Callable[..., Any], *arguments: Any) -> list[Collective]:
    return collectives(jax.jit(function).lower(*arguments).compile().as_text())


# ---- the gradients -------------------------------------------------------------------------------------------------------


def mesh_of(*lengths: int) -> jax.sharding.Mesh:
    names, devices = ("data", "model")[: len(lengths)], jax.devices()[: math.prod(lengths)]
    return jax.make_mesh(lengths, names, axis_types=(AxisType.Auto,) * len(lengths), devices=devices)


def gradients(mesh: jax.sharding.Mesh, *kinds: tuple[int, P]) -> list[jax.ShapeDtypeStruct]:
    """Return this many gradients of each specification."""
    return [
        jax.ShapeDtypeStruct((128, 128), jnp.float32, sharding=NamedSharding(mesh, spec))
        for count, spec in kinds
        for _ in range(count)
    ]


BOTH = (P("data", "model"), P("data"), P(None, "model"), P())

#: name -> (the least number of devices, a function from a number of devices to gradients)
LAYOUTS: dict[str, tuple[int, Callable[[int], list[jax.ShapeDtypeStruct]]]] = {
    "replicated gradients": (2, lambda size: gradients(mesh_of(size), (COUNT, P()))),
    "sharded along one axis": (2, lambda size: gradients(mesh_of(size), (COUNT, P("data")))),
    "some sharded, some replicated": (2, lambda size: gradients(mesh_of(size), (COUNT - 2, P(None, "data")), (2, P()))),
    "along both of two axes, each, none": (
        4,
        lambda size: gradients(mesh_of(size // 2, 2), *((count, spec) for count, spec in zip((7, 1, 1, 1), BOTH, strict=True))),
    ),
    "some along two axes, some along one": (
        4,
        lambda size: gradients(mesh_of(size // 2, 2), (COUNT - 2, P("data", "model")), (2, P("data"))),
    ),
}


def ours(grads: Any) -> Any:
    return gradclip.clip(grads, RULE).grads


def native(grads: Any) -> Any:
    return optax.clip_by_global_norm(1.0).update(grads, optax.EmptyState())[0]


def in_shard_map(size: int) -> list[Collective]:
    def clipped(grads: Any) -> Any:
        return gradclip.clip(grads, RULE, reduce="data").grads

    mesh = mesh_of(size)
    function = jax.shard_map(clipped, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    return compiled(function, gradients(mesh, (COUNT, P("data"))))


def along_two_axes(size: int) -> list[Collective]:
    """Return the collectives for gradients along both axes of a mesh, along each, and along none, in ``shard_map``."""
    mesh, specs = mesh_of(size // 2, 2), list(BOTH)
    clipped = jax.shard_map(
        lambda grads: gradclip.clip(grads, RULE, reduce=("data", "model")).grads, mesh=mesh, in_specs=(specs,), out_specs=specs
    )
    return compiled(clipped, gradients(mesh, *((1, spec) for spec in specs)))


def said(found: list[Collective]) -> str:
    run = [each for each in found if not each.is_in_branch]
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(each.kind for each in run).items())
    return f"{kinds} of {sum(each.bytes for each in run)} B" if run else "none"


def table() -> list[str]:
    """Return the lines of the table: for each layout the collectives and bytes of gradclip and optax on each device."""
    lines = ["| 10 gradients | devices | gradclip | optax |", "| --- | --- | --- | --- |"]
    for name, (least, layout) in LAYOUTS.items():
        lines += rows(name, least, layout)
    jax.clear_caches()
    with mock.patch.object(places, "is_host", return_value=False):  # as on accelerators, where a program must not branch
        lines += rows("sharded along one axis, on accelerators", 2, LAYOUTS["sharded along one axis"][1])
    jax.clear_caches()
    for size in (4, SIZES[-1]):
        lines.append(f"| along both of two axes, each, none, in `shard_map` | {size} | {said(along_two_axes(size))} | |")
    for size in (SIZES[0], SIZES[-1]):
        lines.append(f"| sharded, in `shard_map` with `reduce=` | {size} | {said(in_shard_map(size))} | |")
    return lines


def rows(name: str, least: int, layout: Callable[[int], list[jax.ShapeDtypeStruct]]) -> list[str]:
    """Return the lines of a layout: one, unless the counts change with the number of devices."""
    found: dict[tuple[str, str], list[int]] = {}
    for size in (size for size in SIZES if size >= least):
        grads = layout(size)
        found.setdefault((said(compiled(ours, grads)), said(compiled(native, grads))), []).append(size)
    return [f"| {name} | {sizes[0]} to {sizes[-1]} | {left} | {right} |" for (left, right), sizes in found.items()]


if __name__ == "__main__":
    print("\n".join(table()))
