"""Specific to torch: matching signatures, compilation, functorch, the optimizers' hook, embeddings with sparse gradients."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from frameworks.torch import framework
from oracle import ulps

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect


@pytest.mark.needs("has_recorded_natives")
@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "clip_grads_with_norm_"])
def test_signatures(name: str) -> None:
    def bare(function: Any) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    ours, native = bare(getattr(gradclip, name)), bare(getattr(torch.nn.utils, name))
    assert ours[: len(native)] == native
    measures = name in ("clip_grad_norm_", "get_total_norm")
    assert ours[len(native) :] == (
        [(name, inspect.Parameter.KEYWORD_ONLY, None) for name in ("reduce", "shards")] if measures else []
    )


def model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    loss = net(torch.randn(32, 8)).pow(2).sum()
    loss.backward()
    return net


@pytest.mark.drawn(5)
@pytest.mark.needs("compiles")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own import warns
@pytest.mark.parametrize(
    ("backend", "norm_type", "max_norm"),
    [
        ("inductor", 2.0, 0.1),  # once, because this compiler is slow
        *(("aot_eager", norm_type, max_norm) for norm_type in (2.0, 1.0, float("inf"), 3.0) for max_norm in (0.1, 1e6)),
    ],
)
def test_compiled_drop_in(backend: str, norm_type: float, max_norm: float) -> None:
    """The very first call may be compiled: nothing is detected or imported before it."""
    torch.compiler.reset()
    net, native = model(), model()
    compiled = torch.compile(
        lambda m: gradclip.clip_grad_norm_(m.parameters(), max_norm, norm_type), fullgraph=True, backend=backend
    )
    norm = compiled(net)
    want = torch.nn.utils.clip_grad_norm_(native.parameters(), max_norm, norm_type)
    assert ulps(norm.numpy(), want.numpy(), "float32") <= 4
    for p, q in zip(net.parameters(), native.parameters(), strict=True):
        assert ulps(p.grad.numpy(), q.grad.numpy(), "float32") <= 4


def test_compiled_with_the_limit_as_an_argument() -> None:
    torch.compiler.reset()
    compiled = torch.compile(gradclip.clip_by_norm, fullgraph=True, backend="aot_eager")
    for limit in (1.0, 2.0, 0.5, 7.0, 3, 4, 2):
        assert ulps(compiled(torch.tensor([3.0, 4.0]), limit).numpy(), np.array([0.6, 0.8]) * min(limit, 5), "float32") <= 4


def test_vmap_and_grad() -> None:
    rule = dialect.clip_grad_norm(1.0)
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    mapped = torch.func.vmap(lambda g: gradclip.clip(g, rule).grads)(rows)
    assert ulps(mapped.numpy(), [[0.6 / (1 + 2e-7), 0.8 / (1 + 2e-7)], [0.3, 0.4]], "float32") <= 4
    slope = torch.func.grad(lambda g: gradclip.clip(g, tensorflow.clip_by_norm(1.0)).grads.sum())(rows[0].double())
    assert np.abs(slope.numpy() - [0.032, -0.024]).max() < 1e-12


def test_step_pre_hook_on_any_rule() -> None:
    for rule in (dialect.clip_grad_norm(1.0), tensorflow.clip_by_norm(1.0), optax.adaptive_grad_clip(0.1), optax.clip(0.5)):
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        handle = optimizer.register_step_pre_hook(step_pre_hook(rule))
        weight.grad = torch.tensor([3.0, 4.0])
        want = 1 - gradclip.clip(torch.tensor([3.0, 4.0]), rule, params=torch.ones(2)).grads
        optimizer.step()
        assert torch.equal(weight.data, want)
        handle.remove()
        weight.grad = torch.tensor([3.0, 4.0])
        optimizer.step()
        assert torch.equal(weight.data, want - torch.tensor([3.0, 4.0]))


def test_step_pre_hook_clips_all_groups_together() -> None:
    first, second = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([{"params": [first]}, {"params": [second], "lr": 0.1}])
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))
    first.grad, second.grad = torch.tensor([3.0]), torch.tensor([4.0])
    optimizer.step()
    assert ulps(torch.cat([first.grad, second.grad]).numpy(), [0.6, 0.8], "float32") <= 1
    with pytest.raises(ValueError, match="changes the shape of a gradient"):
        step_pre_hook(optax.per_example_global_norm_clip(1.0))
    with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
        step_pre_hook(1.0)


def test_parameter_dict() -> None:
    """It is not a Mapping: https://docs.pytorch.org/docs/stable/generated/torch.nn.ParameterDict.html."""
    named = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.zeros(1)), "b": torch.nn.Parameter(torch.zeros(1))})
    named["a"].grad, named["b"].grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert gradclip.clip(named, dialect.clip_grad_norm(1.0)).grads["b"].allclose(torch.tensor([0.8]))
    assert gradclip.clip_grad_norm_(named, 1.0) == 5.0
    assert named["a"].grad.allclose(torch.tensor([0.6]))
    assert gradclip.clip_(dict(named.named_parameters()), optax.adaptive_grad_clip(1.0)).grads.keys() == {"a", "b"}


