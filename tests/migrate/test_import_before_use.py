"""A new import comes before its first use on every path: the tests run rewritten sources, and notebooks cell by cell."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from migrate.codemods import migrate

from gradclip.migrate.codemod import migrate_source
from gradclip.source.model import Options
from gradclip.source.runner import Request, migrate_file

CLIP = "torch.nn.utils.clip_grad_norm_([], 1.0)"


class Anything(ModuleType):
    """A module that has every name and records every call."""

    __path__: ClassVar[list[str]] = []
    calls: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(self.__name__)
        return self


class Finder:
    """Returns such a module for imports of frameworks, of their modules and of gradclip."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        from importlib.machinery import ModuleSpec

        if name.partition(".")[0] in STUBBED:
            return ModuleSpec(name, Finder, is_package=True)  # type: ignore[arg-type]
        return None

    @staticmethod
    def create_module(spec: Any) -> ModuleType:
        return Anything(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        pass


STUBBED = ("torch", "optax", "gradclip", "mine")


def stubbed() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in STUBBED]


def run(cells: Iterable[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run cells, or one module, in one namespace with stubs; return the recorded calls."""
    Anything.calls = []
    with monkeypatch.context() as patch:
        for name in stubbed():
            patch.delitem(sys.modules, name)
        patch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
        names: dict[str, Any] = {"__name__": "__main__"}
        try:
            for cell in cells:
                exec(compile(cell, "cell", "exec"), names)
        finally:  # some tests expect a NameError, and must still remove their stubs
            for name in stubbed():
                del sys.modules[name]
    return [call for call in Anything.calls if call.startswith("gradclip")]


MODULES = {
    "imported again below": f"""
        import torch
        {CLIP}
        import torch
        print(torch.__name__)
        """,
    "imported again below a function that runs in between": f"""
        import os

        import torch

        def step():
            {CLIP}

        step()

        import sys
        import torch
        torch.save()
        """,
    "by names from two statements": """
        from torch import nn
        nn.utils.clip_grad_norm_([], 1.0)
        from torch import nn, optim
        optim.SGD()
        """,
    "in a try": f"""
        try:
            import torch
        except ImportError:
            torch = None
        {CLIP}
        """,
    "in a function that comes before the imports": f'''
        """What it does."""

        def step():
            import torch
            {CLIP}

        step()
        import torch
        import json
        torch.save()
        ''',
    "in two functions": f"""
        def one():
            import torch
            {CLIP}

        def two():
            import torch
            {CLIP}

        two()
        one()
        """,
    "optax imported in both branches of a function": """
        def make(new):
            if new:
                import optax
            else:
                import optax
            return optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))

        make(False)
        make(True)
        """,
    "a from-import that the rewrite leaves without a use": """
        import os
        from torch.nn.utils import clip_grad_norm_
        clip_grad_norm_([], 1.0)
        from torch.nn.utils import clip_grad_norm_
        os.getpid()
        """,
    "gradclip imported too late already": f"""
        import torch
        {CLIP}
        import gradclip
        gradclip.clip_by_norm([], 1.0)
        """,
    "a docstring and nothing else above": f'''
        """What it does."""
        def step():
            import torch
            {CLIP}
        step()
        ''',
    "in a line with something else": f"""
        import torch; torch.manual_seed(0)
        {CLIP}
        import torch
        torch.save()
        """,
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = textwrap.dedent(MODULES[name]).lstrip("\n")
    migrated = migrate(source)
    assert any(site.outcome.value == "rewritten" for site in migrated.sites)
    assert run([migrated.source], monkeypatch)


def test_the_old_place_is_seen_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NameError):
        run([f"import torch\n{CLIP.replace('torch.nn.utils', 'gradclip')}\nimport gradclip\n"], monkeypatch)


NOTEBOOKS = {
    "imported again in a later cell": ["import torch\n", f"{CLIP}\n", "import torch\nimport mine\ntorch.save()\n"],
    "the module's own imports come later": [
        "import os\n",
        "import torch\nfrom torch import nn\n",
        f"def step():\n    {CLIP}\n",
        "step()\n",
        "import mine\nimport torch.nn as nn\nimport torch\nnn.Linear(1)\n",
        "step()\n",
    ],
    "in a cell of its own, after a magic": [
        "%matplotlib inline\nimport torch\n",
        f"%%time\n{CLIP}\n",
        "import torch\ntorch.a()\n",
    ],
    "no import cell before a function": [
        f"def step():\n    import torch\n    {CLIP}\n",
        "step()\n",
        "import torch\nimport mine\ntorch.save()\n",
    ],
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_cell_by_cell(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in NOTEBOOKS[name]]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")

    result = migrate_file(str(path), Request(Options(), write=True), migrate_source)

    assert result.written
    texts = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    python = ["\n".join(line for line in text.splitlines() if not line.startswith("%")) for text in texts]
    assert run(python, monkeypatch)
