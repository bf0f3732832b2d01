"""What the migration says of a clip that it names: the call for its case, and why a file or a call stays."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from migrate.codemods import migrate, rewritten

from gradclip.migrate.codemod import migrate_source
from gradclip.source.files import Found
from gradclip.source.model import Options, SourceError, Verdict
from gradclip.source.notebook import Notebook
from gradclip.source.project import survey
from gradclip.source.runner import Request, migrate_file

SCALE = "    c = max_norm / (total_norm + 1e-6)\n    if c < 1:\n        for p in params:\n            p.grad.mul_(c)\n"
#: a norm of gradients that is another by the time it divides
GIVEN = {
    "an argument": "def clip(params, max_norm, total_norm):\n" + SCALE,
    "what a function returns": "def clip(params, max_norm):\n    total_norm = grad_norm(params)\n" + SCALE,
    "a reduction that returns": "def clip(params, max_norm):\n    total_norm = sum(p.grad.norm() ** 2 for p in params)\n"
    "    total_norm = summed(total_norm)\n    total_norm = total_norm ** 0.5\n" + SCALE,
    "a reduction of some": "def clip(params, max_norm):\n    total = sum(p.grad.norm() ** 2 for p in params if p.counts)\n"
    "    dist.all_reduce(total)\n    total_norm = total ** 0.5\n" + SCALE,
    "a product": "def clip(params, max_norm, size):\n    total_norm = sum(p.grad.norm() ** 2 for p in params) ** 0.5\n"
    "    total_norm *= size\n" + SCALE,
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_norm_that_is_given_or_reduced_goes_to_the_call_that_takes_one(kind: str) -> None:
    [site] = migrate(f"import torch\nimport torch.distributed as dist\n\n\n{GIVEN[kind]}").sites
    assert site.code == "GM402"
    assert "gradclip.clip_grads_with_norm_(params, max_norm, " in site.advice


def test_arrays_that_do_not_change_get_the_call_that_returns_them() -> None:
    source = "import jax\n\n\ndef clip(grads, max_norm, grad_norm):\n    c = max_norm / grad_norm\n"
    source += "    return jax.tree.map(lambda g: g * jax.numpy.minimum(1.0, c), grads)\n"
    [site] = [one for one in migrate(source).sites if one.code == "GM402"]
    assert "gradclip.scale_by_norm(grads, " in site.advice


def test_a_clip_of_examples_is_called_so() -> None:
    source = "import torch\n\n\ndef clip(grads, per_sample_norms, max_grad_norm):\n"
    source += (
        "    factor = (max_grad_norm / (per_sample_norms + 1e-6)).clamp(max=1.0)\n    return [g * factor for g in grads]\n"
    )
    [site] = [one for one in migrate(source).sites if one.code == "GM402"]
    assert "by its own norm" in site.reason
    assert "per_example_global_norm_clip" in site.advice


def test_modules_of_fully_shard_are_not_sent_to_a_method_that_they_lack() -> None:
    source = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel, fully_shard\n\n\ndef step(model):\n"
    source += "    fully_shard(model)\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    [site] = migrate(source).sites
    assert site.code == "GM109"
    assert "Use gradclip.clip_grad_norm_, or torch's, on what fully_shard wraps" in site.advice


@pytest.mark.parametrize("target", ["self.model.optimizer.clipnorm", "opt.clipnorm", "model.optimizer.clipnorm"])
def test_a_limit_that_a_callback_sets_keeps_the_keyword(target: str) -> None:
    """The optimizer of a rewritten ``compile`` has no ``clipnorm`` that a callback could set."""
    keras = "import keras\n\n\ndef change(self, model, opt):\n    TARGET = 1.0\n\n\n"
    keras += "made = keras.optimizers.SGD(0.1, clipnorm=5.0)\n"
    migrated = migrate(keras.replace("TARGET", target))
    assert rewritten(migrated) == []
    assert [one.code for one in migrated.sites] == ["GM504", "GM504"]
    assert f"`{target}` sets it too" in migrated.sites[1].reason
    assert rewritten(migrate(keras.replace("TARGET", "self.clipnorm"))) == ["GK301"]
    assert rewritten(migrate(keras.replace("TARGET", "opt.clipvalue"))) == ["GK301"]


@pytest.mark.parametrize("imports", [True, False])
def test_a_limit_that_another_file_of_the_program_sets_keeps_the_keyword(imports: bool, tmp_path: Path) -> None:
    train, other = tmp_path / "train.py", tmp_path / "callbacks.py"
    train.write_text("import keras\nfrom callbacks import Change\n" + "made = keras.optimizers.SGD(0.1, clipnorm=5.0)\n")
    other.write_text("def change(model):\n    model.optimizer.clipnorm = 1.0\n")
    if not imports:
        train.write_text(train.read_text().replace("from callbacks", "from elsewhere"))
    about = survey([Found(str(one)) for one in (train, other)])
    request = Request(Options(), about=about)
    [place] = migrate_file(str(train), request, migrate_source).places
    assert (place.site.outcome is Verdict.REWRITTEN) is not imports
    assert ("`model.optimizer.clipnorm` in callbacks.py sets it too" in place.site.reason) is imports


def test_an_import_goes_among_those_of_other_packages() -> None:
    source = "import math\nimport os\n\nimport numpy as np\nimport scipy\n\nfrom .mine import x\n\n\ndef clip(grad, c):\n"
    source += "    n = math.sqrt(np.sum(np.square(grad)))\n    return grad * c / max(n, c)\n"
    assert "import os\n\nimport gradclip\nimport numpy as np\nimport scipy\n" in migrate(source).source


@pytest.mark.parametrize("dtype", [".astype(np.float32)", ""])
def test_a_product_of_two_dtypes_gets_a_line(dtype: str) -> None:
    source = f"import numpy as np\n\n\ndef clip(grad, c):\n    n = np.linalg.norm(grad{dtype})\n"
    [site] = migrate(source + "    return grad * c / np.maximum(n, c)\n").sites
    assert site.outcome is Verdict.REWRITTEN
    assert ("keeps each gradient's" in site.assumption) is bool(dtype)


def test_a_norm_of_each_parameter_is_called_so() -> None:
    source = "import torch\n\n\ndef clip(params, limits):\n    for p, c in zip(params, limits):\n        n = p.grad.norm()\n"
    [site] = migrate(source + "        if n > c:\n            p.grad.mul_(c / n)\n").sites
    assert (site.code, site.outcome) == ("GM402", Verdict.MANUAL)
    assert site.reason == "Each gradient is clipped by its own norm, written out."
    assert "gradclip.dialects.paddle.clip_grad_by_norm(c)" in site.advice


def test_what_scales_gradients_without_a_bound_has_its_reason() -> None:
    source = "import torch\n\n\ndef unit(params):\n    for p in params:\n        n = p.grad.norm()\n        if n > 0:\n"
    [site] = migrate(source + "            p.grad.mul_(1 / n)\n").sites
    assert (site.code, site.outcome) == ("GM112", Verdict.UNCHANGED)
    assert "nothing bounds it by its own limit" in site.reason


@pytest.mark.parametrize(
    "cell",
    [
        "from __future__ import print_function\nx = 1",
        "# a comment\nfrom __future__ import annotations, division  # why\nx = 1",
        "\nfrom __future__ import annotations\n",
    ],
)
def test_a_future_import_in_a_later_cell_keeps_a_notebook_readable(cell: str) -> None:
    clip = "import torch\ntorch.nn.utils.clip_grad_norm_(p, 1.0)"
    cells = [{"cell_type": "code", "source": text} for text in ("x = 0", cell, clip)]
    notebook = Notebook(json.dumps({"cells": cells}))
    migrated = migrate(notebook.program)
    assert rewritten(migrated) == ["GT101"]
    after = json.loads(notebook.replaced(migrated.source))["cells"]
    assert after[1]["source"] == cell
    assert "gradclip.clip_grad_norm_(p, 1.0)" in after[2]["source"]


def test_an_import_goes_below_a_future_import_in_its_cell() -> None:
    cell = "from __future__ import annotations\nimport torch\ntorch.nn.utils.clip_grad_norm_(p, 1.0)"
    notebook = Notebook(json.dumps({"cells": [{"cell_type": "code", "source": cell}]}))
    [after] = json.loads(notebook.replaced(migrate(notebook.program).source))["cells"]
    assert after["source"].startswith("from __future__ import annotations\nimport gradclip\n")


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("type X = int\n", (3, 12)),
        ("def f[T](x: T) -> T: ...\n", (3, 12)),
        ("class A[T]: ...\n", (3, 12)),
        ("def f[T = int](x: T) -> T: ...\n", (3, 13)),
        ("x = t'{1}'\n", (3, 14)),
        ("try:\n    f()\nexcept ValueError, TypeError:\n    pass\n", (3, 14)),
    ],
)
def test_syntax_of_a_newer_python_is_called_so(source: str, needs: tuple[int, int], tmp_path: Path) -> None:
    clip = f"import torch\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n{source}"
    if sys.version_info[:2] >= needs:
        migrate(clip)
        return
    said = rf"needs Python {needs[0]}\.{needs[1]} to be read; this is 3\.\d+"
    with pytest.raises(SourceError, match=f"It {said}\\."):
        migrate(clip)
    (tmp_path / "x.py").write_text(clip)
    assert re.fullmatch(said, migrate_file(str(tmp_path / "x.py"), Request(Options()), migrate_source).error)


@pytest.mark.parametrize(
    "source",
    [
        "def f(:\n    pass\n",
        "class A[\n",
        "x = = 1\n",
        "print 'clip'\n",
        "try:\n    f()\nexcept E, e:\n    pass\n",
        "try:\n    f()\nexcept E, F:\n    print 1\n",
    ],
)
def test_what_no_python_reads_is_not_called_newer(source: str) -> None:
    with pytest.raises(SourceError, match="It is not Python 3"):
        migrate(f"import torch\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n{source}")


#: clips that nothing proves: each is named at its division
NAMED = {
    "a coefficient that is returned": "def factor(parameters, limit):\n    total = torch.zeros(())\n    for p in parameters:\n"
    "        total += p.grad.square().sum()\n    return min(1.0, (limit / (total.sqrt() + 1e-20)).item())\n",
    "a coefficient in an attribute": "class Opt:\n    def measure(self):\n"
    "        n = torch.stack([p.grad.norm() for p in self.ps]).norm()\n"
    "        self.clip_coef = torch.clamp(self.max_norm / (n + 1e-6), max=1.0)\n",
    "items of updates": "def clip(updates, max_norm):\n    n = jax.numpy.sqrt(sum((u ** 2).sum() for u in updates))\n"
    "    return [jax.lax.select(n < max_norm, t, (t / n) * max_norm) for t in updates]\n",
    "a root alone": "def clip(params, limit):\n    s = 0.0\n    for p in params:\n        s += float((p.grad ** 2).sum())\n"
    "    if s > limit ** 2:\n        k = limit / math.sqrt(s)\n        for p in params:\n            p.grad *= k\n",
    "a norm of any order": "def clip(params, max_norm, norm_type):\n    total_norm = 0.0\n    for p in params:\n"
    "        total_norm += p.grad.norm(norm_type) ** norm_type\n    total_norm = total_norm ** (1.0 / norm_type)\n"
    "    c = max_norm / total_norm\n    if c < 1:\n        for p in params:\n            p.grad.mul_(c)\n",
}


@pytest.mark.parametrize("kind", NAMED)
def test_a_clip_that_is_not_proved_is_named_at_its_division(kind: str) -> None:
    source = f"import math\n\nimport jax\nimport torch\n\n\n{NAMED[kind]}"
    [site] = [one for one in migrate(source).sites if one.code == "GM402"]
    assert "norm_type" not in site.text
    assert "/" in source.splitlines()[site.line - 1]


def test_a_limit_that_may_be_missing_is_a_limit() -> None:
    for limit in ("np.inf if limit is None else limit", 'limit if limit is not None else float("inf")'):
        source = f"import numpy as np\n\n\ndef clip(grad, limit):\n    most = {limit}\n    n = np.linalg.norm(grad)\n"
        source += "    if n > most:\n        grad = grad * most / n\n    return grad\n"
        assert rewritten(migrate(source)) == ["GM402"]


@pytest.mark.parametrize(
    ("name", "native"), [("tf", "tensorflow.clip_by_norm"), ("torch.nn", "torch.nn.utils.clip_grad_norm_")]
)
def test_a_native_that_a_module_passes_on_is_named(name: str, native: str) -> None:
    function = native.removeprefix("tensorflow.").removeprefix("torch.nn.")
    [site] = migrate(f"from pkg.env import {name.partition('.')[0]}\n\n{name}.{function}(grads, 1.0)\n").sites
    assert site.code == "GM201"
    assert f"is {native}, if pkg.env.{name.partition('.')[0]}" in site.reason
