"""A training step with Paddle, before and after the migration."""

from __future__ import annotations

import pytest
from migrate.codemods import manual, migrate, rewritten
from migrate.executed import agree, run, same

# Plain descent from zeros by a learning rate of 1 shows the gradients that the optimizer's clip makes.
STEP = """
import paddle
from paddle import nn
{imports}
import numpy as np

RAW = [np.linspace(-1, 2, 12, dtype="float32").reshape(3, 4), np.linspace(-1, 3, 5, dtype="float32")]
parameters = [paddle.create_parameter(g.shape, "float32", default_initializer=nn.initializer.Constant(0.0)) for g in RAW]
clip = {clip}
optimizer = paddle.optimizer.SGD(learning_rate=1.0, parameters=parameters, grad_clip=clip)
sum((p * paddle.to_tensor(g)).sum() for p, g in zip(parameters, RAW)).backward()
{before}
optimizer.step()
GRADIENTS = [-p.numpy() for p in parameters]
"""

OBJECTS = {
    "by each norm": ("paddle.nn.ClipGradByNorm(clip_norm=1.5)", ["GP401"]),
    "by the global norm": ("nn.ClipGradByGlobalNorm(1.0, group_name='all')", ["GP402"]),
    "by value": ("nn.clip.ClipGradByValue(max=0.5, min=-0.25)", ["GP403"]),
    "by value around 0": ("paddle.nn.ClipGradByValue(0.5)", ["GP403"]),
    "under the name of fluid": ("nn.clip.GradientClipByGlobalNorm(1.0)", ["GP402"]),
    "or none": ("nn.ClipGradByGlobalNorm(1.0) if len(RAW) > 1 else None", ["GP402"]),
}
CALLS = {
    "the norm": ("nn.utils.clip_grad_norm_(parameters, 1.0)", ["GP404"]),
    "a norm of order 1": ("nn.utils.clip_grad_norm_(parameters, max_norm=1.0, norm_type=1)", ["GP404"]),
    "the largest": ("nn.utils.clip_grad_norm_(parameters, 1.0, float('inf'), error_if_nonfinite=True)", ["GP404"]),
    "the values": ("clip_values(parameters, clip_value=0.5)", ["GP405"]),
    "a function of one tensor": (
        "for p in parameters:\n    p.grad = paddle.nn.clip.clip_by_norm(p.grad, max_norm=0.5)",
        ["GP406"],
    ),
}
LEGACY = [
    ("fluid.clip.GradientClipByNorm(clip_norm=1.5, need_clip=None)", "GL451"),
    ("fluid.clip.GradientClipByGlobalNorm(1.0)", "GL452"),
    ("fluid.clip.GradientClipByValue(0.5, -0.25)", "GL453"),
    ("fluid.dygraph_grad_clip.GradClipByNorm(1.5)", "GL456"),
    ("fluid.dygraph_grad_clip.GradClipByGlobalNorm(1.0)", "GL457"),
    ("fluid.dygraph_grad_clip.GradClipByValue(-0.25, 0.5)", "GL458"),
]


@pytest.mark.parametrize("name", OBJECTS)
def test_the_step_is_the_same_with_a_clip_of_the_optimizer(name: str) -> None:
    clip, codes = OBJECTS[name]
    agree(STEP.format(imports="", clip=clip, before=""), codes)


@pytest.mark.parametrize("name", CALLS)
def test_the_step_is_the_same_with_a_clip_before_it(name: str) -> None:
    before, codes = CALLS[name]
    imports = "from paddle.nn.utils import clip_grad_value_ as clip_values" if "values" in before else ""
    agree(STEP.format(imports=imports, clip="None", before=before), codes)


def test_an_iterator_is_clipped_only_where_that_change_is_allowed() -> None:
    source = STEP.format(imports="", clip="None", before="nn.utils.clip_grad_norm_((p for p in parameters), 1.0)")
    assert manual(migrate(source)) == ["GM101"]
    before, after = run(source), run(migrate(source, allow_semantic_change=True).source)
    same(before["GRADIENTS"], before["RAW"])  # Paddle's call clips nothing
    assert 0.99 < sum((gradient**2).sum() for gradient in after["GRADIENTS"]) < 1


@pytest.mark.parametrize(("legacy", "code"), LEGACY)
def test_the_legacy_names_come_to_the_same_in_paddle_and_in_gradclip(legacy: str, code: str) -> None:
    """Current Paddle has no ``paddle.fluid``, so the source itself cannot run."""
    source = STEP.format(imports="import paddle.fluid as fluid", clip=legacy, before="")
    forms = [migrate(source, to=to, ignore=["GM117"]) for to in ("paddle", "gradclip")]
    assert [rewritten(form) for form in forms] == [[code], [code]]
    native, ours = (run(form.source) for form in forms)
    same(ours["GRADIENTS"], native["GRADIENTS"])


@pytest.mark.parametrize("legacy", [legacy for legacy, _ in LEGACY])
def test_the_argument_that_the_report_names_clips_alike(legacy: str) -> None:
    (site,) = migrate(f"import paddle.fluid as fluid\nfluid.clip.set_gradient_clip({legacy})\n", to="paddle").sites
    named = site.advice.partition("grad_clip=")[2].removesuffix(".")
    apart = migrate(STEP.format(imports="import paddle.fluid as fluid", clip=legacy, before=""), to="paddle").source
    same(run(STEP.format(imports="", clip=named, before=""))["GRADIENTS"], run(apart)["GRADIENTS"])