def test_parameters_in_a_generator() -> None:
    layer = torch.nn.Linear(2, 2)
    grads = [torch.ones_like(p) for p in layer.parameters()]
    rule = optax.adaptive_grad_clip(0.1)
    once, again = (gradclip.clip(grads, rule, params=params).grads for params in (layer.parameters(), list(layer.parameters())))
    assert all(map(torch.equal, once, again))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_layouts_and_devices_that_cannot_be_clipped() -> None:
    rule, dense = dialect.clip_grad_norm(1.0), torch.tensor([[3.0, 4.0]])
    with pytest.raises(RuntimeError, match=r"strided or sparse COO.\nReceived: layout=torch.sparse_csr\nHint: x.to_sparse_coo"):
        gradclip.clip([dense, dense.to_sparse_csr()], rule)
    with pytest.raises(NotImplementedError, match=r"on the meta device .*\nReceived: device=cpu, device=meta\nHint: clip them"):
        gradclip.clip([dense, dense.to("meta")], rule)
    assert gradclip.clip([dense.to("meta")], rule).grads[0].is_meta


@pytest.mark.needs("compiles_all")
def test_a_known_norm_compiled() -> None:
    rule, g = dialect.clip_grad_norm(1.0), torch.tensor([3.0, 4.0])
    step = torch.compile(lambda g, n: gradclip.scale_by_norm([g], rule, n).grads[0], fullgraph=True, backend="eager")
    assert ulps(step(g, torch.tensor(10.0)).numpy(), [0.3, 0.4], "float32") <= 2
    adaptive = optax.adaptive_grad_clip(1.0)
    step = torch.compile(
        lambda g, p: gradclip.clip({"a": g}, adaptive, params={"a": p}).grads["a"], fullgraph=True, backend="eager"
    )
    assert ulps(step(g, torch.tensor([0.6, 0.8])).numpy(), [0.6, 0.8], "float32") <= 2


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # from torch's Adagrad
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad])
def test_embedding_with_sparse_gradients(optimizer: Any) -> None:
    """The step equals that of the dense gradient, clipped by torch and made sparse for the optimizer."""

    def step(sparse: bool) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        table = torch.nn.Embedding(10, 3, sparse=sparse)
        (table(torch.tensor([1, 1, 3, 7])) ** 2).sum().mul(10).backward()
        clip = gradclip.clip_grad_norm_ if sparse else torch.nn.utils.clip_grad_norm_
        norm = clip(table.parameters(), 1.0)
        assert table.weight.grad.is_sparse == sparse
        table.weight.grad = table.weight.grad if sparse else table.weight.grad.to_sparse(1)
        optimizer(table.parameters(), lr=0.1).step()
        return norm, table.weight.detach()

    (norm, weight), (want_norm, want) = step(True), step(False)
    assert ulps(norm.numpy(), want_norm.numpy(), "float32") <= 4
    assert np.abs(weight.numpy() - want.numpy()).max() <= 4 * np.spacing(np.float32(1))


def test_identity_of_what_is_clipped_in_place() -> None:
    net = model()
    before = [p.grad for p in net.parameters()]
    pointers = [g.data_ptr() for g in before]
    gradclip.clip_grad_norm_(net.parameters(), 1e-3)
    assert all(p.grad is g and g.data_ptr() == at for p, g, at in zip(net.parameters(), before, pointers, strict=True))


def test_a_norm_of_many_elements() -> None:
    """A single running float32 sum is off by 0.6 % at 64 million elements: https://github.com/pytorch/pytorch/issues/194033."""
    for make in (torch.ones, torch.randn, torch.rand):
        torch.manual_seed(0)
        x = make(2**23 + 17)
        want = x.double().norm().item()
        assert ulps(gradclip.norm(x, dialect.clip_grad_norm(1.0)), want, "float32") <= 4


