"""Groups of sharded gradients: their norms equal the full gradients', and a call needs one collective for all groups."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch_only.distributed.common import MARKS, Traffic, agree, as_on_a_device, close, exact, same, square, world

import gradclip
from gradclip import Group
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect

NAMES = ["embedding", "encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias", "head"]


def whole(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(13, 3), (8, 4), (4,), (3, 5), (1,), ()]
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in zip(NAMES, shapes, strict=True)}


def in_parts(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return gradients split by rows and columns, with empty parts, replicated, and one as a local tensor on every process."""
    places: list[Any] = [Shard(0), Shard(1), Shard(0), Replicate(), Shard(0), None]
    return {
        name: x.clone() if place is None else distribute_tensor(x.clone(), world(), [place])
        for (name, x), place in zip(tensors.items(), places, strict=True)
    }


def groups_of(order: float) -> list[Group]:
    return [
        Group(dialect.clip_grad_norm(0.5, order), "encoder.*", counted="*"),
        Group(dialect.clip_grad_norm(0.25), ["decoder.weight", "head"], counted=["*.weight", "head"]),
        Group(tensorflow.clip_by_norm(0.5), ["decoder.bias", "embedding"]),
    ]


def check_groups_are_those_of_whole_gradients() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for order in (1.0, 2.0, 0.0, math.inf):
            tensors, groups = whole(dtype), groups_of(order)
            want, given = gradclip.clip(tensors, groups), in_parts(tensors)
            with Traffic() as traffic:
                got = gradclip.clip_(given, groups)
            same(list(given.values()), list(want.grads.values()))
            close(got.norm[0], exact(list(tensors.values()), order))
            close(got.norm[1], exact([x for name, x in tensors.items() if name.endswith("weight") or name == "head"], 2.0))
            for name, n in got.norm[2].items():
                assert (n is None) == (name not in ("decoder.bias", "embedding"))
                assert n is None or close(n, exact([tensors[name]], 2.0)) is None
            agree(got.norm)
            # one number for each norm; order 0 needs one for each gradient, because a shard does not show if the rest is zero
            # and one for the plain tensors beside shards, for each rule with one norm over all
            assert traffic.sent == [8 * ((5 if order == 0 else 1) + 1 + 2 + 2) + MARKS], traffic.sent


def check_groups_where_no_value_is_looked_at() -> None:
    tensors, groups = whole(), groups_of(3.0)
    want, given = gradclip.clip(tensors, groups), in_parts(tensors)
    with as_on_a_device(), Traffic() as traffic:
        got = gradclip.clip(given, groups)
    assert traffic.sent == [8 * (4 + 2) + MARKS]
    assert isinstance(got.norm[0], torch.Tensor)
    same(list(got.grads.values()), list(want.grads.values()))
    same(list(given.values()), list(tensors.values()), 0)


def check_as_many_calls_are_as_many_collectives() -> None:
    """Separate calls need as many collectives; the counter sees them."""
    given = in_parts(whole())
    with Traffic() as traffic:
        for group in groups_of(2.0):
            gradclip.norm(given, group)
    assert traffic.sent == [16 + MARKS] * 3


def check_fsdp2_by_the_names_of_a_model() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Linear(7, 3))
    plain = [x.detach().clone() for x in model.parameters()]
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    params = dict(model.named_parameters())
    for p, x in zip(params.values(), plain, strict=True):
        p.grad = distribute_tensor(x.clone(), p.device_mesh, p.placements)
    groups = [
        Group(optax.clip_by_global_norm(0.125), "0.*"),
        Group(optax.clip_by_global_norm(0.25), "1.*", counted=lambda name, p: p.ndim > 1),
    ]
    with Traffic() as traffic:
        norms = gradclip.clip_(params, groups).norm
    assert traffic.sent == [32 + MARKS]
    first, second = exact(plain[:2], 2.0), exact([plain[0], plain[2]], 2.0)
    close(norms[0], first)
    close(norms[1], second)
    factors = [0.125 / first] * 2 + [0.25 / second] * 2
    want = [(x.double() * factor).float() for x, factor in zip(plain, factors, strict=True)]
    same([p.grad for p in params.values()], want)


