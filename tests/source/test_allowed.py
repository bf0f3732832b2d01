"""What keeps a call as it is, and what a user may allow: scopes in loops, look-alikes, ignored traps, changes of meaning."""

from __future__ import annotations

import textwrap

import pytest
from migrate.codemods import manual, migrate, rewritten

from gradclip import lint
from gradclip.source.model import Verdict

TORCH = "import torch\nfrom torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_\n"
TF = "import tensorflow as tf\n"
SCALED = "scaler.scale(loss).backward()\n"
CLIP = "clip_grad_norm_(model.parameters(), 1.0)\n"


# ---- the scope of a clip in a loop ---------------------------------------------------------------------------------------

LOOPS = {
    "a call for each parameter": "for p in model.parameters():\n    clip_grad_norm_(p, 1.0)\n",
    "a call for each group": "for group in optimizer.param_groups:\n    clip_grad_norm_(group['params'], 1.0)\n",
    "a call for each of several in a list": "for a, b in pairs:\n    clip_grad_norm_([a], 1.0)\n",
}


@pytest.mark.parametrize("name", LOOPS)
def test_one_rule_cannot_stand_for_a_call_in_a_loop(name: str) -> None:
    migrated = migrate(TORCH + LOOPS[name], to="jax")
    assert manual(migrated) == ["GM102"]
    assert "for g in grads" in migrated.sites[0].advice


@pytest.mark.parametrize("name", LOOPS)
def test_a_call_in_a_loop_keeps_its_scope_where_the_call_is_kept(name: str) -> None:
    assert rewritten(migrate(TORCH + LOOPS[name])) == ["GT101"]


def test_a_loop_over_something_else_changes_no_scope() -> None:
    assert manual(migrate(TORCH + "for batch in batches:\n    " + CLIP, to="jax")) == ["GM301"]


# ---- look-alikes ---------------------------------------------------------------------------------------------------------

LOOK_ALIKES = [
    "for p in critic.parameters():\n    p.data.clamp_(-0.01, 0.01)\n",
    "import torch\nsurrogate = torch.clamp(ratio, 1 - eps, 1 + eps) * advantage\n",
    TF + "ratio = tf.clip_by_value(ratio, 1.0 - eps, 1.0 + eps)\n",
    TF + "hidden = tf.clip_by_value(hidden, 0.0, 6.0)\n",
    TF + "inverted = tf.clip_by_value(action_gradients, -1.0, 1.0)\n",
    TF + "w = w.assign(tf.clip_by_norm(w, 2.0))\n",
    "import numpy as np\nadversarial = np.clip(image + epsilon * np.sign(gradient), 0, 1)\n",
]


@pytest.mark.parametrize("source", LOOK_ALIKES)
def test_a_look_alike_is_left_alone_with_a_reason(source: str) -> None:
    migrated = migrate(source)
    assert [(site.code, site.outcome) for site in migrated.sites] == [("GM112", Verdict.UNCHANGED)]


@pytest.mark.parametrize(
    "source",
    [
        TF + "grads = [tf.clip_by_value(g, -1.0, 1.0) for g in tape.gradient(loss, variables)]\n",
        TF + "gvs = optimizer.compute_gradients(loss)\ncapped = [(tf.clip_by_value(x, -1.0, 1.0), v) for x, v in gvs]\n",
        TF + "for x, v in zip(grads, variables):\n    y = tf.clip_by_value(x, -1.0, 1.0)\n",
        TF + "gs = tf.gradients(loss, variables)\nfirst = tf.clip_by_value(gs[0], -1.0, 1.0)\n",
        TF + "first = tf.clip_by_value(policyGrads, -1.0, 1.0)\n",
        TF + "def limited(t):\n    return tf.clip_by_value(t, -1.0, 1.0)\nnew = [limited(g) for g in grads]\n",
        TF + "def limited(t, c):\n    return tf.clip_by_value(t, -c, c)\nnew = limited(c=1.0, t=grads[0])\n",
        TF + "class A:\n    def limited(self, t):\n        return tf.clip_by_value(t, -1.0, 1.0)\n"
        "    def step(self):\n        new = self.limited(grads[0])\n",
    ],
)
def test_a_gradient_is_known_by_where_it_comes_from(source: str) -> None:
    assert rewritten(migrate(source)) == ["GF203"]


