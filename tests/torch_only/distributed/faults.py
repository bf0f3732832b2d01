"""One process has a NaN gradient, or none: all processes raise or return alike, and none waits for ever."""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch_only.distributed.common import agree, as_on_a_device, close, exact, same, square, world

import gradclip
from gradclip.core.errors import GradclipWarning, NonFiniteError
from gradclip.dialects import keras, optax, paddle, tensorflow
from gradclip.dialects import torch as dialect


def spoilt(value: float) -> dict[str, torch.nn.Parameter]:
    """Return parameters; on the last process ``b`` has one such value."""
    mesh = world()
    made = {"a": torch.ones(8), "b": torch.ones(8), "c": torch.ones(3)}
    made["b"][-1] = value
    parameters = {}
    for name, x in made.items():
        parameters[name] = torch.nn.Parameter(distribute_tensor(x * 0 if name != "b" else torch.ones(8), mesh, [Shard(0)]))
        parameters[name].grad = distribute_tensor(x, mesh, [Shard(0)])
    return parameters


def check_every_process_raises_and_names_the_culprit() -> None:
    last, part = dist.get_world_size() - 1, 8 // dist.get_world_size()
    for value in (math.nan, math.inf):
        parameters = spoilt(value)
        before = [p.grad.to_local().clone() for p in parameters.values()]
        with pytest.raises(NonFiniteError) as error:
            gradclip.clip_grad_norm_(parameters, 0.1, error_if_nonfinite=True)
        assert f"Received: rank {last}: ['b']: 1 of {part} elements\n" in str(error.value)
        agree(str(error.value))
        for p, x in zip(parameters.values(), before, strict=True):
            assert torch.equal(p.grad.to_local().nan_to_num(), x.nan_to_num())
        with pytest.raises(RuntimeError, match="is non-finite"):
            gradclip.get_total_norm([p.grad for p in parameters.values()], error_if_nonfinite=True)


def check_the_culprit_on_a_device() -> None:
    with as_on_a_device(), pytest.raises(NonFiniteError, match=rf"rank {dist.get_world_size() - 1}: \['b'\]"):
        gradclip.clip_grad_norm_(spoilt(math.nan), 0.1, error_if_nonfinite=True)


def check_several_culprits() -> None:
    parameters = {f"p{rank}": torch.ones(2) for rank in range(dist.get_world_size())}
    parameters[f"p{dist.get_rank()}"][0] = math.inf
    rule = dialect.clip_grad_norm(1.0, error_if_nonfinite=True)
    with pytest.raises(NonFiniteError) as error:
        gradclip.clip_(parameters, rule, reduce=dist.group.WORLD)
    for rank in range(dist.get_world_size()):
        assert f"rank {rank}: ['p{rank}']: 1 of 2 elements" in str(error.value)
    with pytest.raises(NonFiniteError, match="gradients of other processes"):
        gradclip.clip_([torch.ones(2)], rule, reduce=lambda x: x * math.nan)


def check_4_culprits_of_another_stage() -> None:
    grid = square()
    x = torch.ones(4)
    x[-1] = math.nan if grid["dp"].get_local_rank() == 0 else 1.0
    given = {"w": distribute_tensor(x, grid["tp"], [Shard(0)], src_data_rank=None)}
    with pytest.raises(NonFiniteError) as error:
        gradclip.clip_(given, dialect.clip_grad_norm(1.0, error_if_nonfinite=True), reduce=grid["dp"])
    assert "Received: rank 1: ['w']: 1 of 2 elements\n" in str(error.value)
    agree(str(error.value))


RULES = (
    dialect.clip_grad_norm(0.1),
    dialect.clip_grad_norm(0.1, math.inf),
    tensorflow.clip_by_global_norm(0.1),
    tensorflow.clip_by_norm(0.1),
    keras.global_clipnorm(0.1),
    paddle.clip_grad_by_global_norm(0.1),
    optax.clip_by_global_norm(0.1),
)