def check_a_pipeline_has_other_names_on_each_process() -> None:
    """A pattern may match no gradient here; the process still joins the collective."""
    rank, size = dist.get_rank(), dist.get_world_size()
    layers = [torch.randn(4, 3, generator=torch.Generator().manual_seed(i)) for i in range(size)]
    given = {f"layers.{rank}.weight": layers[rank].clone()}
    groups = [
        Group(optax.clip_by_global_norm(0.5), "layers.0.*"),
        Group(optax.clip_by_global_norm(0.25), "layers.1.*", counted="*"),
        Group(dialect.clip_grad_norm(9.0, math.inf)),
    ]
    with Traffic() as traffic:
        result = gradclip.clip_(given, groups, reduce=dist.group.WORLD)
    assert traffic.sent == [24 + MARKS]
    norms = [exact(layers[:1], 2.0), exact(layers, 2.0), exact(layers[2:], math.inf) if size > 2 else 0.0]
    for got, want in zip(result.norm, norms, strict=True):
        close(got, want)
    agree(result.norm)
    factor = [0.5 / norms[0], 0.25 / norms[1], 1.0, 1.0][rank]
    same(list(given.values()), [(layers[rank].double() * factor).float()])
    with pytest.raises(ValueError, match="A pattern matches the name of no gradient"):
        gradclip.norm(given, groups)


def check_a_process_without_gradients() -> None:
    groups = [Group(optax.clip_by_global_norm(0.5), "a"), Group(optax.clip_by_global_norm(0.5), "b")]
    given = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([2.0])} if dist.get_rank() == 0 else {}
    norms = gradclip.clip_(given, groups, reduce=dist.group.WORLD).norm
    assert norms == [5.0, 2.0]


def check_the_culprit_of_a_later_group() -> None:
    """All processes raise, no gradient changes, and a group without error_if_nonfinite raises nothing."""
    tensors = whole()
    tensors["decoder.weight"][2, 4] = math.nan
    tensors["embedding"][0, 0] = math.inf
    given = {name: distribute_tensor(x.clone(), world(), [Shard(0)]) if x.dim() else x for name, x in tensors.items()}
    quiet = Group(optax.clip_by_global_norm(0.5), "embedding")
    loud = Group(dialect.clip_grad_norm(0.5, error_if_nonfinite=True), "decoder.*")
    with pytest.raises(RuntimeError) as raised:
        gradclip.clip_(given, [quiet, Group(dialect.clip_grad_norm(0.5, error_if_nonfinite=True), "head"), loud])
    assert "decoder.weight" in str(raised.value)
    assert "rank" in str(raised.value)
    assert "embedding" not in str(raised.value)
    agree(str(raised.value))
    same(list(given.values()), list(tensors.values()), 0)
    fine = Group(dialect.clip_grad_norm(0.5, error_if_nonfinite=True), "encoder.*")
    assert not math.isfinite(gradclip.norm(given, [quiet, fine])[0])


def check_what_no_group_is_for_moves_nothing() -> None:
    """A partial sum that counts in no norm stays a partial sum."""
    summed = DTensor.from_local(torch.ones(3), world(), [Partial()], run_check=False)
    given = {**in_parts(whole()), "summed": summed}
    with Traffic() as traffic:
        result = gradclip.clip(given, Group(dialect.clip_grad_norm(0.5), "encoder.*"))
    assert traffic.sent == [16 + MARKS]
    assert result.grads["summed"].placements == (Partial(),)
    assert result.grads["summed"] is not summed
    with Traffic() as traffic:
        gradclip.clip_(given, Group(optax.clip(0.5), "encoder.*"))
    assert traffic.sent == []


def parameter(has_gradient: bool) -> torch.nn.Parameter:
    """Return a parameter of ones, split by rows; its gradient of threes may be missing here."""
    made = torch.nn.Parameter(distribute_tensor(torch.ones(8, 2), world(), [Shard(0)], src_data_rank=None))
    if has_gradient:
        made.grad = distribute_tensor(torch.full((8, 2), 3.0), world(), [Shard(0)], src_data_rank=None)
    return made


def near_a_tenth(p: torch.nn.Parameter) -> None:
    """Assert that the gradient is clipped to a tenth of the parameter's norm, on the process that has it."""
    assert p.grad is not None
    for x in p.grad.to_local().flatten().tolist():
        close(x, 0.1 * dist.get_world_size() ** 0.5)  # only this process's part counts in the norm of the gradient


def check_a_parameter_whose_gradient_only_others_have() -> None:
    """As for an expert without tokens: its process joins the collectives, those for the parameters too."""
    is_first, relative = dist.get_rank() == 0, optax.adaptive_grad_clip(0.1)
    for rules in (relative, Group(relative), [Group(relative, "expert"), Group(dialect.clip_grad_norm(1.0))]):
        params = {"expert": parameter(is_first), "rest": parameter(True)}
        norm = gradclip.clip_(params, rules).norm
        each = norm[0] if isinstance(rules, list) else norm
        assert (each["expert"] is not None) == is_first
        if is_first:
            near_a_tenth(params["expert"])


