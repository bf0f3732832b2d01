"""``gradclip explain`` says of each public name of gradclip what it is."""

from __future__ import annotations

import inspect

import pytest

import gradclip
import gradclip.backends
import gradclip.dialects
from gradclip.commands import cli
from gradclip.explain import explain
from gradclip.natives import BY_NAME, DIALECTS
from gradclip.natives.own import BY_RULE

NAMES = [
    *(f"gradclip.{name}" for name in gradclip.__all__),
    *(f"gradclip.dialects.{name}" for name in DIALECTS),
    *(f"gradclip.limits.{name}" for name in gradclip.limits.__all__),
    *gradclip.backends.exported().values(),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(name)
    assert found.note.endswith((".", ":"))
    assert "`" not in found.note
    assert "removed" not in found.status
    assert cli.main(["explain", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith(found.name)
    assert found.note in " ".join(out.split())


@pytest.mark.parametrize("name", BY_RULE)
def test_a_function_with_a_rule_has_the_natives_that_are_applied_alike(name: str) -> None:
    found = explain(name)
    natives = [one for same in found.equivalents for one in same.code.replace("tf.", "tensorflow.").split(", ")]
    assert BY_NAME.keys() >= set(natives)
    assert bool(natives) or name == "gradclip.backends.torch.step_pre_hook", "torch has no object for an optimizer"
    assert "rule" in found.called
    assert found.formula[0].startswith("what its rule says")
    assert explain(found.formula[0].split()[-1]).dialect == "torch.clip_grad_norm"


def test_every_function_with_a_rule_is_known() -> None:
    functions = {name: getattr(gradclip, name) for name in gradclip.__all__ if inspect.isfunction(getattr(gradclip, name))}
    taking = {f"gradclip.{name}" for name, one in functions.items() if "rule" in inspect.signature(one).parameters}
    assert taking == {name for name in BY_RULE if not name.startswith("gradclip.backends.")}
    assert BY_RULE.keys() - taking <= set(gradclip.backends.exported().values())


@pytest.mark.parametrize("text", ["gradclip.clipped(optimizer, rule)", "clipped", "Monitor", " gradclip.Monitor(every=10)"])
def test_a_call_or_a_short_name_is_enough(text: str) -> None:
    assert explain(text).name in ("gradclip.clipped", "gradclip.Monitor")


def test_one_framework() -> None:
    assert [same.framework for same in explain("gradclip.clipped", to="jax").equivalents] == ["jax"]


@pytest.mark.parametrize(("text", "hint"), [("gradclip.Monitr", "gradclip.Monitor"), ("gradclip.cliped", "gradclip.clipped")])
def test_a_misspelt_name_has_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {hint}"):
        explain(text)


@pytest.mark.parametrize("text", ["gradclip.core", "gradclip.lint", "gradclip._look_up", "gradclip"])
def test_a_private_name_is_no_public_one(text: str) -> None:
    with pytest.raises(ValueError, match="no clip of that name"):
        explain(text)