# ---- allowances of the user ----------------------------------------------------------------------------------------------


def test_to_ignore_a_trap_is_to_accept_it() -> None:
    source = TORCH + SCALED + CLIP
    assert manual(migrate(source)) == ["GM107"]
    assert rewritten(migrate(source, ignore=["GM107"])) == ["GT101"]
    assert migrate(source, ignore=["GT"]).sites == ()


def test_a_change_of_meaning_is_made_only_where_it_is_allowed_and_then_said() -> None:
    source = TF + "grads, norm = tf.clip_by_global_norm(grads, float('inf'))\n"
    assert manual(migrate(source)) == ["GM114"]
    changed = migrate(source, allow_semantic_change=True)
    assert rewritten(changed) == ["GF202"]
    comment, call = changed.source.splitlines()[1:]
    assert comment.startswith("# gradclip: GM114 ")
    assert call == "grads, norm = gradclip.clip_by_global_norm(grads, float('inf'))"


def test_a_join_of_parameters_is_rewritten_where_changes_are_allowed() -> None:
    source = TORCH + "clip_grad_norm_([*a.parameters(), *a.parameters()], 1.0)\n"
    changed = migrate(source, allow_semantic_change=True)
    assert rewritten(changed) == ["GT101"]
    assert "# gradclip: GM116 " in changed.source


JOINED = [
    "itertools.chain(a.parameters(), b.parameters())",
    "[*a.parameters(), *b.parameters()]",
    "list(a.parameters()) + list(b.parameters())",
    "[p for m in models for p in m.parameters()]",
    "itertools.chain.from_iterable(m.parameters() for m in models)",
    "[encoder.weight, decoder.weight]",
]


@pytest.mark.parametrize("joined", JOINED)
def test_a_join_is_rewritten_and_what_is_assumed_is_said(joined: str) -> None:
    (site,) = migrate(TORCH + f"clip_grad_norm_({joined}, 1.0)\n").sites
    assert site.outcome is Verdict.REWRITTEN
    assert site.assumption.startswith("no parameter is listed twice")


def test_a_rewrite_for_tensorflow_says_that_dense_gradients_are_assumed() -> None:
    source = TF + "grads, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)\n"
    (site,) = migrate(source).sites
    assert (site.outcome, site.assumption[:15]) == (Verdict.REWRITTEN, "dense gradients")
    assert migrate(TORCH + CLIP).sites[0].assumption == ""
    (site,) = migrate(source, sparse="`tf.gather` in model.py").sites
    assert (site.outcome, site.code) == (Verdict.MANUAL, "GM111")
    assert "`tf.gather` in model.py" in site.reason


@pytest.mark.parametrize(
    "dense",
    [
        "if isinstance(g, tf.IndexedSlices):\n    out.append(g)\nelse:\n    out.append(tf.clip_by_norm(g, 1.0))\n",
        "g = f(g) if isinstance(g, tf.IndexedSlices) else tf.clip_by_norm(g, 1.0)\n",
        "if isinstance(g, tf.IndexedSlices):\n    g = tf.IndexedSlices(tf.clip_by_norm(g.values, 1.0), g.indices)\n",
    ],
)
def test_what_is_found_to_be_dense_is_rewritten(dense: str) -> None:
    source = TF + "for g in tape.gradient(loss, variables):\n" + textwrap.indent(dense, "    ")
    (site,) = migrate(source, sparse="`tf.gather` in model.py").sites
    assert (site.outcome, site.assumption) == (Verdict.REWRITTEN, "")


@pytest.mark.parametrize(
    "call",
    [
        "h = tf.clip_by_norm(h, 1.0)",
        "delta = tf.clip_by_norm(delta, eps, axes=[1])",
        "image = tf.clip_by_norm(image, 1.0)",
        "outputs, _ = tf.clip_by_global_norm(outputs, 1.0)",
        "w.assign(tf.clip_by_norm(w, 1.0))",
        "def limited(c, t):\n    return tf.clip_by_norm(t, c)\nnew = limited(grads, h)",
    ],
)
def test_what_nothing_says_is_a_gradient_is_left(call: str) -> None:
    (site,) = migrate(TF + call + "\n").sites
    assert (site.outcome, site.code) == (Verdict.UNCHANGED, "GM112")