def check_known_norms_where_only_others_have_gradients() -> None:
    """The second stage on a process without gradients: no process waits, and the norm is the same on all."""
    is_first, relative = dist.get_rank() == 0, optax.adaptive_grad_clip(0.1)
    for rule in (relative, Group(relative), [Group(relative)]):
        params = {"expert": parameter(is_first)}
        norm = gradclip.norm(params, rule)
        result = gradclip.scale_by_norm_(params, rule, norm)
        assert repr(result.norm) == repr(norm)
        if is_first:
            near_a_tenth(params["expert"])
    whole = dialect.clip_grad_norm(1.0)
    for one in (whole, [Group(whole)]):
        params = {"expert": parameter(is_first)}
        norm = gradclip.norm(params, one)
        result = gradclip.scale_by_norm_(params, one, norm)
        assert result.norm == norm
        agree((result.norm, result.coefficient))


def check_tied_parameters_whose_gradient_only_others_have() -> None:
    """Every process sends equally many numbers, although those without the gradient know only its parameter."""
    for first in (Group(optax.clip_by_block_rms(1.0), "embedding"), Group(dialect.clip_grad_norm(1.0, 0.0), "embedding")):
        tied = parameter(dist.get_rank() == 0)
        params = {"embedding": tied, "head": tied, "rest": parameter(True)}
        result = gradclip.clip_(params, [first, Group(dialect.clip_grad_norm(1.0))])
        part = (9.0 * 16 / dist.get_world_size()) ** 0.5
        close(result.norm[1], 12.0)
        if first.rule.order == 0:
            assert result.norm[0] == 1.0
        elif tied.grad is not None:
            close(result.norm[0]["embedding"], part / 4)
            assert result.norm[0]["head"] == result.norm[0]["embedding"]


def check_bounds_beside_a_sum() -> None:
    """Only a clip by value needs the sum before it."""
    summed = DTensor.from_local(torch.ones(4, 2), world(), [Partial()], run_check=False)
    given = {"a": summed, "b": distribute_tensor(torch.full((4, 2), 3.0), world(), [Shard(0)], src_data_rank=None)}
    bounds = optax.clip(0.5)
    result = gradclip.clip(given, [Group(dialect.clip_grad_norm(1.0), "a"), Group(bounds, "b")])
    close(result.norm[0], dist.get_world_size() * 8**0.5)
    same([result.grads["b"]], [torch.full((4, 2), 0.5)], 0)
    with pytest.raises(ValueError, match=r"cannot be clipped by value(.|\n)*gradients at \[0\]"):
        gradclip.clip(given, [Group(bounds, "a"), Group(dialect.clip_grad_norm(1.0), "b")])


def check_bounds_in_a_pipeline() -> None:
    """Each process clips its own part by value; the one norm is over all processes."""
    given = {f"decoder.{dist.get_rank()}": torch.full((4,), 3.0), "head": torch.tensor([1.0, 0.05])}
    groups = [Group(dialect.clip_grad_norm(1.0), "decoder.*"), Group(dialect.clip_grad_value(0.1))]
    result = gradclip.clip_(given, [*groups, Group(tensorflow.clip_by_norm(1.0), [])], reduce=dist.group.WORLD)
    close(result.norm[0], 6 * dist.get_world_size() ** 0.5)
    assert result.norm[1] is None
    same([given["head"]], [torch.tensor([0.1, 0.05])], 0)


def check_a_pattern_that_matches_nothing() -> None:
    """Sharded gradients only cause a warning, because the pattern may match on other processes; ``reduce=`` causes none."""
    given, group = {"encoder": parameter(True)}, Group(dialect.clip_grad_norm(1.0), "encodr")
    with pytest.warns(GradclipWarning, match=r"pattern='encodr'\nHint: there is 1 name: 'encoder'\."):
        gradclip.clip_(given, group)
    gradclip.norm({"encoder": torch.ones(2)}, group, reduce=dist.group.WORLD)


def check_4_one_collective_for_each_mesh() -> None:
    """Experts are split over two dimensions of a mesh, the rest over one dimension."""
    tensors = whole()
    given = {
        name: distribute_tensor(x.clone(), square(), [Shard(0), Shard(1)])
        if name.endswith("weight")
        else distribute_tensor(x.clone(), square()["tp"], [Shard(0)])
        for name, x in tensors.items()
        if x.dim()
    }
    given["head"] = tensors["head"].clone()
    groups = groups_of(2.0)
    want = gradclip.clip(tensors, groups)
    with Traffic() as traffic:
        got = gradclip.clip_(given, groups)
    assert len(traffic.sent) == 2, traffic.sent
    for n, w in zip(got.norm[:2], want.norm[:2], strict=True):
        close(n, w)
    same([given[name] for name in NAMES], list(want.grads.values()))
    agree(got.norm)
