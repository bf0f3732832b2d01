"""Clips of other libraries: each is reported once, with advice that a user can follow."""

from __future__ import annotations

import pytest
from migrate.codemods import migrate

COMPOSER = "from composer.algorithms.gradient_clipping import GradientClipping, apply_gradient_clipping\n"
HOOK = "optimizer = gradclip.clipped(optimizer, gradclip.dialects.torch.{})"
SITES = {
    "Composer's algorithm, by norm": (
        COMPOSER + "clip = GradientClipping(clipping_type='norm', clipping_threshold=args.clip)\n",
        "GM505",
        HOOK.format("clip_grad_norm(args.clip)"),
    ),
    "Composer's algorithm, by value": (
        COMPOSER + "clip = GradientClipping('value', 0.5)\n",
        "GM505",
        HOOK.format("clip_grad_value(0.5)"),
    ),
    "Composer's algorithm, adaptive": (COMPOSER + "clip = GradientClipping('adaptive', 0.01)\n", "GM505", "Keep it: "),
    "Composer's algorithm by another name": (
        "import composer\nclip = composer.algorithms.GradientClipping(clipping_type=kind)\n",
        "GM505",
        "Keep it: ",
    ),
    "Composer's function, by norm": (
        COMPOSER + "apply_gradient_clipping(model, 'norm', 1.0, fsdp_enabled=False)\n",
        "GM505",
        "Write: gradclip.clip_grad_norm_(model.parameters(), 1.0).",
    ),
    "Composer's function, by value": (
        "import composer.functional as cf\n"
        "cf.apply_gradient_clipping(net.parameters(), clipping_type='value', clipping_threshold=1)\n",
        "GM505",
        "Write: gradclip.clip_grad_value_(net.parameters(), 1).",
    ),
    "Composer's function without a limit": (
        COMPOSER + "apply_gradient_clipping(clipping_type='norm')\n",
        "GM505",
        "Write: gradclip.clip_grad_norm_(model.parameters(), limit).",
    ),
    "Composer's function, sharded": (
        COMPOSER + "apply_gradient_clipping(model, 'norm', 1.0, state.fsdp_enabled)\n",
        "GM505",
        "Keep it: ",
    ),
    "Composer's old trainer": (
        "from composer import Trainer\nTrainer(model=model, grad_clip_norm=1.0)\n",
        "GM505",
        "Keep it: ",
    ),
    "DeepSpeed's plugin": (
        "from accelerate import DeepSpeedPlugin\nplugin = DeepSpeedPlugin(gradient_clipping=1.0)\n",
        "GM503",
        "Keep it: ",
    ),
    "Paddle's old operators": (
        "import paddle.fluid as fluid\npairs = fluid.clip.append_gradient_clip_ops(pairs)\n",
        "GM505",
        "pass the clip to grad_clip= of the optimizer",
    ),
    "detectron2's function": (
        "from detectron2.solver.build import maybe_add_gradient_clipping\nSGD = maybe_add_gradient_clipping(cfg, SGD)\n",
        "GM505",
        "gradclip.clipped(optimizer, rule)",
    ),
    "detectron2's configuration": ("cfg.SOLVER.CLIP_GRADIENTS.ENABLED = True\n", "GM504", "Keep it: "),
    "timm's function": (
        "from timm.utils import dispatch_clip_grad\ndispatch_clip_grad(model.parameters(), 1.0, mode='norm')\n",
        "GM505",
        "Write: gradclip.clip_grad_norm_(model.parameters(), 1.0).",
    ),
    "timm's adaptive clip": (
        "import timm.utils\ntimm.utils.adaptive_clip_grad(model.parameters(), 0.01)\n",
        "GM505",
        "Keep it: ",
    ),
    "pytorch-optimizer's adaptive clip": (
        "from pytorch_optimizer.optimizer.agc import agc\np.grad = agc(p, p.grad)\n",
        "GM505",
        "Keep it: ",
    ),
    "pytorch-optimizer's LOMO": (
        "from pytorch_optimizer import LOMO\noptimizer = LOMO(model, clip_grad_norm=1.0)\n",
        "GM505",
        "Keep it.",
    ),
    "apex's function": (
        "from apex.contrib.clip_grad import clip_grad_norm_\nclip_grad_norm_(model.parameters(), 1.0)\n",
        "GM505",
        "Write: gradclip.clip_grad_norm_(model.parameters(), 1.0).",
    ),
    "apex's optimizer": (
        "import apex\noptimizer = apex.optimizers.FusedLAMB(params, max_grad_norm=1.0)\n",
        "GM505",
        "Keep it: ",
    ),
    "fairseq's function": (
        "from fairseq import utils\nutils.clip_grad_norm_(params, 0.1)\n",
        "GM505",
        "Write: gradclip.clip_grad_norm_(params, 0.1);",
    ),
    "fairseq's method": (
        "from fairseq import optim\nnorm = self.optimizer.clip_grad_norm(0.1)\n",
        "GM109",
        "Keep the wrapper's clip.",
    ),
    "MMEngine's wrapper": (
        "from mmengine.optim import OptimWrapper\nwrapper = OptimWrapper(optimizer, clip_grad=dict(max_norm=1))\n",
        "GM504",
        "Keep it: ",
    ),
    "mmcv's hook": ("optimizer_config = dict(grad_clip=dict(max_norm=35, norm_type=2))\n", "GM504", "Keep it: "),
    "PaddleNLP's trainer": (
        "from paddlenlp.trainer import TrainingArguments\narguments = TrainingArguments(max_grad_norm=1.0)\n",
        "GM502",
        "Keep it: ",
    ),
    "PaddleDetection's configuration": ("builder = OptimizerBuilder(clip_grad_by_norm=35.0)\n", "GM504", "Keep it: "),
    "PaddleSeg's configuration": (
        "cfg = dict(grad_clip_cfg=dict(name='ClipGradByNorm', clip_norm=0.1))\n",
        "GM504",
        "Keep it: ",
    ),
    "JAX's example optimizers, as Flax's examples had them": (
        "from jax.example_libraries import optimizers\ngrads = optimizers.clip_grads(grads, 1.0)\n",
        "GM303",
        "Write: gradclip.clip(grads, gradclip.dialects.optax.clip_by_global_norm(1.0)).grads.",
    ),
    "Levanter's configuration": (
        "from levanter.optim import AdamConfig\noptimizer = AdamConfig(max_grad_norm=1.0)\n",
        "GM502",
        "Keep it: ",
    ),
    "Levanter's clip of updates": (
        "from levanter.optim.clip_update_norm import ClipUpdateNormConfig\nclip = ClipUpdateNormConfig()\n",
        "GM505",
        "Keep it: ",
    ),
    "Megatron's configuration": (
        "from megatron.core.optimizer import OptimizerConfig\nconfig = OptimizerConfig(clip_grad=1.0)\n",
        "GM505",
        "Keep it: ",
    ),
    "Colossal-AI's plugin": (
        "from colossalai.booster.plugin import GeminiPlugin\nplugin = GeminiPlugin(max_norm=1.0)  # clips\n",
        "GM505",
        "Keep it: ",
    ),
    "AllenNLP's trainer": (
        "from allennlp.training import GradientDescentTrainer\ntrainer = GradientDescentTrainer(model, grad_norm=5.0)\n",
        "GM505",
        "Keep it: ",
    ),
    "RLlib's configuration": (
        "from ray.rllib.algorithms.ppo import PPOConfig\nconfig = PPOConfig().training(grad_clip=40.0)\n",
        "GM505",
        "Keep it: ",
    ),
    "MXNet's trainer": (
        "import mxnet as mx\ntrainer = mx.gluon.Trainer(params, 'sgd', {'clip_gradient': 1.0})\n",
        "GM505",
        "Keep it: ",
    ),
    "TensorFlow's model garden": ("config = {'adamw': {'gradient_clip_norm': 1.0}}\n", "GM504", "Keep it: "),
}
OFF = {
    "a trainer that does not clip": "from allennlp.training import GradientDescentTrainer\n"
    "GradientDescentTrainer(grad_clipping=None)\n",
    "a method of another object": "settings = trainer.training(grad_clip=1.0)\n",
    "a key of another dictionary": "settings = {'clip_gradient': 1.0}\n",
}


@pytest.mark.parametrize("name", SITES)
def test_a_librarys_clip_is_said_once(name: str) -> None:
    source, code, advice = SITES[name]
    (site,) = migrate(source).sites
    assert site.code == code
    assert advice in site.advice


@pytest.mark.parametrize("name", OFF)
def test_what_clips_nothing(name: str) -> None:
    assert migrate(OFF[name]).sites == ()


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("ord=1", 'Write: gradclip.norm(grads, gradclip.dialects.torch.clip_grad_norm(float("inf"), norm_type=1)).'),
        ("squared=True", "Keep it."),
    ],
)
def test_a_norm_of_optax_with_more_arguments(given: str, advice: str) -> None:
    (site,) = migrate(f"import optax\nn = optax.tree.norm(grads, {given})\n", norms=True).sites
    assert (site.code, site.advice) == ("GM303", advice)
