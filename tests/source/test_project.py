"""How the files of a run inform each other: sparse gradients of a program, and names that star imports bind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradclip.commands import cli
from gradclip.source.files import discover
from gradclip.source.project import survey

CLIP = (
    "import tensorflow as tf\n\ndef step(loss, v, tape):\n"
    "    grads, _ = tf.clip_by_global_norm(tape.gradient(loss, v), 1.0)\n    return grads\n"
)
SPARSE = {
    "a lookup": "import tensorflow as tf\ne = tf.nn.embedding_lookup(table, ids)\n",
    "a gather of a table": "import tensorflow as tf\ne = tf.gather(self.embedding_table, ids)\n",
    "contrib": "import tensorflow as tf\ne = tf.contrib.layers.embed_sequence(ids)\n",
    "a layer": "from tensorflow import keras\ne = keras.layers.Embedding(9, 9)\n",
    "a layer by its name": "from tensorflow.keras.layers import Dense, Embedding\ne = Embedding(9, 9)\n",
}
DENSE = {
    "a gather of losses": "import tensorflow as tf\ne = tf.gather(losses, ids)\n",
    "a comment": "import tensorflow as tf\n# tf.nn.embedding_lookup(table, ids)\n",
    "an optimizer's table": "def embedding_lookup(x):\n    return x\n",
    "torch's layer": "import torch\ne = torch.nn.Embedding(9, 9)\n",
}


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def sparse(folder: Path, name: str = "clip.py") -> str:
    about = survey(discover([str(folder)]))
    return about[str(folder / name)].sparse if str(folder / name) in about else ""


@pytest.mark.parametrize("name", SPARSE)
def test_a_file_that_the_clipping_file_imports(name: str, tmp_path: Path) -> None:
    write(tmp_path, clip="from model import Model\n" + CLIP, model=SPARSE[name])
    assert sparse(tmp_path).endswith(" in model.py")


@pytest.mark.parametrize("name", SPARSE)
def test_a_program_that_imports_both(name: str, tmp_path: Path) -> None:
    write(tmp_path, clip=CLIP, model=SPARSE[name], run="import clip\nimport model\n")
    assert sparse(tmp_path).endswith(" in model.py")


@pytest.mark.parametrize("name", DENSE)
def test_what_is_no_evidence(name: str, tmp_path: Path) -> None:
    write(tmp_path, clip="from model import Model\n" + CLIP, model=DENSE[name])
    assert sparse(tmp_path) == ""


def test_another_program_is_none(tmp_path: Path) -> None:
    write(tmp_path, clip=CLIP, model=SPARSE["a lookup"], run="import clip\n", other="import model\n")
    assert sparse(tmp_path) == ""


def test_packages_are_followed_and_their_entries_join_no_programs(tmp_path: Path) -> None:
    files = {
        "pkg/__init__": "from .clip import step\nfrom .model import e\n",
        "pkg/clip": CLIP,
        "pkg/model": SPARSE["a lookup"],
    }
    write(tmp_path, **files, run="from pkg.clip import step\n")
    assert sparse(tmp_path, "pkg/clip.py") == ""
    write(tmp_path, **files, run="from pkg import clip, model\n")
    assert sparse(tmp_path, "pkg/clip.py").endswith(" in model.py")
    (tmp_path / "run.py").unlink()
    write(tmp_path, **{"pkg/clip": "from . import model\n" + CLIP})
    assert sparse(tmp_path, "pkg/clip.py").endswith(" in model.py")


RE_EXPORTS = {
    "a package": {"models/__init__": "from models.net import Net\n"},
    "a package of packages": {
        "models/__init__": "from .inner import Net\n",
        "models/inner/__init__": "from ..net import Net\n",
    },
    "another name": {"models/__init__": "from .net import Model as Net\n"},
    "a star": {"models/__init__": "from .net import *\n"},
    "a name of the package itself": {"models/__init__": "from . import net\n\n\ndef Net():\n    return net.Net()\n"},
    "several lines": {"models/__init__": "from .net import (\n    Other,\n    Net,\n)\n"},
    "a continued line": {"models/__init__": "from .net import Other, \\\n    Net\n"},
    "no package file": {},
}
USES = (
    "from models import Net\n",
    "import models\nn = models.Net()\n",
    "import models as m\nn = m.Net()\n",
    "from models import *\n",
)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", RE_EXPORTS)
def test_a_name_that_a_package_re_exports_leads_to_its_file(name: str, use: str, tmp_path: Path) -> None:
    files = {"models/net": SPARSE["a lookup"], "models/other": DENSE["a gather of losses"], **RE_EXPORTS[name]}
    use = use if files.keys() - {"models/net", "models/other"} else "from models import net\n"
    write(tmp_path, **files, clip=CLIP, run=f"import clip\n{use}")
    assert sparse(tmp_path).endswith(" in net.py") or name == "a name of the package itself"
    write(tmp_path, run="import clip\nfrom models import other\n")
    assert sparse(tmp_path) == ""


def test_what_a_package_does_not_pass_on_is_another_program(tmp_path: Path) -> None:
    write(tmp_path, **{"models/__init__": "from .net import Net\nfrom .other import Other\n", "models/net": SPARSE["a lookup"]})
    write(tmp_path, **{"models/other": "", "clip": CLIP, "run": "import clip\nfrom models import Other\n"})
    assert sparse(tmp_path) == ""


@pytest.mark.parametrize("clip", ["import layers\n", "from layers import loss\n", "from . import layers\n"])
def test_projects_of_one_run_are_apart(clip: str, tmp_path: Path) -> None:
    write(tmp_path, **{"A/clip": clip + CLIP, "A/layers": "def loss(): ...\n", "B/layers": SPARSE["a layer"]})
    write(tmp_path, **{"B/pkg/layers": SPARSE["a layer"], "B/run": "import layers\n"})
    assert sparse(tmp_path, "A/clip.py") == ""
    write(tmp_path, **{"A/layers": SPARSE["a layer"]})
    assert sparse(tmp_path, "A/clip.py").endswith(" in layers.py")


def test_a_notebook_is_read_too(tmp_path: Path) -> None:
    write(tmp_path, clip=CLIP, model=SPARSE["a lookup"])
    cell = {"cell_type": "code", "source": ["import clip\n", "from model import e\n"]}
    (tmp_path / "run.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    (tmp_path / "broken.ipynb").write_text("{", encoding="utf-8")
    assert sparse(tmp_path).endswith(" in model.py")


@pytest.mark.parametrize(("model", "code"), [(SPARSE["a lookup"], "MANUAL"), (DENSE["a gather of losses"], "rewritten")])
def test_the_command_leaves_a_clip_by_hand_only_with_evidence(
    model: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, clip="from model import Model\n" + CLIP, model=model)
    cli.main(["migrate", "-j", "1", "--check", str(tmp_path)])
    out = capsys.readouterr().out
    assert f" {code}: tf.clip_by_global_norm" in out.replace("would be rewritten", "rewritten")


@pytest.mark.parametrize("mode", ["", "--write", "--check"])
def test_an_assumption_is_said_in_every_mode(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, clip=CLIP)
    cli.main(["migrate", "-j", "1", *filter(None, [mode]), str(tmp_path)])
    out = " ".join(capsys.readouterr().out.split())
    assert "ssumes dense gradients: in sparse ones (IndexedSlices), gradclip merges duplicate rows first." in out
    assert "clip.py:4:16: GF202" in out


TORCH = "import torch\nfrom torch import nn\nfrom os import *\n"
STARS = {
    "a module": ("base", "import torch\n", "torch.nn.utils.clip_grad_norm_", True),
    "a function": ("base", "from torch.nn.utils import clip_grad_norm_\n", "clip_grad_norm_", True),
    "a function by another name": ("base", "from torch.nn.utils import clip_grad_norm_ as clip_grad_\n", "clip_grad_", True),
    "the file's own": ("base", "def clip_grad_norm_(p, c):\n    pass\n", "clip_grad_norm_", False),
    "a private name": ("base", "import torch as _torch\n", "_torch.nn.utils.clip_grad_norm_", False),
    "a file that lists it in __all__": ("base", "import torch\n__all__ = ['torch']\n", "torch.nn.utils.clip_grad_norm_", True),
    "a list that grows": (
        "base",
        "import torch\n__all__ = ['torch']\n__all__ += []\n",
        "torch.nn.utils.clip_grad_norm_",
        False,
    ),
    "a list that is computed": ("base", "import torch\n__all__ = sorted(x)\n", "torch.nn.utils.clip_grad_norm_", False),
    "a file with __all__": ("base", "import torch\n__all__ = ['x']\n", "torch.nn.utils.clip_grad_norm_", False),
    "what may be one or the other": (
        "base",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
        "torch.nn.utils.clip_grad_norm_",
        False,
    ),
    "a file that cannot be read": ("base", "import torch\nprint 1\n", "torch.nn.utils.clip_grad_norm_", False),
    "no file of the run": ("elsewhere", "", "torch.nn.utils.clip_grad_norm_", False),
    "through another file": ("more", "import torch\n", "torch.nn.utils.clip_grad_norm_", True),
}


@pytest.mark.parametrize("links", [4, 9])
def test_a_long_chain_of_star_imports_and_a_circle(links: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, **{f"m{k}": f"from m{k + 1} import *\n" for k in range(links)}, **{f"m{links}": "import torch\n"})
    write(tmp_path, user="from m0 import *\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n")
    cli.main(["migrate", "-j", "1", "--write", str(tmp_path)])
    assert "gradclip.clip_grad_norm_(" in (tmp_path / "user.py").read_text(encoding="utf-8")
    write(tmp_path, **{f"m{links}": "from m0 import *\n", "user": "from m0 import *\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n"})
    cli.main(["migrate", "-j", "1", "--write", str(tmp_path)])
    assert "gradclip" not in (tmp_path / "user.py").read_text(encoding="utf-8")
    capsys.readouterr()


@pytest.mark.parametrize("name", STARS)
def test_a_star_import_is_followed_through_the_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, text, call, followed = STARS[name]
    if text:
        write(tmp_path, base=text, more="import json\nfrom base import *\n")
    write(tmp_path, user=f"from {module} import *\n\n{call}(model.parameters(), 1.0)\n")
    cli.main(["migrate", "-j", "1", "--write", str(tmp_path / "user.py"), str(tmp_path)])
    capsys.readouterr()
    after = (tmp_path / "user.py").read_text(encoding="utf-8")
    assert ("gradclip.clip_grad_norm_(model.parameters(), 1.0)" in after) is followed
    assert after.startswith("import gradclip\n") is followed


def test_a_star_that_is_known_not_to_bind_a_name_is_no_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, base="import json\n")
    write(
        tmp_path,
        user="from torch.nn.utils import clip_grad_norm_\nfrom base import *\nclip_grad_norm_(model.parameters(), 1.0)\n",
    )
    cli.main(["migrate", "-j", "1", "--write", str(tmp_path)])
    capsys.readouterr()
    assert "gradclip.clip_grad_norm_(" in (tmp_path / "user.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("module", "path"),
    [
        (".base", "pkg/inner/base"),
        ("..base", "pkg/base"),
        ("..common", "pkg/common/__init__"),
        ("pkg.common", "pkg/common/__init__"),
        ("common.base", "pkg/common/base"),
    ],
)
def test_a_star_import_is_followed_through_packages(
    module: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, **{path: "import torch\n", "other/base": "torch = None\n"})
    write(tmp_path, **{"pkg/inner/user": f"from {module} import *\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"})
    cli.main(["migrate", "-j", "1", "--write", str(tmp_path)])
    capsys.readouterr()
    assert "gradclip.clip_grad_norm_(" in (tmp_path / "pkg/inner/user.py").read_text(encoding="utf-8")


def test_two_files_that_a_star_import_can_mean_are_a_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, **{"a/pkg/base": "import torch\n", "b/pkg/base": "import torch\n"})
    write(tmp_path, user="from pkg.base import *\nfrom . import *\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n")
    cli.main(["migrate", "-j", "1", "--write", str(tmp_path)])
    capsys.readouterr()
    assert "gradclip" not in (tmp_path / "user.py").read_text(encoding="utf-8")


# ---- a module of the project that is called gradclip ---------------------------------------------------------------------

TORCH = "import torch\n\ndef clip(model):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
SHADOWED = {
    "beside a script": ({"train": TORCH, "gradclip": "class AutoClip: ...\n"}, True),
    "a package beside a script": ({"train": TORCH, "gradclip/__init__": ""}, True),
    "around the package": ({"lib/train": TORCH, "lib/__init__": "", "gradclip": ""}, True),
    "in the package": ({"lib/train": TORCH, "lib/__init__": "", "lib/gradclip": ""}, False),
    "in the current folder": ({"src/train": TORCH, "gradclip": ""}, True),
    "in another folder": ({"src/train": TORCH, "other/gradclip": ""}, False),
}


@pytest.mark.parametrize("name", SHADOWED)
def test_a_call_stays_where_the_project_has_a_gradclip_of_its_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, is_shadowed = SHADOWED[name]
    monkeypatch.chdir(tmp_path)
    write(tmp_path, **files)
    assert cli.main(["migrate", "--json", "."]) == 1
    (site,) = [site for file in json.loads(capsys.readouterr().out)["files"] for site in file["sites"]]
    assert (site["code"], site["outcome"]) == (("GM201", "manual") if is_shadowed else ("GT101", "rewritten"))
    assert ("the project's own gradclip" in site["reason"]) == is_shadowed


@pytest.mark.parametrize("mark", ["", "setup.py"])
def test_another_project_under_the_folder_is_no_evidence(mark: str, tmp_path: Path) -> None:
    write(tmp_path, **{"one/clip": "from models.net import Model\n" + CLIP, "two/models/net": SPARSE["a lookup"]})
    for project in ("one", "two") if mark else ():
        (tmp_path / project / mark).touch()
    assert sparse(tmp_path, "one/clip.py") == ("" if mark else "`tf.nn.embedding_lookup` in net.py")
