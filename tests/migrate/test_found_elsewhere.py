"""What the codemod must not break or miss: imports for other files, replaced functions, clips in other forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from migrate.codemods import manual, migrate, rewritten

from gradclip.commands import cli
from gradclip.migrate import codemod
from gradclip.source.codes import CODES
from gradclip.source.files import Found
from gradclip.source.model import Options, SourceError, Verdict
from gradclip.source.project import survey

TORCH = "import torch\n"
IMPORT = "from torch.nn.utils import clip_grad_norm_\n"
BASE = IMPORT + "clip_grad_norm_(params, 1.0)\n"

# ---- imports for other files ---------------------------------------------------------------------------------------------

WANTS = {
    "relative": "from .base import clip_grad_norm_\n",
    "absolute": "from pkg.base import (\n    other,  # a, b\n    clip_grad_norm_ as clip,\n)\n",
    "continued": "from pkg.base import other, \\\n    clip_grad_norm_\n",
    "star": "from .base import *\n",
    "attribute": "from pkg import base\nbase.clip_grad_norm_(p, 1.0)\n",
    "alias": "import pkg.base as b\nb.clip_grad_norm_(p, 1.0)\n",
}


@pytest.mark.parametrize("name", WANTS)
def test_an_import_that_another_file_of_the_run_wants_stays(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "user.py").write_text(WANTS[name])
    assert cli.main(["migrate", "--write", "-j", "1", str(tmp_path)]) == 1
    capsys.readouterr()
    assert (tmp_path / "base.py").read_text() == "import gradclip\n" + IMPORT + "gradclip.clip_grad_norm_(params, 1.0)\n"


@pytest.mark.parametrize("other", ["from .base import other\n", "from .more import clip_grad_norm_\n", "x = 1\n"])
def test_an_import_that_no_other_file_wants_goes(other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "user.py").write_text(other)
    cli.main(["migrate", "--write", "-j", "1", str(tmp_path)])
    capsys.readouterr()
    assert IMPORT not in (tmp_path / "base.py").read_text()


def test_a_package_is_imported_by_the_name_of_its_folder_or_a_dot(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    paths = [tmp_path / "pkg" / "__init__.py", tmp_path / "pkg" / "a.py", tmp_path / "b.py"]
    for path, text in zip(paths, [BASE, "from . import one\n", "from pkg import two\n"], strict=True):
        path.write_text(text)
    about = survey([Found(str(path)) for path in paths])
    assert about[str(paths[0])].kept == {"one", "two"}
    assert str(paths[2]) not in about


@pytest.mark.parametrize("package", [True, False])
def test_a_module_of_another_package_is_no_framework(package: bool, tmp_path: Path) -> None:
    """``book/tensorflow.py`` is ``book.tensorflow``, not what ``import tensorflow`` in another folder means."""
    book, other = tmp_path / "book", tmp_path / "other"
    book.mkdir()
    other.mkdir()
    (book / "tensorflow.py").write_text("import tensorflow as tf\nlayer = tf.keras.layers.Embedding(9, 2)\n")
    if package:
        (book / "__init__.py").touch()
    source = "import tensorflow as tf\nloss(model)\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n"
    (other / "train.py").write_text(source)
    cli.main(["migrate", "--write", "-j", "1", str(tmp_path)])
    assert ((other / "train.py").read_text() == source) is not package


def test_an_import_in_a_function_goes_whatever_others_want() -> None:
    source = "def f(p):\n    from torch.nn.utils import clip_grad_norm_\n    clip_grad_norm_(p, 1.0)\n"
    assert "torch" not in migrate(source, kept=["clip_grad_norm_"]).source


# ---- replaced functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "replacing",
    [
        "torch.nn.utils.clip_grad_norm_ = mine\n",
        "torch.nn.utils.clip_grad.clip_grad_norm_ = mine\n",
        'mock.patch("torch.nn.utils.clip_grad_norm_")\n',
        'mock.patch.object(torch.nn.utils, "clip_grad_norm_")\n',
        'setattr(torch.nn.utils, "clip_grad_norm_", mine)\n',
    ],
)
def test_a_function_that_is_replaced_is_left(replacing: str) -> None:
    migrated = migrate(TORCH + replacing + "torch.nn.utils.clip_grad_norm_(p, 1.0)\ntorch.nn.utils.clip_grad_value_(p, 1.0)\n")
    assert manual(migrated) == ["GM201", "GM201"]
    assert [site.line for site in migrated.sites] == [2, 3, 4]
    assert len(rewritten(migrated)) == 1


# ---- sources that only LibCST reads --------------------------------------------------------------------------------------


def test_what_only_libcst_reads_is_refused() -> None:
    source = IMPORT + "try:\n    clip_grad_norm_(p, 1.0)\nexcept Exception, Error:\n    print 1\n"
    with pytest.raises(SourceError, match="not Python 3"):
        codemod.migrate_source(source, Options())


# ---- clips in other forms ------------------------------------------------------------------------------------------------

MENTIONED = {
    "a coefficient": ("coef = 1.0 / (total + 1e-6)\nif coef < 1:\n    for p in ps:\n        p.grad.mul_(coef)\n", "GM402"),
    "a hook": ("p.register_hook(lambda g: g.clamp(-1, 1))\n", "GM401"),
    "a hook's function": (TORCH + "p.register_hook(lambda x: torch.clamp(x, -1, c))\n", "GM401"),
    "foreach": (TORCH + "torch._foreach_clamp_max_(grads, 1.0)\n", "GM401"),
    "an attribute": ("opt.clipnorm = 1.0\n", "GM504"),
    "a dict of settings": ("opts = dict(learning_rate=1e-3, clipnorm=1.0)\n", "GM504"),
    "eval": (TORCH + 'eval("torch.nn.utils.clip_grad_norm_(p, 1.0)")\n', "GM210"),
    "a qualified name": ('load("torch.nn.utils.clip_grad_norm_")\n', "GM210"),
    "nested": ("import tensorflow as tf\ngrads = tf.minimum(tf.maximum(grads, -1), 1)\n", "GM401"),
    "super": (
        "from tensorflow import keras\nclass A(keras.optimizers.Adam):\n    def __init__(self):\n"
        "        super().__init__(clipnorm=1.0)\n",
        "GM211",
    ),
    "a name in the settings": (
        "import paddle\nassert settings['name'] in ('ClipGradByNorm', 'ClipGradByValue')\n"
        "clip = getattr(paddle.nn, settings.pop('name'))(**settings)\n",
        "GM210",
    ),
    "getattr": ("import tensorflow as tf\nopt = getattr(tf.keras.optimizers, name)(clipnorm=1.0)\n", "GM211"),
}


@pytest.mark.parametrize("name", MENTIONED)
def test_a_clip_in_other_words_is_mentioned(name: str) -> None:
    source, code = MENTIONED[name]
    migrated = migrate(source)
    assert manual(migrated) == [code]
    assert migrated.source == source


def test_a_name_that_no_clip_has_is_looked_up_in_peace() -> None:
    assert migrate("import paddle\nlayer = getattr(paddle.nn, name)(clip)\nother = getattr(paddle.nn, 'ReLU')\n").sites == ()


def test_a_coefficient_in_a_clamp_is_one_place() -> None:
    (site,) = migrate(TORCH + "def f(self, grad_norm):\n    return torch.clamp(self.max_norm / grad_norm, max=1.0)\n").sites
    assert site.code == "GM402"


OWN = {
    "an optimizer's default": "def f(max_grad_norm):\n    return {'max_grad_norm': max_grad_norm}\n",
    "any dictionary": "config = {'max_grad_norm': 1.0}\nother = 1\n",
    "any dictionary of another key": "def f(c):\n    return {'gradient_clipping': c}\n",
    "a setting that the source reads": "config = {'max_grad_norm': 1.0}\nlimit = config['max_grad_norm']\n",
}
FOR_A_TRAINER = {
    "a setting": "import transformers\nconfig = {'max_grad_norm': 1.0}\n",
    "a setting beside others that are read": "import trl\nconfig = {'max_grad_norm': 1.0, 'a': 2}\nconfig['a'] + config[0]\n",
    "an argument": "arguments = TrainingArguments(**{'max_grad_norm': 1.0})\n",
    "a setting beside a trainer's": "config = {'max_grad_norm': 1.0, 'per_device_train_batch_size': 8}\n",
    "an engine's": "def f(c):\n    return {'gradient_clipping': c, 'zero_optimization': {'stage': 2}}\n",
    "an engine's by its name": "ds_config = {'gradient_clipping': 1.0}\n",
}


@pytest.mark.parametrize("name", [*OWN, *FOR_A_TRAINER])
def test_a_setting_is_for_a_trainer_or_for_the_source_itself(name: str) -> None:
    (site,) = migrate({**OWN, **FOR_A_TRAINER}[name]).sites
    assert (site.code == "GM207") == (name in OWN)


def test_a_module_that_offers_many_clips_gets_one_warning() -> None:
    source = "from torch.nn import utils\nclip = utils.clip_grad_norm_\nother = utils.clip_grad_value_\n"
    source += "def f():\n    inner = utils.clip_grad_norm_\n    return inner\n"
    sites = migrate(source).sites
    assert [(site.code, site.outcome) for site in sites] == [
        ("GM205", Verdict.MANUAL),
        ("GM205", Verdict.UNCHANGED),
        ("GM205", Verdict.MANUAL),
    ]


@pytest.mark.parametrize(("given", "code"), [({}, "GM005"), ({"norms": True}, "GM205"), ({"to": "torch"}, "GM205")])
def test_a_norm_that_is_handed_on_measures(given: dict[str, object], code: str) -> None:
    (site,) = migrate("import jax, optax\nnorms = jax.vmap(optax.global_norm)(grads)\n", **given).sites
    assert site.code == code


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("from stable_baselines3 import PPO\nmodel = PPO(env, max_grad_norm=0.5)\n", "GM502"),
        ("model = PPO(env, max_grad_norm=0.5)\n", "GM502"),
        ("from agents.algorithm import PPO\nmodel = PPO(env, max_grad_norm=0.5)\n", "GM207"),
        ("from project import Trainer\ntrainer = Trainer(max_grad_norm=0.5)\n", "GM502"),
    ],
)
def test_an_agent_of_the_project_reads_its_limit_itself(source: str, code: str) -> None:
    (site,) = migrate(source).sites
    assert site.code == code


@pytest.mark.parametrize(
    ("call", "bounds"),
    [
        ("torch._foreach_clamp_max_(grads, 1.0)", '(float("-inf"), 1.0)'),
        ("torch._foreach_clamp_min_(grads, -1.0)", '(-1.0, float("inf"))'),
        ("p.grad.clamp_(max=1.0)", '(float("-inf"), 1.0)'),
        ("p.grad.clamp_(max=2.0, min=-1.0)", "(-1.0, 2.0)"),
        ("torch.clamp(p.grad, None, 1.0, out=p.grad)", '(float("-inf"), 1.0)'),
    ],
)
def test_the_bounds_of_a_clamp_are_on_their_sides(call: str, bounds: str) -> None:
    (site,) = migrate(f"{TORCH}{call}\n").sites
    assert f"clip_by_value{bounds}" in site.advice


@pytest.mark.parametrize(
    "source",
    [
        "inverse = 1.0 / scale\np.grad.mul_(inverse)\n",
        "coef = 1.0 / total\nif coef < 1:\n    image.mul_(coef)\n",
        "import tensorflow as tf\nx = tf.minimum(tf.maximum(x, -1), 1)\n",
        "normed_grad = update / denominator\nnormed_grad.clamp_(-clip, clip)\n",
        "class A:\n    def __init__(self, clipnorm):\n        self.clipnorm = clipnorm\n",
        'print("torch.nn.utils.clip_grad_norm_(p, 1.0) is called")\n',
    ],
)
def test_what_is_no_clip_of_a_gradient_is_not_mentioned(source: str) -> None:
    assert manual(migrate(source)) == []


def test_code_in_a_string_keeps_the_import_that_it_uses() -> None:
    source = TORCH + 'torch.nn.utils.clip_grad_value_(p, 1.0)\neval("torch.nn.utils.clip_grad_norm_(p, 1.0)")\n'
    assert TORCH in migrate(source).source


def test_the_superclass_of_the_projects_own_is_the_projects() -> None:
    source = "class A(Base):\n    def __init__(self):\n        super().__init__(clipnorm=1.0)\n"
    assert [site.code for site in migrate(source).sites] == ["GM207"]


# ---- gradclip explain CODE -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    known = CODES[code]
    assert cli.main(["explain", code.lower()]) == 0
    text = capsys.readouterr().out
    assert all(part in text for part in (code, known.title, known.reason, known.advice))
    assert cli.main(["explain", "--json", code]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == known.title


def test_a_code_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "GM999"]) == 2
    assert "Received: GM999" in capsys.readouterr().err
