"""``shards=``: plain tensors of which other processes hold other shards; and plain tensors that count as replicas."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch_only.distributed.common import Traffic, agree, as_on_a_device, close, exact, same, square, world

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.core.errors import page
from gradclip.core.sharding.replicas import LOOKS
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect

SECTION = "distributed.md#experts-and-other-plain-shards"

ORDERS = (1.0, 2.0, 3.0, math.inf, -math.inf)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def expert(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the gradient of a process's own expert; each is of another size, in shape and in norm."""
    return randn(3 + rank, 2, seed=10 + rank, dtype=dtype) * (1 + 10 * rank)


def parameters(**grads: Any) -> dict[str, torch.nn.Parameter]:
    made = {}
    for name, grad in grads.items():
        made[name] = torch.nn.Parameter(torch.zeros_like(grad))
        made[name].grad = grad.clone()
    return made


def mixed(dtype: torch.dtype = torch.float32) -> tuple[dict[str, torch.nn.Parameter], list[torch.Tensor], slice]:
    """Return a sharded weight, a replica, and an expert of this process; the gradients of all; and which of them are here."""
    dense, norm, rank = randn(6, 4, dtype=dtype), randn(5, seed=1, dtype=dtype), dist.get_rank()
    params = parameters(dense=distribute_tensor(dense.clone(), world(), [Shard(0)]), norm=norm, expert=expert(rank, dtype))
    return params, [dense, norm, *(expert(r, dtype) for r in range(dist.get_world_size()))], slice(2 + rank, 3 + rank)


def marked(name: str, p: Any) -> Any:
    return dist.group.WORLD if getattr(p, "allreduce", True) is False else None


def ways() -> list[Any]:
    by_name: Callable[[str, Any], Any] = lambda name, p: dist.group.WORLD if name == "expert" else None  # noqa: E731
    return [{"expert": dist.group.WORLD}, {"*xpert": world()}, {lambda name, p: "exp" in name: world()}, by_name, marked]


def check_experts_beside_dtensors() -> None:
    """Each order with each way, and each of both with each dtype, by turns."""
    dtypes = itertools.cycle((torch.float32, torch.bfloat16, torch.float64))
    for order, shards in itertools.product(ORDERS, ways()):
        params, whole, mine = mixed(next(dtypes))
        params["expert"].allreduce = False
        want = gradclip.clip(whole, dialect.clip_grad_norm(0.5, order))
        with Traffic() as traffic:
            got = gradclip.clip_(params, dialect.clip_grad_norm(0.5, order), shards=shards)
        assert len(traffic.sent) == 1
        close(got.norm, exact(whole, order))
        agree(got.norm)
        same([p.grad for p in params.values()], [*want.grads[:2], *want.grads[mine]])


def check_every_function_takes_it() -> None:
    shards = {"expert": dist.group.WORLD}
    params, whole, mine = mixed()
    n, want = exact(whole, 2.0), gradclip.clip(whole, dialect.clip_grad_norm(0.5)).grads
    close(gradclip.norm(params, dialect.clip_grad_norm(1.0), shards=shards), n)
    close(gradclip.get_total_norm({name: p.grad for name, p in params.items()}, shards=shards), n)
    same([gradclip.clip(params, dialect.clip_grad_norm(0.5), shards=shards).grads["expert"]], want[mine])
    close(gradclip.clip_grad_norm_(params, 0.5, shards=shards), n)
    same([params["expert"].grad], want[mine])
    for fused in (False, True):
        params, whole, mine = mixed()
        plain = {name: torch.nn.Parameter(torch.zeros_like(p)) for name, p in params.items() if name != "dense"}
        for name, p in plain.items():
            p.grad = params[name].grad
        optimizer = torch.optim.SGD(plain.items(), lr=1.0, fused=fused)
        hook = step_pre_hook(dialect.clip_grad_norm(0.5), shards=shards, fused=fused)
        optimizer.register_step_pre_hook(hook)
        optimizer.step()
        close(hook.last.norm, exact(whole[1:], 2.0))
        want = gradclip.clip(whole[1:], dialect.clip_grad_norm(0.5)).grads
        same([-plain["expert"].detach()], [want[mine.start - 1]], 64)


