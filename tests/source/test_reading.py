"""What the reading of a source follows: files, methods, aliases, tests; and that no input makes it slow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gradclip import lint
from gradclip.commands import cli
from gradclip.source.codes import RULES
from gradclip.source.reading import reading

TORCH = "import torch\nfrom torch.nn.utils import clip_grad_norm_\n"
CLIP = "clip_grad_norm_(model.parameters(), 1.0)\n"
SECONDS = 5.0  #: far more than any source takes, also on a machine with other work


def codes(source: str) -> list[str]:
    return sorted(one.code for one in reading(TORCH + source).found)


WRONG = {
    "an alias": "class T:\n    def __init__(self, model):\n        self.net = model\n"
    "        self.opt = torch.optim.SGD(model.parameters())\n"
    "    def fit(self, loss, model):\n        for _ in range(9):\n"
    "            self.opt.zero_grad()\n            loss().backward()\n"
    "            self.opt.step()\n            clip_grad_norm_(self.net.parameters(), 1.0)\n",
    "a closure": "def make(opt):\n    def finish(model):\n        opt.step()\n"
    "        clip_grad_norm_(model.parameters(), 1.0)\n"
    "    return finish\ndef train(model, opt, loss):\n    finish = make(opt)\n    loss.backward()\n    finish(model)\n",
    "keywords": "def finish(model, **rest):\n    rest['opt'].step()\n    " + CLIP + "def train(model, opt, loss):\n"
    "    loss.backward()\n    finish(model, opt=opt)\n",
    "a base class": "class Base:\n    def finish(self):\n        self.opt.step()\n"
    "        clip_grad_norm_(self.model.parameters(), 1.0)\n"
    "class T(Base):\n    def fit(self, loss):\n        loss.backward()\n        super().finish()\n",
    "a partial": "from functools import partial\ndef finish(opt, model):\n    opt.step()\n    "
    + CLIP
    + "def train(model, opt, loss):\n"
    "    loss.backward()\n    partial(finish, opt)(model)\n",
    "one of two equal tests": "def train(model, opt, loss, clip):\n    loss.backward()\n"
    "    if clip is not None:\n        opt.step()\n"
    "        " + CLIP + "    if clip is None:\n        opt.step()\n",
    "after a return": "def train(model, opt, loss, skip):\n    loss.backward()\n"
    "    if skip:\n        return\n    opt.step()\n    " + CLIP,
}
RIGHT = {
    "a clip after micro-batches in a comprehension": "class T:\n    def part(self, x):\n        loss = self.model(x).sum()\n"
    "        loss.backward()\n        return loss.item()\n"
    "    def fit(self, parts):\n        self.opt.zero_grad()\n        total = sum(self.part(x) for x in parts)\n"
    "        clip_grad_norm_(self.model.parameters(), 1.0)\n        self.opt.step()\n        return total\n",
    "two parts made at once, one optimizer": "from torch import nn\nclass Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 1)\n"
    "def train(loss):\n    net = Net()\n    opt = torch.optim.SGD(net.parameters(), 0.1)\n    opt.zero_grad()\n"
    "    loss.backward()\n    clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()\n",
    "opposite tests": "def train(model, opt, loss, late):\n    loss.backward()\n    if late is None:\n        "
    + CLIP
    + "        opt.step()\n"
    "    if late is not None:\n        " + CLIP + "        opt.step()\n",
    "two models with an optimizer each": "def train(a, b, x, y, loss):\n    for _ in range(9):\n        loss(a).backward()\n"
    "        clip_grad_norm_(a.parameters(), 1.0)\n        x.step()\n        x.zero_grad()\n        loss(b).backward()\n"
    "        clip_grad_norm_(b.parameters(), 1.0)\n        y.step()\n        y.zero_grad()\n",
    "a wrapper": "from torch.nn.parallel import DistributedDataParallel\ndef train(model, loss):\n"
    "    opt = torch.optim.SGD(model.parameters())\n    model = DistributedDataParallel(model)\n    loss.backward()\n    "
    + CLIP
    + "    opt.step()\n",
    "an agent that is wrapped": "class Agent(torch.nn.Module):\n    def __init__(self, net):\n"
    "        super().__init__()\n        self.net = net\n"
    "def train(net, loss):\n    agent = Agent(net)\n    opt = torch.optim.SGD(net.parameters())\n    loss.backward()\n"
    "    clip_grad_norm_(agent.parameters(), 1.0)\n    opt.step()\n",
    "no_sync that an argument may turn off": "def train(model, opt, loss, wait):\n    with model.no_sync(wait):\n"
    "        loss.backward()\n    clip_grad_norm_(model.parameters(), 1.0)\n    opt.step()\n",
    "parameters in lists of a dict": "def train(model, scaler, loss):\n    groups = {}\n"
    "    for name, p in model.named_parameters():\n        if kind(name) not in groups:\n"
    "            groups[kind(name)] = {'params': []}\n        groups[kind(name)]['params'].append(p)\n"
    "    opt = torch.optim.SGD(list(groups.values()), 0.1)\n    scaler.scale(loss).backward()\n    scaler.unscale_(opt)\n"
    "    clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step(opt)\n",
    "gradients that are left out of the step": "def train(model, opt, loss):\n    loss.backward()\n"
    "    clip_grad_norm_(model.parameters(), 1.0)\n    for p in model.parameters():\n"
    "        if not torch.isfinite(p.grad).all():\n            p.grad = None\n    opt.step()\n",
    "no_sync in some passes": "import contextlib\ndef train(model, opt, batches, k):\n    for i, loss in enumerate(batches):\n"
    "        with model.no_sync() if (i + 1) % k else contextlib.nullcontext():\n            loss.backward()\n"
    "        if (i + 1) % k == 0:\n            " + CLIP + "            opt.step()\n            opt.zero_grad()\n",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_clip_after_the_step_is_followed(name: str) -> None:
    assert codes(WRONG[name]) == ["GM108"]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_or_unknown_is_silent(name: str) -> None:
    assert codes(RIGHT[name]) == []


OF_TORCH = """class Bounded(torch.autograd.Function):
    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1)
