"""Whose arrays a function of a user takes: what its annotations and its file's imports say."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradclip.conformance.chosen import arrays_of, chosen
from gradclip.conformance.specification import Specification
from gradclip.core.errors import ArgumentError


@pytest.mark.parametrize(
    ("source", "framework"),
    [
        ("import math", ""),
        ("import numpy as np", ""),
        ("import numpy as np\nimport torch.nn.functional as F", "torch"),
        ("from torch import nn", "torch"),
        ("import jax.numpy as jnp, optax", "jax"),
        ("def clip(grads):\n    import paddle", "paddle"),
        ("import jax, torch\ndef clip(grads: list[torch.Tensor], max_norm: float): ...", "torch"),
        ("import jax, torch\ndef clip(grads: 'list[jax.Array]', max_norm): ...", "jax"),
        ("import jax\nfrom torch import Tensor\ndef clip(grads, max_norm) -> Tensor: ...", "torch"),
        ("import torch, numpy as np\ndef clip(grads: list[np.ndarray], max_norm): ...", "numpy"),
    ],
)
def test_what_a_source_says(source: str, framework: str) -> None:

    assert chosen(source, "clip", "train.py:clip") == framework


def test_several_frameworks_are_a_question() -> None:
    with pytest.raises(ArgumentError) as raised:
        chosen("import jax, torch\ndef clip(grads, max_norm): ...", "clip", "train.py:clip")
    assert str(raised.value).splitlines() == [
        "The file imports jax and torch.",
        "Received: train.py:clip",
        "Hint: say whose arrays the function takes: --arrays jax or --arrays torch.",
    ]


def test_a_file_of_numpy_gets_arrays_of_numpy(tmp_path: Path) -> None:
    (tmp_path / "my_clip_of_numpy.py").write_text("import numpy\n\ndef clip(grads, max_norm):\n    return grads\n")
    text = f"{tmp_path / 'my_clip_of_numpy.py'}:clip"
    target = Specification.parse(text).load("optax.clip_by_global_norm")
    assert type(target.make([1.0], [1], "float32")).__module__ == "numpy"
    assert arrays_of(os.path.join, text) == ["numpy"]


def test_a_file_without_imports_is_tried_with_the_arrays_of_the_dialect_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    for imported, expected in (("import math", ["torch", "numpy"]), ("import numpy as np", ["numpy", "torch"])):
        file = tmp_path / "my_clip_without_imports.py"
        file.write_text(f"{imported}\n\ndef clip(grads, max_norm):\n    return grads\n")
        module = SimpleNamespace(__name__=file.stem, __file__=str(file))
        monkeypatch.setitem(sys.modules, file.stem, module)  # type: ignore[arg-type]
        function = functools.partial(lambda grads, max_norm: grads)
        function.func.__module__ = file.stem
        assert arrays_of(function, "train.py:clip", "torch") == expected


def test_the_dialect_says_which_of_several() -> None:
    assert chosen("import jax, torch\ndef clip(grads, max_norm): ...", "clip", "train.py:clip", "torch") == "torch"
