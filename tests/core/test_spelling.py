"""gradclip accepts other spellings of a name; for unknown names the error suggests the nearest."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import gradclip
from gradclip.dialects import torch


@pytest.mark.parametrize(("name", "rule"), [
    ("torch.clip_grad_norm_", "torch.clip_grad_norm"),
    ("torch.clip_grad_value_", "torch.clip_grad_value"),
    ("paddle.clip_grad_norm_", "paddle.clip_grad_norm"),
    ("paddle.ClipGradByNorm", "paddle.clip_grad_by_norm"),
    ("paddle.ClipGradByGlobalNorm", "paddle.clip_grad_by_global_norm"),
    ("keras.clip_norm", "keras.clipnorm"),
])  # fmt: skip
def test_both_spellings(name: str, rule: str) -> None:
    dialect, _, function = name.partition(".")
    made = getattr(getattr(gradclip.dialects, dialect), function)(2.0)
    assert made.name == rule
    assert made.limit == 2.0


@pytest.mark.parametrize(("module", "name", "hint"), [
    ("gradclip", "clip_grad_norm", "did you mean gradclip.clip_grad_norm_?"),
    ("gradclip", "clipgradbynorm", "did you mean gradclip.ClipGradByNorm?"),
    ("gradclip", "global_nrom", "did you mean gradclip.global_norm?"),
    ("gradclip", "gradient_transformation", "it is gradclip.backends.jax.gradient_transformation."),
    ("gradclip", "step_pre_hook", "it is gradclip.backends.torch.step_pre_hook."),
    ("gradclip", "grad_clip", "it is gradclip.backends.paddle.grad_clip."),
    ("gradclip", "clipnorm", "it is gradclip.dialects.keras.clipnorm."),
    ("gradclip", "gradient_transform", "did you mean gradclip.backends.jax.gradient_transformation?"),
    ("gradclip.dialects", "pytorch", "did you mean dialects.torch?"),
    ("gradclip.dialects", "jax", "did you mean dialects.optax?"),
    ("gradclip.dialects", "kears", "did you mean dialects.keras?"),
    ("gradclip.dialects", "mxnet", "there are keras, optax, paddle, tensorflow, torch; any of them clips any framework's grad"),
    ("gradclip.dialects.torch", "clip_gradient_norm", "did you mean dialects.torch.clip_grad_norm?"),
    ("gradclip.dialects.torch", "clip_by_norm", "did you mean dialects.tensorflow.clip_by_norm?"),
    ("gradclip.dialects.torch", "ClipGradByNorm", "did you mean dialects.paddle.clip_grad_by_norm?"),
    ("gradclip.dialects.keras", "limit", "it has clipnorm, clipvalue, global_clipnorm."),
])  # fmt: skip
def test_did_you_mean(module: str, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(importlib.import_module(module), name)
    assert str(caught.value).startswith(f"{module} has no {name}.\nHint: {hint}")


@pytest.mark.parametrize("dialect", gradclip.dialects.__all__)
def test_a_dialect_lists_its_rules_alone(dialect: str) -> None:
    module = getattr(gradclip.dialects, dialect)
    assert dir(module) == sorted(module.__all__)
    assert all(f"{dialect}.{name}" in gradclip.dialects.FUNCTIONS for name in dir(module))


def test_a_monitor_of_another_kind_is_told_which_it_takes() -> None:
    given: Any = True
    with pytest.raises(TypeError, match=r"Hint: monitor=gradclip.Monitor\(\); only optax's link takes monitor=True"):
        gradclip.Step(torch.clip_grad_norm(1.0), given)


def test_a_name_that_is_like_no_other() -> None:
    with pytest.raises(AttributeError) as caught:
        gradclip.xyzzy  # noqa: B018
    assert str(caught.value) == "gradclip has no xyzzy."
    for module in (gradclip, gradclip.dialects, torch):
        assert not hasattr(module, "__wrapped__")  # Python's own tools ask for it
        assert not hasattr(module, "_repr_html_")
    with pytest.raises(ImportError, match="cannot import name 'clip_grad_nrom'"):
        from gradclip.dialects.torch import clip_grad_nrom  # noqa: F401