def forward(x):
    h = torch.tanh(x)
    {}Bounded.apply(h)
    return h
"""
OF_JAX = """import jax
@jax.custom_vjp
def bounded(x):
    return x
def backward(_, g):
    return (jax.numpy.clip(g, -1.0, 1.0),)
bounded.defvjp(lambda x: (x, None), backward)
def forward(x):
    {}bounded(x)
    return x
"""


@pytest.mark.parametrize(("source", "taken"), [(OF_TORCH, "h = "), (OF_JAX, "x = ")])
def test_a_function_whose_backward_pass_clips_has_a_result(source: str, taken: str) -> None:
    assert codes(source.format("")) == ["GM105"]
    assert codes(source.format(taken)) == []


def test_a_constraint_of_weights_is_no_limit_of_gradients() -> None:
    source = (
        "import keras\ndef build({0}):\n    return keras.layers.LSTM(8, kernel_constraint=keras.constraints.MaxNorm({0}))\n"
    )
    assert codes(source.format("max_grad_norm")) == ["GM104"]
    assert codes(source.format("max_norm")) == []


def test_a_clip_in_another_file_is_reported_where_it_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "finish.py").write_text(TORCH + f"def end(model):\n    {CLIP}", encoding="utf-8")
    source = "from tools import finish\nfrom tools.finish import end\n"
    source += "def train(model, opt, loss):\n    loss.backward()\n    opt.step()\n    end(model)\n"
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    assert cli.main(["lint", "-j", "1", str(tmp_path / "train.py")]) == 1
    out = capsys.readouterr().out
    assert "train.py:6:5: GM108" in out
    assert "It is in finish.py, line 4." in out
    assert cli.main(["lint", "-j", "1", str(tmp_path / "tools")]) == 0


LATE = "def end(model):\n    " + CLIP
IMPORTED = {
    "through a package": {"tools/__init__.py": "from .finish import *\n", "tools/finish.py": TORCH + LATE},
    "by another name": {"tools.py": "from finish import late as end\n", "finish.py": TORCH + LATE.replace("end", "late")},
    "in a circle": {
        "tools.py": TORCH + "from train import CLIP\nfrom finish import end\n" + LATE,
        "finish.py": "from tools import end\n",
    },
    "on one side of a test": {
        "tools.py": "if PY3:\n    from finish import end\nelse:\n    end = None\n",
        "finish.py": TORCH + LATE,
    },
}


@pytest.mark.parametrize("name", IMPORTED)
def test_a_name_is_followed_through_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = "CLIP = 1.0\nfrom tools import end\nloss.backward()\nopt.step()\nend(model)\n"
    for file, source in {**IMPORTED[name], "train.py": train}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(source, encoding="utf-8")
    assert cli.main(["lint", "-j", "1", str(tmp_path / "train.py")]) == 1
    assert "train.py:5:1: GM108" in capsys.readouterr().out


def test_a_long_file_that_is_imported_ends_no_way(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("x = 1\n" * 2000, encoding="utf-8")
    source = TORCH + "from settings import x\nfor batch in loader:\n    loss(batch, x).backward()\n    opt.step()\n    " + CLIP
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    assert cli.main(["lint", "-j", "1", str(tmp_path / "train.py")]) == 1


def test_a_mistake_is_reported_in_the_file_that_shows_it_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "finish.py").write_text(TORCH + f"def end(model, opt):\n    opt.step()\n    {CLIP}", encoding="utf-8")
    source = (
        "from finish import end\ndef train(model, opt, loss):\n    loss.backward()\n    end(model, opt)\n    opt.zero_grad()\n"
    )
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    assert cli.main(["lint", "-j", "1", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "finish.py:5:5: GM108" in out
    assert out.count("GM108 error") == 1


HOSTILE = {
    "calls": "".join(f"def f{i}(m, o):\n    f{i + 1}(m, o)\n    f{i + 1}(m, o)\n" for i in range(30))
    + "def f30(m, o):\n    o.step()\n",
    "lambdas": "f0 = lambda o: o.step()\n"
    + "".join(f"f{i} = lambda o: (f{i - 1}(o), f{i - 1}(o), f{i - 1}(o))\n" for i in range(1, 30)),
    "pairs": "x = loss\n" + "x = (x, x)\n" * 200 + "if x:\n    opt.step()\n",
    "sums": "x = [p]\n" + "x = x + x\n" * 200,
    "keys": "x = loss\n" + "x = x[x]\n" * 200 + "if x:\n    opt.step()\n",
    "tests": "def f(m, opt, loss):\n    loss.backward()\n" + "".join(f"    if t{i}:\n        opt.step()\n" for i in range(200)),
    "loops": "".join(f"{'    ' * i}for i{i} in a:\n" for i in range(15)) + "    " * 15 + "opt.step()\n",
    "itself": "def f(m, opt):\n    f(m, opt)\n    opt.step()\n",
    "lists": "x = [a, b, c, d]\n"
    + "y = [[[[[[[[p for p in x] for p in x] for p in x] for p in x] for p in x] for p in x] for p in x] for p in x]\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_source_takes_long(name: str) -> None:
    source = TORCH + HOSTILE[name] + f"loss.backward()\n{CLIP}opt.step()\n"
    began = time.process_time()
    reading(source)
    assert time.process_time() - began < SECONDS


def test_lint_shows_what_the_reading_finds() -> None:
    source = TORCH + WRONG["a closure"]
    assert [site.code for site in lint.of_source(source) if site.code in RULES] == ["GM108"]


def test_a_source_that_is_not_python_shows_nothing() -> None:
    assert reading("print x").found == ()


def test_equal_calls_of_a_predicate_are_equal_tests() -> None:
    source = (
        "import tensorflow as tf\ndef step(opt, tape, loss, v):\n    scaled = loss\n"
        "    if isinstance(opt, tf.keras.mixed_precision.LossScaleOptimizer):\n        scaled = opt.get_scaled_loss(loss)\n"
        "    grads = tape.gradient(scaled, v)\n    if {}:\n"
        "        grads = opt.get_unscaled_gradients(grads)\n"
        "    grads, _ = tf.clip_by_global_norm(grads, 1.0)\n    opt.apply_gradients(zip(grads, v))\n"
    )
    assert codes(source.format("isinstance(opt, tf.keras.mixed_precision.LossScaleOptimizer)")) == []
    assert codes(source.format("isinstance(opt, tf.keras.optimizers.Adam)")) == ["GM107"]


OTHER_WRONG = {
    "micro-batches in a comprehension": "class T:\n    def part(self, x):\n        loss = self.model(x).sum()\n"
    "        loss.backward()\n        clip_grad_norm_(self.model.parameters(), 1.0)\n        return loss.item()\n"
    "    def fit(self, parts):\n        self.opt.zero_grad()\n        total = sum(self.part(x) for x in parts)\n"
    "        self.opt.step()\n        return total\n",
    "a copy of a model whose parts are made at once": "import copy\nfrom torch import nn\nclass Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 1)\n"
    "class T:\n    def __init__(self):\n        self.net = Net()\n        self.target = copy.deepcopy(self.net)\n"
    "        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)\n    def fit(self, loss):\n"
    "        self.opt.zero_grad()\n        loss.backward()\n        clip_grad_norm_(self.target.parameters(), 1.0)\n"
    "        self.opt.step()\n",
}


@pytest.mark.parametrize(("name", "code"), [*zip(OTHER_WRONG, ["GM119", "GM118"], strict=True)])
def test_what_is_made_or_run_within_an_expression_is_followed(name: str, code: str) -> None:
    assert codes(OTHER_WRONG[name]) == [code]
