"""Groups by the names of Paddle's parameters, in pairs and in an optimizer's slot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import pytest
from oracle import ulps
from paddle_programs import static_mode

import gradclip
from gradclip import Group
from gradclip.backends.paddle import grad_clip
from gradclip.dialects import optax

VALUES = {"encoder.w": [3.0, 4.0], "encoder.b": [12.0], "head.w": [8.0]}


def parameters() -> list[Any]:
    made = []
    for i, (name, values) in enumerate(VALUES.items()):
        start = paddle.nn.initializer.Constant(0.0)
        p = paddle.create_parameter([len(values)], "float32", name=f"{name}_{paddle.utils.unique_name.generate(str(i))}")
        start(p)
        p.grad = paddle.to_tensor(values)
        made.append(p)
    return made


GROUPS = [Group(optax.clip_by_global_norm(1.3), "encoder.*", counted=["encoder.*", "head.w*"])]


def test_pairs_are_known_by_the_names_of_their_parameters() -> None:
    params, seen = parameters(), []
    pairs = [(p, p.grad) for p in params]
    result = gradclip.clip(pairs, GROUPS)
    assert all(a is b for (a, _), b in zip(result.grads, params, strict=True))
    factor = 1.3 / math.hypot(*(x for values in VALUES.values() for x in values))
    for (_, got), x, by in zip(result.grads, VALUES.values(), (factor, factor, 1.0), strict=True):
        assert ulps(got.numpy(), np.array(x) * by, "float32") <= 4
    gradclip.norm(pairs, Group(optax.clip_by_global_norm(1.0), lambda name, p: seen.append((name, p)) is None))
    assert all(name == p.name and p is q for (name, p), q in zip(seen, params, strict=True))
    by_key = dict(zip(VALUES, params, strict=True))
    for pattern in ("encoder.w", params[0].name):
        assert gradclip.norm(by_key, Group(optax.clip_by_global_norm(1.0), pattern)) == 5.0


def test_in_the_slot_of_an_optimizer() -> None:
    params = parameters()
    params[1].need_clip = False
    groups = Group(optax.clip_by_global_norm(1.0), "encoder.*")
    paddle.optimizer.SGD(learning_rate=1.0, parameters=params, grad_clip=grad_clip(groups)).step()
    for p, want in zip(params, ([-0.6, -0.8], [-12.0], [-8.0]), strict=True):
        assert ulps(p.numpy(), np.array(want), "float32") <= 4
    with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
        grad_clip(["encoder.*"])


@pytest.mark.parametrize("missing", ["a gradient", "a parameter group", "need_clip"])
def test_a_pattern_may_match_nothing_in_a_step(missing: str) -> None:
    """The slot may receive only some of the parameters that the patterns are for."""
    params = parameters()
    if missing == "a gradient":
        params[2].clear_gradient(False)
    if missing == "need_clip":
        params[2].need_clip = False
    given = [{"params": params[:2]}, {"params": params[2:]}] if missing == "a parameter group" else params
    groups = [Group(optax.clip_by_global_norm(1.3), "encoder.*"), Group(optax.clip_by_global_norm(2.0), "head.*")]
    paddle.optimizer.SGD(learning_rate=1.0, parameters=given, grad_clip=grad_clip(groups)).step()
    head = {"a gradient": 0.0, "a parameter group": -2.0, "need_clip": -8.0}[missing]
    for p, want in zip(params, ([-0.3, -0.4], [-1.2], [head]), strict=True):
        assert ulps(p.numpy(), np.array(want), "float32") <= 4


@pytest.mark.parametrize(
    "form", [list, tuple, iter, lambda pairs: list(map(list, pairs)), lambda pairs: tuple(map(list, pairs))]
)
def test_the_norms_of_pairs_have_the_names_of_their_parameters(form: Any) -> None:
    params = parameters()
    left_out, no_gradient = parameters()[:2]
    left_out.need_clip = False
    pairs = [*((p, p.grad) for p in params), (left_out, left_out.grad), (no_gradient, None)]
    found = gradclip.norms_by_name(form(pairs))
    assert list(found) == [p.name for p in params]
    assert [float(n) for n in found.values()] == [5.0, 12.0, 8.0]
    assert [tuple(n.shape) for n in found.values()] == [(), (), ()]


def test_pairs_may_be_lists() -> None:
    params = parameters()
    params[2].need_clip = False
    pairs = [[p, p.grad] for p in params]
    result = gradclip.clip(pairs, optax.clip_by_global_norm(6.5))
    assert float(result.norm) == 13.0
    assert [type(pair) for pair in result.grads] == [list] * 3
    assert all(mine is p for (mine, _), p in zip(result.grads, params, strict=True))
    assert [g.tolist() for _, g in result.grads] == [[1.5, 2.0], [6.0], params[2].grad.tolist()]
    gradclip.clip_(pairs, optax.clip_by_global_norm(6.5))
    assert params[0].grad.tolist() == [1.5, 2.0]


@pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
def test_the_norms_of_the_pairs_of_a_program() -> None:
    with static_mode():
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            weight = paddle.static.create_parameter([2], "float32")
            pairs = paddle.static.append_backward((weight * paddle.assign(np.array([3.0, 4.0], "float32"))).sum())
            found = gradclip.norms_by_name(pairs)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        (norm,) = executor.run(main, fetch_list=list(found.values()))
    assert list(found) == [weight.name]
    assert float(norm) == 5.0
