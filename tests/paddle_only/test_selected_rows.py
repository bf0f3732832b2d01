"""SelectedRows, the gradients of ``nn.Embedding(sparse=True)``: clipped like their dense counterparts, and never made dense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest
from frameworks.paddle import framework
from oracle import ulps

import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.dialects import optax, tensorflow, torch

IDS = [1, 3, 1]  # a duplicate row: the gradient of row 1 is [6, 8]
UPSTREAM = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
DENSE = np.array([[0.0, 0.0], [6.0, 8.0], [0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
NORM = float(np.linalg.norm(DENSE))  # 11.18; without merging the rows 9.54
OURS = {
    "ClipGradByNorm": lambda: gradclip.ClipGradByNorm(2.0),
    "ClipGradByGlobalNorm": lambda: gradclip.ClipGradByGlobalNorm(2.0),
    "ClipGradByValue": lambda: gradclip.ClipGradByValue(5.0),
    "unclipped": lambda: gradclip.ClipGradByGlobalNorm(100.0),
    "torch": lambda: grad_clip(torch.clip_grad_norm(2.0, 1.0)),
}


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> Iterator[str]:
    """The default dtype of layers' parameters."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(request.param)
    yield request.param
    paddle.set_default_dtype(before)


def table(sparse: bool, dtype: str = "float32") -> Any:
    weight = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.5))
    embedding = paddle.nn.Embedding(5, 2, sparse=sparse, weight_attr=weight)
    backward(embedding, dtype)
    return embedding


def backward(embedding: Any, dtype: str = "float32") -> None:
    (embedding(paddle.to_tensor(IDS)) * paddle.to_tensor(UPSTREAM, dtype=dtype)).sum().backward()


# no Adam: Paddle's own steps for SelectedRows differ from those for the same dense gradient, with or without a clip
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda **k: paddle.optimizer.SGD(0.5, **k),
    "Momentum": lambda **k: paddle.optimizer.Momentum(0.5, **k),
}


@pytest.mark.parametrize("clip", OURS.values(), ids=OURS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_steps_are_those_of_a_dense_gradient(dtype: str, clip: Callable[[], Any], optimizer: Callable[..., Any]) -> None:
    weights = []
    for sparse in (True, False):
        embedding = table(sparse, dtype)
        assert embedding.weight.grad.is_selected_rows() == sparse
        trainer = optimizer(parameters=embedding.parameters(), grad_clip=clip())
        trainer.step()
        trainer.clear_grad()
        backward(embedding, dtype)
        trainer.step()
        weights.append(framework.read(embedding.weight))
    assert not np.array_equal(weights[0], np.full((5, 2), 0.5))
    assert ulps(weights[0], weights[1], dtype) <= 4


@pytest.mark.parametrize("clip", OURS.values(), ids=OURS)
def test_a_pair_stays_sparse(dtype: str, clip: Callable[[], Any]) -> None:
    embedding = table(True, dtype)
    [(parameter, clipped)] = clip()([(embedding.weight, embedding.weight.grad)])
    assert parameter is embedding.weight
    assert clipped.is_selected_rows()
    assert framework.dtype(clipped) == dtype
    assert clipped.get_selected_rows().height() == 5
    assert np.array_equal(framework.densify(embedding.weight.grad), DENSE), "the gradient itself was written to"


def test_its_norm_is_the_dense_one(dtype: str) -> None:
    embedding = table(True, dtype)
    assert ulps(gradclip.norm(embedding.weight, torch.clip_grad_norm(1.0)), NORM, dtype) <= 1
    assert gradclip.norm(embedding.weight.grad, torch.clip_grad_norm(1.0, 1.0)) == 21.0
    (rms,) = gradclip.norm([embedding.weight.grad], optax.clip_by_block_rms(1.0))
    assert ulps(rms, NORM / 10**0.5, dtype) <= 1


@pytest.mark.parametrize(
    ("clip", "want"),
    [
        (lambda parameters: gradclip.clip_grad_norm_(parameters, 2.0), DENSE * 2 / (NORM + 1e-6)),
        (lambda parameters: gradclip.clip_grad_value_(parameters, 5.0), DENSE.clip(-5, 5)),
        (lambda parameters: gradclip.clip_(parameters, tensorflow.clip_by_norm(2.0)), DENSE * 2 / NORM),
        (lambda parameters: gradclip.clip_([p.grad for p in parameters], tensorflow.clip_by_norm(2.0)), DENSE * 2 / NORM),
        (lambda parameters: gradclip.clip_(parameters, torch.clip_grad_norm(100.0)), DENSE),
        (lambda parameters: gradclip.clip_(parameters, tensorflow.clip_by_norm(2.0, axes=[1])), None),
    ],
    ids=["norm", "value", "parameter", "gradient", "unclipped", "axes"],
)
def test_in_place(dtype: str, clip: Callable[[Any], Any], want: np.ndarray | None) -> None:
    embedding = table(True, dtype)
    if want is None:
        norms = np.linalg.norm(DENSE, axis=1, keepdims=True)
        want = DENSE * 2 / np.maximum(norms, 2)
    clip(embedding.parameters())
    gradient = embedding.weight.grad
    assert gradient.is_selected_rows()
    assert ulps(framework.densify(gradient), want, dtype) <= 2
    paddle.optimizer.SGD(1.0, parameters=embedding.parameters()).step()
    assert ulps(framework.read(embedding.weight), 0.5 - framework.densify(gradient), dtype) <= 1


def test_with_a_dense_one() -> None:
    embedding, layer = table(True), paddle.nn.Linear(2, 1)
    layer(paddle.to_tensor([[4.0, 10.0]])).backward()
    gradclip.clip_grad_norm_([*embedding.parameters(), *layer.parameters()], 1.0)
    total = np.sqrt((DENSE**2).sum() + 16 + 100 + 1) + 1e-6
    assert ulps(framework.densify(embedding.weight.grad), DENSE / total, "float32") <= 2
    assert ulps(framework.read(layer.weight.grad), np.array([[4.0], [10.0]]) / total, "float32") <= 2


def test_no_rows() -> None:
    embedding = paddle.nn.Embedding(5, 2, sparse=True)
    embedding(paddle.zeros([0], "int64")).sum().backward()
    result = gradclip.clip(embedding.weight, tensorflow.clip_by_norm(1.0))
    assert float(result.norm) == 0.0
    assert result.grads.is_selected_rows()
    assert result.grads.rows() == []
    gradclip.clip_grad_norm_(embedding.parameters(), 0.0)
    gradclip.clip_grad_value_(embedding.parameters(), 1.0)
    assert embedding.weight.grad.rows() == []


def test_rows_that_are_not_finite() -> None:
    embedding = table(True)
    gradclip.clip_(embedding.parameters(), tensorflow.clip_by_norm(5.0))
    embedding.weight.grad._get_tensor_from_selected_rows()[0] = float("nan")
    with pytest.raises(RuntimeError, match="2 of 4 elements"):
        gradclip.clip_grad_norm_(embedding.parameters(), 1.0, error_if_nonfinite=True)