def check_on_a_device() -> None:
    params, whole, _ = mixed()
    with as_on_a_device():
        got = gradclip.norm(params, dialect.clip_grad_norm(1.0), shards={"expert": dist.group.WORLD})
        assert isinstance(got, torch.Tensor)
        close(got, exact(whole, 2.0))


def check_a_process_without_experts_takes_part() -> None:
    """A mapping names its groups everywhere, so a process may have no such parameter, no gradient, or no parameter at all."""
    first = dist.get_rank() == 0
    shards = {"expert": dist.group.WORLD}
    for dense in (True, False):
        for nothing in ("no parameter", "no gradient"):
            params, whole, _ = mixed()
            if not dense:
                params, whole = {"expert": params["expert"]}, whole[2:]
            if first and nothing == "no gradient":
                params["expert"].grad = None
            elif first:
                del params["expert"]
            del whole[2 if dense else 0]
            got = gradclip.clip_grad_norm_(params, 1.0, shards=shards)
            close(got, exact(whole, 2.0))
            agree(got)
    assert float(gradclip.norm({}, dialect.clip_grad_norm(1.0), shards=shards)) == 0.0


def check_shards_of_one_gradient() -> None:
    """For a rule with a norm for each gradient the shards are those of one gradient."""
    whole = [randn(8, 3), randn(4, seed=1)]
    size, rank = dist.get_world_size(), dist.get_rank()
    given = {"split": whole[0].chunk(size)[rank].clone(), "whole": whole[1].clone()}
    rule = tensorflow.clip_by_norm(0.5)
    got = gradclip.clip(given, rule, shards={"split": dist.group.WORLD})
    want = gradclip.clip(whole, rule).grads
    same(list(got.grads.values()), [want[0].chunk(size)[rank], want[1]])


def check_groups_of_gradients() -> None:
    params, whole, mine = mixed()
    rules = [gradclip.Group(dialect.clip_grad_norm(0.5), "expert"), gradclip.Group(dialect.clip_grad_norm(0.25))]
    with Traffic() as traffic:
        got = gradclip.clip_(params, rules, shards={"expert": dist.group.WORLD})
    assert len(traffic.sent) == 1
    close(got.norm[0], exact(whole[2:], 2.0))
    close(got.norm[1], exact(whole[:2], 2.0))
    same([params["expert"].grad], gradclip.clip(whole[2:], dialect.clip_grad_norm(0.5)).grads[mine.start - 2 : mine.stop - 2])


def check_4_groups_of_some_processes() -> None:
    """Experts on pairs of processes; the pairs are replicas, stages of a pipeline, or divide a DTensor further."""
    grid, rank = square(), dist.get_rank()
    pair, other = grid["tp"], grid["dp"]
    across, along = other.get_local_rank(), pair.get_local_rank()
    dense = randn(6, 4)
    params = parameters(dense=distribute_tensor(dense, world(), [Shard(0)]), expert=expert(along))
    with Traffic() as traffic:
        got = gradclip.clip_grad_norm_(params, 0.5, shards={"expert": pair})
    assert len(traffic.sent) == 2, "one for each set of processes"
    close(got, exact([dense, expert(0), expert(1)], 2.0))
    agree(got)

    params = parameters(norm=randn(3, seed=across), expert=expert(rank))
    with Traffic() as traffic:
        got = gradclip.clip_grad_norm_(params, 0.5, shards={"expert": pair}, reduce=other)
    assert len(traffic.sent) == 2
    close(got, exact([randn(3), randn(3, seed=1), *map(expert, range(4))], 2.0))
    agree(got)

    whole = [randn(4, 3, seed=i) for i in range(2)]
    for name, given in (("both", [whole[across]]), ("beside", [whole[across], dense])):
        params = parameters(expert=distribute_tensor(given[0].clone(), pair, [Shard(0)]))
        if name == "beside":
            params |= parameters(dense=distribute_tensor(dense, world(), [Shard(0)]))
        got = gradclip.clip_grad_norm_(params, 0.5, shards={"expert": other.get_group()})
        close(got, exact([*whole, *given[1:]], 2.0))
        want = gradclip.clip([*whole, *given[1:]], dialect.clip_grad_norm(0.5)).grads
        same([params["expert"].grad], [want[across]])

    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    params = parameters(dense=distribute_tensor(dense, world(), [Shard(0)]))
    params |= parameters(expert=expert(rank)) if rank > 1 else {}
    got = gradclip.clip_grad_norm_(params, 0.5, shards={"expert": groups[1]})
    if rank > 1:  # a group without a process of the call is left out: each process has its own norm, as the caller tells
        close(got, exact([dense, expert(2), expert(3)], 2.0))