def check_what_a_rule_does_with_it_is_done_alike() -> None:
    for rule in RULES:
        for value in (math.nan, math.inf):
            given = [p.grad for p in spoilt(value).values()]
            whole = [g.full_tensor() for g in given]
            got, want = gradclip.clip_(given, rule), gradclip.clip(whole, rule)
            agree((got.norm, got.coefficient))
            same(given, want.grads)


def check_a_process_without_gradients_takes_part() -> None:
    """An expert without tokens has no gradients on this process: it still gets the norm of the others."""
    mesh, size = world(), dist.get_world_size()
    whole = [torch.arange(1.0, 9.0), torch.full((4,), 2.0)]
    for silent in range(size):
        parameters = [torch.nn.Parameter(distribute_tensor(x * 0, mesh, [Shard(0)])) for x in whole]
        wanted = []
        for p, x in zip(parameters, whole, strict=True):
            part = distribute_tensor(x.clone(), mesh, [Shard(0)])
            wanted += [chunk for rank, chunk in enumerate(x.chunk(size)) if rank != silent]
            p.grad = None if dist.get_rank() == silent else part
        for order in (2.0, 1.0, math.inf, 0.0):
            got = gradclip.clip_grad_norm_(parameters, math.inf, order)
            close(got, 2.0 if order == 0 else exact(wanted, order))
            agree(got)
        each = gradclip.clip_(parameters, tensorflow.clip_by_norm(1e9)).norm
        assert [n is None for n in each] == [dist.get_rank() == silent] * 2
        if dist.get_rank() != silent:
            parameters[0].grad = distribute_tensor(whole[0] * math.nan, mesh, [Shard(0)], src_data_rank=None)
        with pytest.raises(NonFiniteError):
            gradclip.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)


def check_a_process_without_some_gradients_takes_part() -> None:
    """The remaining gradients here are local tensors, which alone would need no collective."""
    split = torch.nn.Parameter(distribute_tensor(torch.zeros(4), world(), [Shard(0)]))
    plain = torch.nn.Parameter(torch.zeros(2))
    plain.grad = torch.tensor([3.0, 4.0])
    if dist.get_rank() == 0:
        split.grad = distribute_tensor(torch.full((4,), 6.0), world(), [Shard(0)], src_data_rank=None)
    got = gradclip.clip_grad_norm_([plain, split], 1.0)
    close(got, math.sqrt(25 + 36 * (4 // dist.get_world_size())))
    agree(got)


def check_no_gradient_anywhere_is_said() -> None:
    parameters = [torch.nn.Parameter(distribute_tensor(torch.zeros(4), world(), [Shard(0)]))]
    with pytest.warns(GradclipWarning, match="None of the parameters has a gradient"):
        assert gradclip.clip_grad_norm_(parameters, 1.0) == 0.0


def check_an_empty_gradient_is_the_same_error_everywhere() -> None:
    empty = distribute_tensor(torch.zeros(0, 3), world(), [Shard(0)])
    other = distribute_tensor(torch.ones(4), world(), [Shard(0)])
    with pytest.raises(RuntimeError, match="The norm of an empty gradient is not defined"):
        gradclip.norm([other, empty], dialect.clip_grad_norm(1.0, math.inf))
    assert gradclip.norm([other, empty], dialect.clip_grad_norm(1.0)) == 2.0


def check_empty_parts_are_no_error() -> None:
    """The native raises on the process with the empty shard, while the others wait."""
    one = distribute_tensor(torch.tensor([[3.0, -4.0]]), world(), [Shard(0)])
    assert isinstance(one, DTensor)
    assert gradclip.norm([one], dialect.clip_grad_norm(1.0, math.inf)) == 4.0
    assert gradclip.norm([one], dialect.clip_grad_norm(1.0, -math.inf)) == 3.0
    assert gradclip.norm([one], tensorflow.clip_by_norm(1.0)) == [5.0]
