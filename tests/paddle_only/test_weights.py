"""gradclip never writes to a tensor that is not a gradient: leaves that require a gradient, buffers, states, losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import pytest
from weights import CALLS, RULES, keeps

import gradclip
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(1.0)


def leaf() -> Any:
    x = paddle.to_tensor([3.0, 4.0], stop_gradient=False)
    (x * paddle.to_tensor([3.0, 4.0])).sum().backward()
    return x


def trained() -> tuple[Any, Any, Any]:
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 3), paddle.nn.InstanceNorm1D(3), paddle.nn.Linear(3, 1))
    layer.register_buffer("table", paddle.full([2], 3.0))
    optimizer = paddle.optimizer.Adam(parameters=layer.parameters())
    loss = 10 * (layer[2](layer[0](paddle.arange(12, dtype="float32").reshape([4, 3]))) ** 2).sum()
    loss.backward()
    optimizer.step()
    return layer, optimizer, loss


MISTAKES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "layer": lambda layer, optimizer, loss: layer,
    "parameters": lambda layer, optimizer, loss: layer.parameters(),
    "parameters, not called": lambda layer, optimizer, loss: layer.parameters,
    "state_dict": lambda layer, optimizer, loss: layer.state_dict(),
    "optimizer": lambda layer, optimizer, loss: optimizer,
    "optimizer.state_dict": lambda layer, optimizer, loss: optimizer.state_dict(),
    "accumulators": lambda layer, optimizer, loss: states(optimizer),
    "loss": lambda layer, optimizer, loss: loss,
}


def states(optimizer: Any) -> list[Any]:
    return [x for x in optimizer.state_dict().values() if isinstance(x, paddle.Tensor)]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_what_is_no_gradient_is_never_written(mistake: Callable[..., Any], call: Callable[[Any], Any]) -> None:
    layer, optimizer, loss = trained()
    keep = [*layer.parameters(), *layer.buffers(), *states(optimizer), loss]
    keeps(call, mistake(layer, optimizer, loss), lambda: [x.detach().numpy() for x in keep])


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_leaves_are_never_written(call: Callable[[Any], Any]) -> None:
    for wrapped in (lambda x: x, lambda x: [x], lambda x: {"x": x}, lambda x: {"a": [(x,)]}):
        x = leaf()
        keeps(call, wrapped(x), lambda x=x: [x.detach().numpy()])


def test_a_leaf_stands_for_its_gradient() -> None:
    x = leaf()
    assert gradclip.clip_({"x": x}, RULE).norm == 5.0
    assert x.tolist() == [3.0, 4.0]
    assert x.grad.norm().item() <= 1
    assert gradclip.clip([leaf()], RULE).grads[0].norm().item() <= 1


def test_a_gradient_is_no_leaf_though_it_wants_a_derivative() -> None:
    x = leaf()
    gradient = x._grad_ivar()
    assert gradient.is_leaf
    assert not gradient.stop_gradient
    assert gradclip.clip([gradient], RULE).norm == 5.0
    assert gradclip.clip(x.grad, RULE).norm == 5.0


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_leaf_without_a_gradient_is_not_written(rule: gradclip.Rule) -> None:
    """It may be a weight, or a ``.grad`` that an operation used: Paddle does not distinguish them."""
    used = leaf().grad
    assert not (used * 1).stop_gradient
    for x in (paddle.to_tensor([3.0, 4.0], stop_gradient=False), used):
        before = x.tolist()
        with pytest.raises(TypeError, match=r"This leaf requires a gradient and has none(?s:.)*Hint: call backward\(\) first"):
            gradclip.clip_([x], rule)
        assert x.tolist() == before
        assert gradclip.norm(x, RULE) == 5.0
        gradclip.clip_([x.detach()], rule)  # the hint says so
        assert x.norm().item() <= 1


def test_non_leaves_are_gradients() -> None:
    assert gradclip.clip(leaf() * 1, RULE).norm == 5.0


@pytest.mark.parametrize(("mistake", "text"), [
    ("state_dict", "Among parameters, any other tensor is a buffer.\nReceived: an OrderedDict of both\nHint: "),
    ("accumulators", "A buffer or an optimizer's state is not a gradient.\nReceived: persistable, "),
    ("loss", "A loss is not a gradient."),
])  # fmt: skip
def test_what_is_said(mistake: str, text: str) -> None:
    with pytest.raises(TypeError) as raised:
        gradclip.clip_(MISTAKES[mistake](*trained()), RULE)
    assert str(raised.value).startswith(text)
