"""Paddle's ``set_gradient_clip`` is reported with the argument of the optimizer that replaces it; its call stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from migrate.codemods import migrate

from gradclip.source.model import Verdict

BEFORE = (Path(__file__).parent / "pairs" / "paddle_set_gradient_clip" / "before.py").read_text(encoding="utf-8")
FLUID = "import paddle.fluid as fluid\n"
REMOVE = "Remove it, and pass the clip to the optimizer: "
MOVE = "Pass it to the optimizer's constructor: "
BY_NORM = "grad_clip=paddle.nn.ClipGradByNorm"
PER_PARAMETER = "need_clip was a function of the parameter; today each parameter has its own ParamAttr(need_clip=)."


def marked(parameters: str) -> str:
    return f" Mark those that are not in {parameters} with ParamAttr(need_clip=False)."


def test_each_call_is_reported_with_the_argument_that_replaces_it() -> None:
    migrated = migrate(BEFORE, to="paddle")
    advice = {site.line: site.advice for site in migrated.sites if site.outcome is Verdict.MANUAL}
    assert advice == {
        14: f"{REMOVE}grad_clip=paddle.nn.ClipGradByGlobalNorm(clip_norm=limit).",
        20: f"{REMOVE}grad_clip=paddle.nn.ClipGradByValue(1.0, -1.0).",
        25: f"{REMOVE}{BY_NORM}(self.limit).{marked('self.actor()')}",
        33: f"{REMOVE}grad_clip=clip.",
        41: f"{REMOVE}{BY_NORM}(limit).",
        46: f"{REMOVE}{BY_NORM}(1.0).{marked('actor')}",
        54: f"{REMOVE}{BY_NORM}(limit).",
        61: f"{REMOVE}{BY_NORM}(1.0).",
        67: f"{REMOVE}{BY_NORM}(1.0).",
        75: f"{REMOVE}{BY_NORM}(1.0).",
        79: f"{REMOVE}{BY_NORM}(1.0). {PER_PARAMETER}",
        85: f"{REMOVE}grad_clip=make(clip).",
        91: f"{REMOVE}{BY_NORM}(*clip).",
    }


def test_only_a_clip_that_stands_apart_gets_its_new_name() -> None:
    apart = "    clip = fluid.clip.GradientClipByNorm(1.0)\n"
    assert BEFORE.count(apart) == 1
    expected = "import paddle\n" + BEFORE.replace(apart, "    clip = paddle.nn.ClipGradByNorm(1.0)\n")
    assert migrate(BEFORE, to="paddle").source == expected
    without = BEFORE.replace(apart, "")
    assert migrate(without, to="paddle").source == without


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("fluid.clip.set_gradient_clip(clip, param_list=None)", f"{REMOVE}grad_clip=clip."),
        (
            "fluid.clip.set_gradient_clip(\n    fluid.clip.GradientClipByNorm(\n        limit,  # small\n    )\n)",
            f"{REMOVE}{BY_NORM}(limit).",
        ),
        (
            "fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0, 'all', wanted))",
            f"{REMOVE}grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0, 'all'). {PER_PARAMETER}",
        ),
        ("fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0, need_clip=None))", f"{REMOVE}{BY_NORM}(1.0)."),
        (
            "optimizer.minimize(loss, grad_clip=fluid.dygraph_grad_clip.GradClipByValue(-5.0, 2.0))",
            f"{MOVE}grad_clip=paddle.nn.ClipGradByValue(min=-5.0, max=2.0).",
        ),
        (
            "optimizer.minimize(loss, grad_clip=fluid.dygraph_grad_clip.GradClipByGlobalNorm(5.0, dtype='float32'))",
            f"{MOVE}grad_clip=paddle.nn.ClipGradByGlobalNorm(clip_norm=5.0).",
        ),
    ],
)
def test_the_argument_has_todays_names(line: str, advice: str) -> None:
    """The classes for ``minimize`` had other names, and the lower bound first."""
    source = f"{FLUID}{line}\n"
    migrated = migrate(source, to="paddle")
    assert migrated.source == source
    (site,) = migrated.sites
    assert (site.line, site.code, site.outcome, site.advice) == (2, "GM110", Verdict.MANUAL, advice)
