"""``grad_clip=``: gradclip's classes and any rule in dynamic mode, in programs and under to_static, against Paddle's."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import copies
import numpy as np
import paddle
import pytest
from frameworks.base import release
from frameworks.paddle import framework
from launched import TIME_LIMIT
from oracle import ulps

import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.dialects import optax, tensorflow, torch

# Paddle's own backward pass of a program warns
pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")

CLASSES = [("ClipGradByNorm", (1.0,)), ("ClipGradByGlobalNorm", (1.0,)), ("ClipGradByValue", (0.5, -0.25))]
classes = pytest.mark.parametrize(("name", "arguments"), CLASSES, ids=[name for name, _ in CLASSES])
WEIGHTS = [np.array([[3.0, -4.0]]), np.array([0.5, 0.25]), np.array([[6.0], [8.0]]), np.array([7.0])]


def test_a_native_name_that_is_gradclips_before_its_first_use() -> None:
    """gradclip finds the natives by their base class: by name it would find its own class, and derive it from itself."""
    code = (
        "import paddle, gradclip\n"
        "for name in ('ClipGradByNorm', 'ClipGradByGlobalNorm', 'ClipGradByValue'):\n"
        "    setattr(paddle.nn.clip, name, getattr(gradclip, name)), setattr(paddle.nn, name, getattr(gradclip, name))\n"
        "layer = paddle.nn.Linear(2, 2)\n"
        "clip = paddle.nn.clip.ClipGradByNorm(1.0)\n"
        "trainer = paddle.optimizer.SGD(parameters=layer.parameters(), grad_clip=clip)\n"
        "layer(paddle.ones([1, 2])).sum().backward()\n"
        "trainer.step()\n"
        "print([round(float(c), 4) for c in clip.last.coefficient])\n"
    )
    done = copies.run("paddle", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[0.5, 0.7071]"


def parameters(frozen: int | None = 3) -> list[Any]:
    """Return parameters of zeros; one has ``need_clip=False``."""
    zeros = paddle.nn.initializer.Constant(0.0)
    attributes = [paddle.ParamAttr(initializer=zeros, need_clip=i != frozen) for i in range(4)]
    return [paddle.create_parameter(list(w.shape), "float32", attr=a) for w, a in zip(WEIGHTS, attributes, strict=True)]


def loss_of(weights: list[Any], scale: Any = 1.0) -> Any:
    """Return a loss whose gradients are WEIGHTS times the scale."""
    terms = [(weights[i] * paddle.to_tensor(WEIGHTS[i].astype(np.float32))).sum() * scale for i in range(4)]
    return terms[0] + terms[1] + terms[2] + terms[3]


def dynamic(clip: Any, optimizer: Callable[..., Any], steps: int) -> list[np.ndarray]:
    weights = parameters()
    unused = paddle.create_parameter([2], "float32")  # gets no gradient
    trainer = optimizer(parameters=[*weights, unused], grad_clip=clip)
    for step in range(steps):
        loss_of(weights, 1.0 + step).backward()
        trainer.step()
        trainer.clear_grad()
    return [framework.read(p) for p in weights]


def traced(clip: Any, optimizer: Callable[..., Any], steps: int) -> list[np.ndarray]:
    weights = parameters()
    trainer = optimizer(parameters=weights, grad_clip=clip)

    def loss(scale: Any) -> Any:
        return loss_of(weights, scale)

    compiled = paddle.jit.to_static(loss, full_graph=True)  # Paddle 3.0 finds no function under a decorator and a comment
    for step in range(steps):
        compiled(paddle.to_tensor(1.0 + step)).backward()
        trainer.step()
        trainer.clear_grad()
    return [framework.read(p) for p in weights]


def static(clip: Any, optimizer: Callable[..., Any], steps: int) -> list[np.ndarray]:
    paddle.enable_static()
    try:
        program, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(program, startup):
            weights = parameters()
            scale = paddle.static.data("scale", [], "float32")
            optimizer(grad_clip=clip).minimize(loss_of(weights, scale))
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        for step in range(steps):
            got = executor.run(program, feed={"scale": np.float32(1.0 + step)}, fetch_list=weights)
    finally:
        paddle.disable_static()
    return [np.array(p, np.float64) for p in got]


MODES = {"dynamic": dynamic, "to_static": traced, "static": static}
modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def sgd(**keywords: Any) -> Any:
    return paddle.optimizer.SGD(1.0, **keywords)


@modes
@classes
def test_a_step_is_the_formula(mode: Callable[..., Any], name: str, arguments: tuple[float, ...]) -> None:
    got = mode(getattr(gradclip, name)(*arguments), sgd, 1)
    total = np.sqrt(sum((w**2).sum() for w in WEIGHTS[:3]))
    for i, (after, w) in enumerate(zip(got, WEIGHTS, strict=True)):
        if i == 3:
            want = w
        elif name == "ClipGradByNorm":
            want = w / max(np.linalg.norm(w), 1.0)
        elif name == "ClipGradByGlobalNorm":
            want = w / total
        else:
            want = w.clip(-0.25, 0.5)
        assert ulps(-after, want, "float32") <= 2


OPTIMIZERS = {
    "Momentum": lambda **k: paddle.optimizer.Momentum(0.5, 0.9, **k),
    "AdamW": lambda **k: paddle.optimizer.AdamW(0.5, weight_decay=0.1, **k),
}


@modes
@classes
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_steps_are_the_native_s(mode: Any, name: str, arguments: tuple[float, ...], optimizer: Any) -> None:
    if mode is static and name == "ClipGradByValue":  # Paddle 3.3 does not implement its own in static programs
        with pytest.raises(NotImplementedError):
            mode(paddle.nn.ClipGradByValue(*arguments), optimizer, 3)
        want = dynamic(paddle.nn.ClipGradByValue(*arguments), optimizer, 3)
    else:
        want = mode(getattr(paddle.nn, name)(*arguments), optimizer, 3)
    got = mode(getattr(gradclip, name)(*arguments), optimizer, 3)
    for mine, theirs in zip(got, want, strict=True):
        assert ulps(mine, theirs, "float32") <= 8  # three steps of each optimizer's own arithmetic


@modes
def test_any_rule(mode: Callable[..., Any]) -> None:
    total = np.sqrt(sum((w**2).sum() for w in WEIGHTS[:3]))
    got = mode(grad_clip(torch.clip_grad_norm(2.0)), sgd, 1)
    for after, want in zip(got, [*(w * 2 / (total + 1e-6) for w in WEIGHTS[:3]), WEIGHTS[3]], strict=True):
        assert ulps(-after, want, "float32") <= 2
    rows = mode(grad_clip(tensorflow.clip_by_norm(1.0, axes=[0])), sgd, 1)
    assert ulps(-rows[0], [[1.0, -1.0]], "float32") <= 2
    adaptive = mode(grad_clip(optax.adaptive_grad_clip(0.5)), sgd, 1)  # optax counts a parameter of zeros as 1e-3
    assert ulps(-adaptive[0], [[0.3e-3, -0.4e-3]], "float32") <= 2
    assert ulps(-adaptive[3], WEIGHTS[3], "float32") == 0


def test_a_rule_that_changes_shapes() -> None:
    with pytest.raises(ValueError, match="changes the shape"):
        grad_clip(optax.per_example_global_norm_clip(1.0))
    with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
        grad_clip(1.0)


def test_pairs_hold_their_parameters() -> None:
    """A relative rule reads the parameters in the pairs; it does not clip those with ``need_clip=False``."""
    weights = [paddle.create_parameter([2], "float32", attr=paddle.ParamAttr(need_clip=i != 0)) for i in range(2)]
    weights[1].set_value(paddle.to_tensor([0.6, 0.8]))
    pairs = [(w, paddle.to_tensor([3.0, 4.0])) for w in weights]
    left, clipped = gradclip.clip(pairs, optax.adaptive_grad_clip(1.0)).grads
    assert left[1].tolist() == [3.0, 4.0]
    assert ulps(clipped[1].numpy(), [0.6, 0.8], "float32") <= 2


@pytest.mark.filterwarnings(r"ignore:\s*Non compatible API:Warning")  # Paddle 3.2's own sparse tensors raise it
def test_coo_gradients_are_refused() -> None:
    sparse = paddle.sparse.sparse_coo_tensor([[0, 1]], [3.0, 4.0], [4])
    with pytest.raises(TypeError, match=r"dense or SelectedRows.\nReceived: a sparse COO .*\nHint: call x.to_dense"):
        gradclip.clip([sparse], torch.clip_grad_norm(1.0))


@classes
@pytest.mark.parametrize(
    "which",
    [lambda g: [g, None, g], lambda g: [None, None], lambda g: [g], lambda g: []],
    ids=["some None", "only None", "one", "empty"],
)
@pytest.mark.parametrize("need_clip", [True, False])
def test_pairs_as_the_native(name: str, arguments: tuple[float, ...], which: Callable[..., Any], need_clip: bool) -> None:
    def pairs() -> list[tuple[Any, Any]]:
        made = [None if g is None else paddle.to_tensor(g) for g in which([3.0, 4.0])]
        return [(paddle.create_parameter([2], "float32", attr=paddle.ParamAttr(need_clip=need_clip)), g) for g in made]

    mine_in, theirs_in = pairs(), pairs()
    mine = getattr(gradclip, name)(*arguments)(mine_in)
    theirs = getattr(paddle.nn, name)(*arguments)(theirs_in)
    assert type(mine) is type(theirs) is list
    assert [type(pair) for pair in mine] == [type(pair) for pair in theirs]
    assert [g is None for _, g in mine] == [g is None for _, g in theirs]
    for (_, a), (_, b) in zip(mine, theirs, strict=True):
        if a is not None:
            assert ulps(framework.read(a), framework.read(b), "float32") <= 1
            assert a.stop_gradient == b.stop_gradient
    for (p, a), (q, b) in zip(mine_in, theirs_in, strict=True):
        assert p.need_clip == q.need_clip == need_clip
        if a is not None:  # both write to their arguments, or neither does
            assert ulps(framework.read(a), framework.read(b), "float32") <= 1


def test_a_rule_drops_pairs_without_a_gradient() -> None:
    weight, frozen = paddle.create_parameter([2], "float32"), paddle.create_parameter([2], "float32")
    frozen.need_clip = False
    gradient = paddle.to_tensor([3.0, 4.0])
    got = grad_clip(torch.clip_grad_norm(1.0))([(weight, None), (weight, gradient), (frozen, gradient)])
    assert [p is weight for p, _ in got] == [True, False]
    assert got[1][1] is gradient
    assert gradient.tolist() == [3.0, 4.0]
    assert ulps(framework.read(got[0][1]), [0.6, 0.8], "float32") <= 4


@classes
def test_it_is_a_paddle_clip(name: str, arguments: tuple[float, ...]) -> None:
    ours, theirs = getattr(gradclip, name)(*arguments), getattr(paddle.nn, name)(*arguments)
    assert isinstance(ours, paddle.nn.clip.ClipGradBase)
    assert isinstance(ours, getattr(paddle.nn, name)), "Paddle's distributed optimizers ask for its own classes"
    assert isinstance(ours, getattr(gradclip, name))
    assert type(ours) is type(getattr(gradclip, name)(*arguments))
    assert str(ours) == str(theirs)
    for attribute in vars(theirs):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    for other in (copy.deepcopy(ours), copy.copy(ours), pickle.loads(pickle.dumps(ours)), pickle.loads(pickle.dumps(ours, 2))):
        assert type(other) is type(ours)
        assert other.rule == ours.rule
        assert str(other) == str(ours)
    assert getattr(gradclip, name.replace("ClipGrad", "GradientClip")) is getattr(gradclip, name)


def test_ours_in_the_place_of_paddles() -> None:
    """A separate process replaces the classes before it makes the first object."""
    script = """if True:
        import paddle, gradclip
        from paddle.nn import clip
        for name in ("ClipGradByNorm", "ClipGradByGlobalNorm", "ClipGradByValue"):
            setattr(clip, name, getattr(gradclip, name)); setattr(paddle.nn, name, getattr(gradclip, name))
        made = paddle.nn.ClipGradByNorm(1.0)
        weight = paddle.create_parameter([2], "float32")
        print(isinstance(made, clip.ClipGradBase), made([(weight, paddle.to_tensor([3.0, 4.0]))])[0][1].tolist()[0] < 1)
    """
    done = copies.run("paddle", "-c", script)
    assert done.stdout == "True True\n", done.stderr


def test_a_class_derived_from_ours() -> None:
    class Mine(gradclip.ClipGradByNorm):
        pass

    assert isinstance(Mine(1.0), paddle.nn.ClipGradByNorm)
    assert isinstance(type(Mine(1.0))(1.0), Mine)


def test_a_pickle_opens_without_paddle() -> None:
    code = "import pickle, sys; clip = pickle.loads(bytes.fromhex(sys.argv[1])); print(clip.clip_norm, 'paddle' in sys.modules)"
    data = pickle.dumps(gradclip.ClipGradByNorm(2.0)).hex()
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, data], capture_output=True, text=True, check=True, timeout=TIME_LIMIT
    )
    assert done.stdout == "2.0 False\n"


def test_rules_can_be_copied_and_shown() -> None:
    clip = grad_clip(torch.clip_grad_norm(1.0))
    assert isinstance(clip, paddle.nn.clip.ClipGradBase)
    assert str(clip) == "Gradient Clip By torch.clip_grad_norm"
    assert copy.deepcopy(clip).rule == pickle.loads(pickle.dumps(clip)).rule == clip.rule


@pytest.mark.skipif(release(paddle.__version__) < [3, 2], reason="Paddle 3.0 reduces such norms in static programs only")
def test_sharded_norms_are_left_to_paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle's sharded optimizers set this on the clip, and only Paddle's own clip reduces the norm over their groups."""
    clip = gradclip.ClipGradByGlobalNorm(1.0)
    clip.should_comm_on_shard_dim = True
    clip.sharding_group = "group"
    reduced = []

    def all_reduce(tensor: Any, group: str) -> Mock:
        reduced.append(group)
        return Mock()

    monkeypatch.setattr(paddle.distributed, "all_reduce", all_reduce)
    [(_, got)] = clip([(paddle.create_parameter([2], "float32"), paddle.to_tensor([3.0, 4.0]))])
    assert reduced == ["group"]
    assert ulps(framework.read(got), [0.6, 0.8], "float32") <= 4


@pytest.mark.parametrize("name", ["ClipGradByNorm", "ClipGradByGlobalNorm", "ClipGradByValue"])
def test_signatures(name: str) -> None:
    def bare(kind: Any) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(kind.__init__).parameters.values()]

    assert bare(getattr(gradclip, name)) == bare(getattr(paddle.nn, name))
