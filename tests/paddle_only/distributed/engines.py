"""Models under Paddle's own engines match the same model, trained in one process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import pytest
from paddle.distributed import fleet
from paddle.distributed.fleet.base import topology
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer import HybridParallelClipGrad
from paddle_only.distributed.common import Replicate, Shard, agree, array, close, exact, local, placed, random, traffic, world

import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.core.errors import ArgumentError
from gradclip.dialects import paddle as paddle_dialect
from gradclip.dialects import torch as dialect

LIMIT = 0.05


def net() -> paddle.nn.Layer:
    """Return a model with the same weights on every process."""
    model = paddle.nn.Sequential(paddle.nn.Linear(8, 12), paddle.nn.ReLU(), paddle.nn.Linear(12, 4))
    for seed, p in enumerate(model.parameters()):
        p.set_value(random(p.shape, seed) * 0.5)
    return model


def batches(count: int = 3) -> list[paddle.Tensor]:
    return [random((8, 8), 100 + i) for i in range(count)]


def mine(x: paddle.Tensor) -> paddle.Tensor:
    """Return this process's share of a batch."""
    return x.chunk(dist.get_world_size())[dist.get_rank()]


def train(model: Any, optimizer: Any, data: list[Any]) -> None:
    for x in data:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()


def trained(clip: Any) -> list[np.ndarray]:
    """Return the parameters that one process trains alone."""
    model = net()
    train(model, paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip), batches())
    return [array(p) for p in model.parameters()]


def alike(parameters: list[Any], wanted: list[np.ndarray], tolerance: float = 2e-5) -> None:
    """Compare with a tolerance, not in ulp: Adam turns the sign of a gradient near 0 into a step."""
    for p, want in zip(parameters, wanted, strict=True):
        np.testing.assert_allclose(array(dist.unshard_dtensor(p) if p.is_dist() else p), want, rtol=0, atol=tolerance)


# ---- data parallel -----------------------------------------------------------------------------------------------------------


def check_data_parallel_needs_nothing() -> None:
    """Paddle averages the gradients before the clip: each process's own norm is the norm of all."""
    for clip in (
        gradclip.ClipGradByGlobalNorm(LIMIT),
        grad_clip(dialect.clip_grad_norm(LIMIT)),
        gradclip.ClipGradByNorm(LIMIT),
    ):
        model = paddle.DataParallel(net())
        optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip)
        with traffic() as sent:
            train(model, optimizer, [mine(x) for x in batches()])
        assert sent == []
        alike(model.parameters(), trained(clip))


def check_data_parallel_in_the_loop() -> None:
    model, whole = paddle.DataParallel(net()), net()
    model(mine(batches()[0])).square().mean().backward()
    whole(batches()[0]).square().mean().backward()
    wanted = exact([p.grad for p in whole.parameters()])
    with traffic() as sent:
        norm = gradclip.clip_grad_norm_(model.parameters(), LIMIT)
    assert sent == []
    close(float(norm), wanted, at_most=64)  # a mean of means is rounded differently
    agree(float(norm))
    close(exact([p.grad for p in model.parameters()]), LIMIT, at_most=64)


# ---- distributed tensors -----------------------------------------------------------------------------------------------------


def distributed(placements: Callable[[Any], Any]) -> paddle.nn.Layer:
    model = net()
    for layer in (model[0], model[2]):
        layer.weight = placed(layer.weight, world(), placements(layer.weight))
        layer.bias = placed(layer.bias, world(), Replicate())
    return model


def sharded_steps(clip: Any, stage: Any, batch: Any) -> list[Any]:
    """Train with ``shard_optimizer`` on batches with these placements; return the parameters."""
    model = distributed(lambda p: Replicate())
    inner = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip)
    optimizer = dist.shard_optimizer(inner, stage and stage("x"))
    train(model, optimizer, [placed(x, world(), batch) for x in batches()])
    return list(model.parameters())


def check_shard_optimizer() -> None:
    """Gradients in shards: gradclip's classes, and any rule, in the slot."""
    dist.auto_parallel.set_mesh(world())
    for stage in (None, dist.ShardingStage1, dist.ShardingStage2):
        for clip in (
            gradclip.ClipGradByGlobalNorm(LIMIT),
            grad_clip(dialect.clip_grad_norm(LIMIT)),
            gradclip.ClipGradByNorm(LIMIT),
        ):
            alike(sharded_steps(clip, stage, Replicate()), trained(clip))


def check_shard_optimizer_on_split_batches() -> None:
    """The gradients are partial sums until the optimizer needs them."""
    for clip in (
        gradclip.ClipGradByGlobalNorm(LIMIT),
        grad_clip(dialect.clip_grad_norm(LIMIT)),
        gradclip.ClipGradByNorm(LIMIT),
    ):
        alike(sharded_steps(clip, None, Shard(0)), trained(clip))


