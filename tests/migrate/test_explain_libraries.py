"""``gradclip explain``: known norms, the clips of libraries, and global settings."""

from __future__ import annotations

import pytest

from gradclip.explain import explain
from gradclip.explain.call import CallError
from gradclip.explain.equivalents import NONE


def in_(framework: str, text: str) -> str:
    return next(same.code for same in explain(text).equivalents if same.framework == framework)


@pytest.mark.parametrize(
    ("text", "norm"),
    [
        ("tf.clip_by_global_norm(grads, 5.0, use_norm=tf.linalg.global_norm(g))", "tf.linalg.global_norm(g)"),
        ("torch.nn.utils.clip_grads_with_norm_(p, 1.0, total)", "total"),
    ],
)
def test_a_known_norm_stays_in_the_equivalents(text: str, norm: str) -> None:
    explanation = explain(text)
    codes = {same.framework: same.code for same in explanation.equivalents if same.mark == NONE}
    assert set(codes) >= {"keras", "paddle", "jax"}
    assert all(f"rule, {norm})" in code and "scale_by_norm" in code for code in codes.values())


def test_a_norm_that_is_none_is_not_known() -> None:
    assert "scale_by_norm" not in in_("jax", "tf.clip_by_global_norm(grads, 5.0, use_norm=None)")


def test_a_rule_carries_nothing_that_has_no_effect() -> None:
    assert (
        explain("nn.utils.clip_grad_norm_(p, 1.0, foreach=True)").rule == "gradclip.dialects.torch.clip_grad_norm(max_norm=1.0)"
    )


@pytest.mark.parametrize(
    ("text", "dialect", "code"),
    [
        ("accelerator.clip_grad_norm_(p, 1.0)", "torch.clip_grad_norm", "torch.nn.utils.clip_grad_norm_(p, 1.0)"),
        ("self.accelerator.clip_grad_value_(p, 1.0)", "torch.clip_grad_value", "torch.nn.utils.clip_grad_value_(p, 1.0)"),
        (
            "timm.utils.dispatch_clip_grad(p, 1.0)",
            "torch.clip_grad_norm",
            "torch.nn.utils.clip_grad_norm_(p, 1.0)",
        ),
        (
            "dispatch_clip_grad(p, 1.0, 'value')",
            "torch.clip_grad_value",
            "torch.nn.utils.clip_grad_value_(p, 1.0)",
        ),
    ],
)
def test_the_clips_of_libraries_are_explained(text: str, dialect: str, code: str) -> None:
    assert explain(text).dialect == dialect
    assert in_("torch", text) == code


@pytest.mark.parametrize(
    "text", ["dispatch_clip_grad(p, 1.0, mode='agc')", "adaptive_clip_grad(p)", "timm.utils.adaptive_clip_grad"]
)
def test_adaptive_clipping_is_no_clip_by_norm(text: str) -> None:
    explanation = explain(text)
    assert (explanation.dialect, explanation.equivalents) == ("", ())
    assert "row" in explanation.note


def test_a_clip_of_a_library_has_the_equivalents_of_its_native() -> None:
    for framework in ("tensorflow", "keras", "jax"):
        assert in_(framework, "dispatch_clip_grad(p, 1.0, 'value')") == in_(
            framework, "torch.nn.utils.clip_grad_value_(p, 1.0)"
        )


def test_a_mode_that_is_not_known_is_taken_for_the_default() -> None:
    assert explain("dispatch_clip_grad(p, 1.0, mode=args.mode)").dialect == "torch.clip_grad_norm"
    assert explain("timm.utils.dispatch_clip_grad").dialect == "torch.clip_grad_norm"


@pytest.mark.parametrize("module", ["paddle.fluid.clip", "paddle.nn.clip"])
def test_what_is_set_for_all_parameters_is_explained(module: str) -> None:
    explanation = explain(f"{module}.set_gradient_clip(clip=fluid.clip.GradientClipByNorm(2.0))")
    assert explanation.name == f"{module}.set_gradient_clip"
    assert explanation.formula[0] == "g * 2.0 / max(n, 2.0)"
    assert "grad_clip= of" in explanation.note
    assert in_("paddle", explanation.call) == "paddle.nn.ClipGradByNorm(2.0)"
    for unknown in ("clip", "make(1.0)"):
        assert explain(f"{module}.set_gradient_clip({unknown})").formula == ()


def test_an_old_keyword_of_keras_gets_its_present_name() -> None:
    code = in_("gradclip", "keras.optimizers.Adam(lr=0.1, clipnorm=1.0)")
    assert "keras.optimizers.Adam(learning_rate=0.1)," in code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "fairseq.utils.clip_grad_norm_(p, 1.0)",
            "fairseq clips by one norm over all gradients, and only measures where the limit is 0.\n"
            "Received: fairseq.utils.clip_grad_norm_\n"
            "Hint: write: gradclip.clip_grad_norm_(parameters, limit); call it only where the limit is above 0.",
        ),
        (
            "composer.Trainer(model, grad_clip_norm=1.0)",
            "Composer's trainer clips by one norm.\nReceived: composer.Trainer\n"
            "Hint: keep it: the trainer knows when the gradients are ready.",
        ),
    ],
)
def test_what_migrate_knows_of_a_library_is_said(text: str, said: str) -> None:
    with pytest.raises(CallError) as caught:
        explain(text)
    assert str(caught.value) == said