def test_meta_tensors_have_no_values() -> None:
    result = gradclip.clip([torch.ones(3, device="meta")], dialect.clip_grad_norm(1.0))
    assert result.grads[0].device.type == "meta"
    assert result.grads[0].shape == (3,)


def test_harness_reads_every_dtype() -> None:
    for dtype in framework.dtypes:
        assert framework.read(framework.make([1.0, -2.5], dtype)).tolist() == [1.0, -2.5]


def test_inference_tensors_cannot_be_written() -> None:
    with torch.inference_mode():
        made = torch.tensor([3.0, 4.0])
        gradclip.clip_([torch.tensor([3.0, 4.0]), made.clone()], optax.clip_by_global_norm(1.0))
    other = torch.tensor([3.0, 4.0])
    with pytest.raises(RuntimeError, match="A tensor made in inference mode cannot be written in place outside of it"):
        gradclip.clip_([other, made], optax.clip_by_global_norm(1.0))
    assert other.tolist() == [3.0, 4.0]


def test_more_than_one_sparse_dimension() -> None:
    sparse = torch.diag(torch.tensor([3.0, 4.0])).to_sparse()
    assert gradclip.norm(sparse, dialect.clip_grad_norm(1.0)) == 5.0
    assert gradclip.norm(sparse, dialect.clip_grad_norm(1.0, -float("inf"))) == 0.0
    with pytest.raises(ValueError, match="more than one sparse dimension"):
        gradclip.clip(sparse, tensorflow.clip_by_norm(1.0, axes=0))
    for bound in ([0.0, 1.0], [[0.0, 1.0]]):  # its stored values have no columns
        with pytest.raises(ValueError, match="The limit does not fit the gradient"):
            gradclip.clip(sparse, tensorflow.clip_by_value(torch.tensor(bound), 5.0))


@pytest.mark.needs("compiles")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_two_stages_in_half_precision_without_looking(dtype: torch.dtype) -> None:
    torch.compiler.reset()

    def both(gradient: torch.Tensor) -> torch.Tensor:
        clipped, _ = gradclip.clip_by_global_norm([gradient], 1.0, use_norm=gradclip.global_norm([gradient]))
        return clipped[0]

    got = torch.compile(both, fullgraph=True, backend="aot_eager")(torch.tensor([3.0, 4.0], dtype=dtype))
    assert torch.equal(got, torch.tensor([0.6, 0.8], dtype=dtype))
    meta = torch.ones(2, device="meta", dtype=dtype)
    assert both(meta).shape == (2,)


def test_a_clipped_sparse_gradient_has_memory_of_its_own() -> None:
    gradient = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([3.0, 4.0]), (4,), check_invariants=True).coalesce()
    for rule in (optax.clip_by_global_norm(1.0), optax.clip_by_global_norm(9.0), dialect.clip_grad_value(1.0)):
        clipped = gradclip.clip(gradient, rule).grads
        clipped._indices().add_(1)
        clipped._values().zero_()
        assert gradient.to_dense().tolist() == [3.0, 0.0, 4.0, 0.0]


@pytest.mark.parametrize("dtype", framework.dtypes)
@pytest.mark.parametrize(
    "rule",
    [
        dialect.clip_grad_norm(1.0, 1.0),
        dialect.clip_grad_norm(torch.tensor(1.0)),
        tensorflow.clip_by_norm(1.0, axes=[0]),
        optax.clip_by_block_rms(torch.tensor([1.0])),
        optax.adaptive_grad_clip(1.0),
        optax.per_example_global_norm_clip(1.0),
    ],
    ids=str,
)
def test_gradients_and_limits_on_another_device(rule: gradclip.Rule, dtype: str) -> None:
    """The meta device has shapes only, and exists on every machine."""
    grads = [torch.ones((2, 3), device="meta", dtype=getattr(torch, dtype)), None, torch.ones((2, 1), device="meta")]
    result = gradclip.clip(grads, rule, params=grads if rule.relative_to else None)
    for got, gradient in zip(result.grads, grads, strict=True):
        if gradient is not None:
            assert got.device.type == "meta"
            assert got.dtype == gradient.dtype
            assert got.shape == (gradient.shape[1:] if rule.scope is gradclip.Scope.EXAMPLE else gradient.shape)


def test_bounds_on_another_device() -> None:
    x = torch.ones((2, 3), device="meta")
    got = gradclip.clip(
        x, tensorflow.clip_by_value(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor(2.0, dtype=torch.float64))
    ).grads
    assert (got.device.type, got.dtype, got.shape) == ("meta", torch.float32, (2, 3))