class Scale(paddle.nn.Layer):
    """Its weights need no sum over a split dimension: a CPU has no reduce-scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (self.create_parameter([8], is_bias=is_bias) for is_bias in (False, True))
        self.weight.set_value(random((8,), 1))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x * self.weight + self.bias


def check_split_parameters_under_shard_optimizer() -> None:
    dist.auto_parallel.set_mesh(world())
    for clip in (
        gradclip.ClipGradByGlobalNorm(LIMIT),
        grad_clip(dialect.clip_grad_norm(LIMIT)),
        gradclip.ClipGradByNorm(LIMIT),
    ):
        model, whole = Scale(), Scale()
        model.weight = placed(model.weight, world(), Replicate())
        model.bias = placed(model.bias, world(), Replicate())
        inner = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip)
        optimizer = dist.shard_optimizer(inner, dist.ShardingStage3("x"))
        assert model.weight.placements == [Shard(0)]
        train(model, optimizer, [placed(x, world(), Replicate()) for x in batches()])
        train(whole, paddle.optimizer.AdamW(0.01, parameters=whole.parameters(), grad_clip=clip), batches())
        alike(model.parameters(), [array(p) for p in whole.parameters()])


def check_split_weights() -> None:
    """Tensor parallel by placements: the drop-in, in the training loop and in the slot."""
    model = distributed(lambda p: Shard(1) if p.shape[0] == 8 else Shard(0))
    x = batches()[0]
    model(placed(x, world(), Replicate())).square().mean().backward()
    whole = net()
    whole(x).square().mean().backward()
    with traffic() as sent:
        norm = gradclip.clip_grad_norm_(model.parameters(), LIMIT)
    assert sent[-1] == 16 + 24
    close(float(norm), exact([p.grad for p in whole.parameters()]), at_most=64)
    agree(float(norm))
    clip = gradclip.ClipGradByGlobalNorm(LIMIT)
    model = distributed(lambda p: Shard(1) if p.shape[0] == 8 else Shard(0))
    optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip)
    train(model, optimizer, [placed(x, world(), Replicate()) for x in batches()])
    alike(model.parameters(), trained(clip))


def check_parameters_that_are_not_to_be_clipped() -> None:
    """With ``need_clip=False``, set before the split, a parameter counts in no norm on any process, and is not clipped."""
    whole = [random((4, 2), seed) for seed in range(3)]
    together, apart = exact([whole[0], whole[2]]), [exact([x]) for x in whole]
    for clip, norms in (
        (gradclip.ClipGradByGlobalNorm(LIMIT), [together] * 3),
        (grad_clip(dialect.clip_grad_norm(LIMIT)), [together + 1e-6] * 3),
        (gradclip.ClipGradByNorm(LIMIT), apart),
    ):
        for placement in (Shard(0), Replicate()):
            parameters = [paddle.create_parameter([4, 2], "float32") for _ in whole]
            parameters[1].need_clip = False
            parameters = [placed(p, world(), placement) for p in parameters]
            given = [placed(x.clone(), world(), placement) for x in whole]
            before = [local(x) for x in given]
            got = [local(x) for _, x in clip(list(zip(parameters, given, strict=True)))]
            assert np.array_equal(got[1], before[1])
            for i in (0, 2):
                close(got[i], before[i] * LIMIT / norms[i])


def check_a_fused_rule_is_refused() -> None:
    """``shard_optimizer`` marks any clip object for fused gradients, and only Paddle's own objects support them."""
    clip = grad_clip(dialect.clip_grad_norm(LIMIT))
    clip.should_comm_on_shard_dim = True
    p = paddle.create_parameter([2], "float32")
    with pytest.raises(ArgumentError, match="fused gradients"):
        clip([(p, random((2,), 0))])


# ---- fleet -------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def hybrid(**degrees: int) -> Iterator[Any]:
    """Enter fleet's hybrid parallel mode; it emits many warnings."""
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, "sharding_degree": 1} | degrees
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fleet.init(is_collective=True, strategy=strategy)
        try:
            yield fleet.get_hybrid_communicate_group()
        finally:
            fleet.fleet._hcg = topology._HYBRID_PARALLEL_GROUP = None


def fleet_steps(clip: Any) -> tuple[Any, list[Any]]:
    """Train, and return the clip object in the slot and the parameters."""
    model = net()
    inner = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip)
    optimizer = fleet.distributed_optimizer(inner)
    train(fleet.distributed_model(model), optimizer, [mine(x) for x in batches()])
    return inner._grad_clip, list(model.parameters())