def check_a_type_that_shows_its_shards() -> None:
    """To tell once more is no harm; to tell something else is an error."""
    dense = randn(6, 4)
    got = gradclip.norm(
        {"w": distribute_tensor(dense, world(), [Shard(0)])}, dialect.clip_grad_norm(1.0), shards={"*": world()}
    )
    close(got, exact([dense], 2.0))
    with pytest.raises(ValueError, match="The type of a gradient shows its shards and replicas") as error:
        gradclip.norm(
            {"w": distribute_tensor(dense, world(), [Replicate()])}, dialect.clip_grad_norm(1.0), shards={"*": world()}
        )
    assert "'w' on ranks" in str(error.value)
    assert page(SECTION) in str(error.value)


def check_what_is_refused() -> None:
    params, _, _ = mixed()
    rule = dialect.clip_grad_norm(1.0)
    for shards in (dist.group.WORLD, "expert", 3, ["expert"]):
        with pytest.raises(TypeError, match="shards must tell the processes of some gradients") as told:
            gradclip.norm(params, rule, shards=shards)
        assert page(SECTION) in str(told.value)
    for group in ("world", 0, -100):
        with pytest.raises(TypeError, match="shards must name groups of processes") as told:
            gradclip.norm(params, rule, shards={"expert": group})
        assert page(SECTION) in str(told.value)
    with pytest.raises(TypeError, match="shards must select gradients"):
        gradclip.norm(params, rule, shards={3: world()})
    with pytest.raises(ValueError, match="Two entries of shards= select one gradient"):
        gradclip.norm(params, rule, shards={"*": world(), "expert": dist.group.WORLD})
    for along in (tensorflow.clip_by_norm(1.0, axes=[0]), optax.per_example_global_norm_clip(1.0)):
        with pytest.raises(ValueError, match="needs complete gradients"):
            gradclip.clip({"expert": params["expert"].grad}, along, shards={"expert": world()})
    for reduce in (dist.group.WORLD, world(), lambda x: dist.all_reduce(x)):
        for more in ({}, {"shards": {"expert": world()}}):
            with pytest.raises(ValueError, match="processes of reduce= already share the norm") as error:
                gradclip.norm(params, rule, reduce=reduce, **more)
            assert 'shards={"' in str(error.value)


def check_4_a_group_without_this_process() -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    foreign = groups[0] if dist.get_rank() > 1 else groups[1]
    with pytest.raises((ValueError, TypeError)):
        gradclip.norm({"expert": torch.ones(2)}, dialect.clip_grad_norm(1.0), shards={"expert": foreign})


# ---- replicas that are none ------------------------------------------------------------------------------------------------


def differ(call: Callable[[], Any], *names: str) -> None:
    with pytest.raises(ValueError, match="A plain tensor beside sharded gradients must be the same on every process") as error:
        call()
    text = str(error.value)
    agree(text)
    assert "shards={" in text
    assert page("distributed.md#plain-tensors-that-differ") in text
    for name in names:
        assert repr(name) in text