@pytest.mark.parametrize(
    "lines",
    [
        "clipped_grads, _ = tf.clip_by_global_norm(values, 1.0)\n",
        "values, _ = tf.clip_by_global_norm(values, 1.0)\noptimizer.apply_gradients(zip(values, variables))\n",
        "optimizer.apply_gradients([(tf.clip_by_norm(x, 1.0), v) for x, v in values])\n",
        "pairs = [(tf.clip_by_norm(x, 1.0), v) for x, v in values]\noptimizer.apply_gradients(pairs)\n",
    ],
)
def test_what_an_optimizer_takes_is_a_gradient(lines: str) -> None:
    assert rewritten(migrate(TF + "def f(values, variables, optimizer):\n" + textwrap.indent(lines, "    "))) != []


def test_what_looks_like_a_mistake_is_left_even_where_changes_are_allowed() -> None:
    assert manual(migrate(TORCH + SCALED + CLIP, allow_semantic_change=True)) == ["GM107"]


def test_an_ignored_result_is_taken_where_changes_are_allowed() -> None:
    changed = migrate(TF + "tf.clip_by_norm(grad, 1.0)\n", allow_semantic_change=True)
    assert changed.source.endswith("\ngrad = gradclip.clip_by_norm(grad, 1.0)\n")


FSDP = TORCH + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
BRANCHES = """
class Accelerator:
    def clip_grad_norm_(self, parameters, max_norm):
        if self.type == DistributedType.FSDP:
            for model in self.models:
                if not self.is_fsdp2:
                    return model.clip_grad_norm_(max_norm)
                else:
                    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def clip_grad_value_(self, parameters, clip_value):
        torch.nn.utils.clip_grad_value_(parameters, clip_value)
"""


def test_the_branches_for_fsdp_are_told_apart() -> None:
    migrated = migrate(FSDP + BRANCHES)
    assert rewritten(migrated) == ["GT101", "GT101", "GT103"]
    (own,) = (site for site in migrated.sites if site.outcome is Verdict.MANUAL)
    assert (own.code, own.line) == ("GM109", 10)
    assert "FSDP's knows the shards" in own.reason
    source = FSDP + f"if isinstance(model, FSDP):\n    model.clip_grad_norm_(1.0)\nelse:\n    {CLIP}"
    assert rewritten(migrate(source)) == ["GT101"]


def test_a_branch_for_fsdp_that_does_not_return_leaves_the_clip() -> None:
    branches = BRANCHES.replace("return model", "norm = model").replace("return torch", "norm = torch")
    assert "GM109" in [site.code for site in migrate(FSDP + branches).sites if site.line == 13]


def test_advice_about_accelerate_names_the_clip_that_it_has() -> None:
    source = TORCH + "from accelerate import Accelerator\nclip_grad_value_(model.parameters(), 1.0)\n"
    (site,) = migrate(source).sites
    assert (site.code, site.advice) == ("GM109", "Use accelerator.clip_grad_value_(parameters, clip_value).")


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ("np.clip(grad, -10, 10, grad)", "gradclip.clip_(grad, gradclip.dialects.torch.clip_grad_value(10))"),
        ("np.clip(grad, -10, 10, out=grad)", "gradclip.clip_(grad, gradclip.dialects.torch.clip_grad_value(10))"),
        ("grad.clip(-10, 10, grad)", "gradclip.clip_(grad, gradclip.dialects.torch.clip_grad_value(10))"),
        ("np.clip(grad, -10, 10, kept)", "kept[...] = gradclip.clip(grad, gradclip.dialects.torch.clip_grad_value(10)).grads"),
        ("np.clip(grad, -10, 10)", "gradclip.clip(grad, gradclip.dialects.torch.clip_grad_value(10)).grads"),
    ],
)
def test_the_array_that_numpy_writes_into(call: str, advice: str) -> None:
    (site,) = lint.of_source(f"import numpy as np\n{call}\n")
    assert (site.code, site.advice) == ("GM401", f"Write: {advice}.")
