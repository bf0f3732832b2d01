"""The list of public names, which docs/promise.md promises, is current; MkDocs makes the reference of the same modules."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path

import public_names
import pytest
import written

import gradclip


def test_the_list_is_current() -> None:
    assert public_names.main(["--check"]) == 0, (
        "docs/promise.md says how a change is announced; then: python tools/public_names.py"
    )


def test_a_name_that_is_gone_and_an_argument_that_has_another_place_are_found(tmp_path: Path) -> None:
    current = public_names.LIST.read_text(encoding="utf-8")
    for wrong in (current.replace("gradclip.norm(", "gradclip.old("), current.replace("(grads, rule=", "(rule=, grads")):
        (tmp_path / "list.txt").write_text(wrong, encoding="utf-8")
        check = partial(written.main, tool="public_names", make=lambda: current, path=tmp_path / "list.txt")
        assert check(["--check"]) == 1


def test_the_names_are_there() -> None:
    names = [line.partition("(")[0] for line in public_names.LIST.read_text(encoding="utf-8").splitlines()]
    assert len(names) == len(set(names)) > 80
    assert {f"gradclip.{name}" for name in gradclip.__all__} <= set(names)
    for name in (name for name in names if ".backends." not in name):
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last)


def test_a_module_without_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gradclip.__main__ has no __all__"):
        public_names.public("gradclip.__main__")