def check_replicas_that_differ_are_told_everywhere() -> None:
    for case in (lambda params: params, lambda params: {name: p.grad for name, p in params.items()}):
        for order in (0.0, 1.0, 2.0, math.inf):  # where the norms agree, as minima do here, each process has the right one
            params, whole, mine = mixed()
            if order == 0:
                params["expert"].grad *= dist.get_rank() == 1
                whole[mine.start] = params["expert"].grad.clone()
            given = case(params)
            differ(lambda x=given, p=order: gradclip.clip_(x, dialect.clip_grad_norm(0.5, p)), "expert")
            same([params["expert"].grad, params["dense"].grad], [whole[mine.start], whole[0]], 0)
    params, _, _ = mixed()
    with as_on_a_device():
        differ(lambda: gradclip.norm(params, dialect.clip_grad_norm(1.0)), "expert")
    differ(lambda: gradclip.norm(params, dialect.clip_grad_norm(1.0)), "expert")  # it looks until replicas have been equal
    differ(lambda: gradclip.norm(params, dialect.clip_grad_norm(1.0), shards={"nothing": dist.group.WORLD}), "expert")
    differ(lambda: gradclip.norm(list(params.values()), dialect.clip_grad_norm(1.0)), "2")
    one = dist.get_world_size() - 1
    if dist.get_rank() != one:  # only the last process has any
        del params["expert"]
    differ(lambda: gradclip.norm(params, dialect.clip_grad_norm(1.0)), "expert")
    if dist.get_rank() == one:
        params["norm"].grad, params["expert"].grad = None, None
    differ(lambda: gradclip.norm(params, dialect.clip_grad_norm(1.0)), "norm")


def check_only_the_first_clips_look() -> None:
    """Later clips read no value; another set of parameters is looked at again."""
    params, _, _ = mixed()
    rule, group = dialect.clip_grad_norm(1e9), dist.group.WORLD
    for _ in range(LOOKS):
        gradclip.clip_(params, rule, shards={"expert": group})
    reads: list[Any] = []
    backend = type(gradclip.core.registry.home("torch"))
    tolist = backend.tolist
    with as_on_a_device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "tolist", lambda self, x: reads.append(x) or tolist(self, x))
        gradclip.clip_(params, rule, shards={"expert": group})
        assert reads == []
        other, _, _ = mixed()
        for _ in range(LOOKS + 2):
            gradclip.clip_(other, rule, shards={"expert": group})
        assert len(reads) == 2 * LOOKS, "what all processes send, and whether the replicas here are zero"
    third, _, _ = mixed()
    differ(lambda: gradclip.clip_(third, rule), "expert")


def check_replicas_may_round_differently() -> None:
    params = parameters(dense=distribute_tensor(randn(6, 4), world(), [Shard(0)]), norm=randn(5) * (1 + 1e-6 * dist.get_rank()))
    gradclip.clip_grad_norm_(params, 1.0)


def check_an_infinite_replica_tells_nothing() -> None:
    """Under AMP one process may overflow: the scaler skips the step, and the next clip looks."""
    params, _, _ = mixed()
    params["expert"].grad[0, 0] = math.inf if dist.get_rank() == 0 else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gradclip.norm(params, dialect.clip_grad_norm(1.0))
    params["expert"].grad[0, 0] = 1.0
    differ(lambda: gradclip.norm(params, dialect.clip_grad_norm(1.0)), "expert")


def check_a_norm_for_each_gradient_needs_no_replicas() -> None:
    """Whole experts have norms of their own: there is nothing to tell."""
    params, _, _ = mixed()
    got = gradclip.clip_(params, tensorflow.clip_by_norm(0.5))
    close(got.norm["expert"] if isinstance(got.norm, dict) else got.norm[2], exact([expert(dist.get_rank())], 2.0))
    assert isinstance(params["dense"].grad, DTensor)