def check_2_fleet_knows_the_class() -> None:
    """Paddle's optimizer accepts gradclip's class as its own, and replaces it by the clip that knows the groups."""
    wanted = trained(gradclip.ClipGradByGlobalNorm(LIMIT))
    with hybrid(sharding_degree=dist.get_world_size()):
        found, parameters = fleet_steps(gradclip.ClipGradByGlobalNorm(LIMIT))
    assert type(found) is HybridParallelClipGrad
    assert found.clip_norm == LIMIT
    alike(parameters, wanted)


def check_2_fleet_and_any_rule() -> None:
    """A global norm needs the group, and raises without it; a norm for each gradient does not."""
    rule = dialect.clip_grad_norm(LIMIT)
    wanted, by_each = trained(grad_clip(rule)), trained(gradclip.ClipGradByNorm(LIMIT))
    with hybrid(sharding_degree=dist.get_world_size()) as groups:
        with pytest.raises(ArgumentError, match=r"sharding_degree=(?s:.*)Hint: gradclip\.ClipGradByGlobalNorm"):
            fleet_steps(grad_clip(rule))
        _, parameters = fleet_steps(grad_clip(rule, reduce=groups.get_sharding_parallel_group()))
        alike(parameters, wanted)
        alike(fleet_steps(gradclip.ClipGradByNorm(LIMIT))[1], by_each)


def check_2_pipeline_degrees() -> None:
    """Each process has a stage: Paddle's object in the slot computes the norm of both, and so does the group in ``reduce=``."""
    n, rank = dist.get_world_size(), dist.get_rank()
    gradients = [random((3, 2), seed) for seed in range(n)]
    with hybrid(pp_degree=n) as groups:
        p = paddle.create_parameter([3, 2], "float32")
        optimizer = paddle.optimizer.SGD(1.0, parameters=[p], grad_clip=gradclip.ClipGradByGlobalNorm(LIMIT))
        theirs = fleet.distributed_optimizer(optimizer)._inner_opt._grad_clip
        assert type(theirs) is HybridParallelClipGrad
        ours = grad_clip(paddle_dialect.clip_grad_by_global_norm(LIMIT), reduce=groups.get_pipe_parallel_group())
        (_, got), *_ = ours([(p, gradients[rank])])
        (_, native), *_ = theirs([(p, gradients[rank].clone())])
    close(array(got), array(gradients[rank]) * LIMIT / exact(gradients))
    np.testing.assert_allclose(array(native), array(got), rtol=3e-6)  # Paddle adds 1e-6 to the norm


def check_2_weights_in_parts_beside_replicas() -> None:
    """Tensor parallel in fleet: every process has the same bias, so that no group can compute the norm."""
    n, p = dist.get_world_size(), paddle.create_parameter([2], "float32")
    with hybrid(mp_degree=n) as groups:
        for reduce in (None, groups.get_model_parallel_group()):
            with pytest.raises(ArgumentError, match=f"No group has one norm(?s:.*)mp_degree={n}"):
                grad_clip(dialect.clip_grad_norm(LIMIT), reduce=reduce)([(p, random((2,), 0))])
        clip = grad_clip(dialect.clip_grad_norm(LIMIT), reduce=lambda power: power * 4)
        (_, got), *_ = clip([(p, random((2,), 0))])
    close(array(got), array(random((2,), 0)) * LIMIT / (2 * exact([random((2,), 0)]) + 1e-6))


# ---- supported on accelerators only, according to Paddle 3.3.1 ---------------------------------------------------------------


def check_2_what_does_not_run_on_a_cpu() -> None:
    model = net()
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters(), grad_clip=gradclip.ClipGradByGlobalNorm(LIMIT))
    for level in ("os", "os_g", "p_g_os"):
        with pytest.raises(AssertionError, match="group_sharded_parallel only support gpu, xpu and custom_device now"):
            dist.sharding.group_sharded_parallel(model, optimizer, level=level)
    with hybrid(mp_degree=dist.get_world_size()):
        parallel = fleet.distributed_model(model)
        with pytest.raises(AssertionError, match="Only support xpu, gpu and custom_device now, but this is cpu"):
            parallel(batches()[0])
    dist.auto_parallel.set_mesh(world())
    for stage in (dist.ShardingStage1, dist.ShardingStage2, dist.ShardingStage3):  # from partial sums
        with pytest.raises((NotImplementedError, OSError), match="Unimplemented cpu kernel for CReduceScatterOp"):
            sharded_steps(gradclip.ClipGradByGlobalNorm(LIMIT), stage, Shard(0))
