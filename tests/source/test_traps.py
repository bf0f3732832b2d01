"""The 16 traps of the catalogue: the code that triggers each, and similar code that must not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from migrate.codemods import manual, migrate

from gradclip.source.codes import CODES

TORCH = "import torch\nfrom torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_\n"
TF = "import tensorflow as tf\n"
KERAS = "import keras\n"
PADDLE = "import paddle\n"
OPTAX = "import optax\n"

LOOP = "for batch in batches:\n    loss(batch).backward()\n    clip_grad_norm_(params, 1.0)\n    optimizer.step()\n"
SCALED = "scaler.scale(loss).backward()\n"
CLIP = "clip_grad_norm_(model.parameters(), 1.0)\n"
CLIPS = "self.clip_gradients(opt, gradient_clip_val=0.5, gradient_clip_algorithm='norm')"
LIGHTNING = """import lightning as L
class M(L.LightningModule):
    def __init__(self):
        self.automatic_optimization = False
    def training_step(self, batch, n):
        opt = self.optimizers()
        self.manual_backward(self.loss(batch))
        {}
        opt.step()
L.Trainer({})
"""
FSDP = TORCH + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
OF_SELF = "clip_grad_norm_(self.m.parameters(), 1.0)\n"

PLANTED = Path(__file__).parents[1] / "lint" / "planted.txt"
FIRES = {
    # 1: iterators
    "a generator expression in a loop": ("GM101", TORCH + "params = (p for p in model.parameters())\n" + LOOP),
    "a filter that an optimizer has taken": (
        "GM101",
        TORCH
        + "params = filter(bool, model.parameters())\noptimizer = torch.optim.SGD(params)\nclip_grad_norm_(params, 1.0)\n",
    ),
    "torch's parameters() in a loop": ("GM101", TORCH + "params = model.parameters()\n" + LOOP),
    "a chain of the module in a function": (
        "GM101",
        TORCH + "import itertools\nparams = itertools.chain(a.parameters())\ndef f():\n    clip_grad_norm_(params, 1)\n",
    ),
    "an iterator for Paddle": ("GM101", PADDLE + "paddle.nn.utils.clip_grad_norm_(filter(bool, params), 1.0)\n"),
    "an iterator with a name for Paddle": (
        "GM101",
        PADDLE + "params = map(f, params_)\npaddle.nn.utils.clip_grad_value_(params, 1.0)\n",
    ),
    # 3: Keras's clipnorm
    "lr=, which no Keras 3 takes": ("GM103", KERAS + "keras.optimizers.SGD(lr=0.1, clipnorm=1.0)\n"),
    "fit_generator, which no Keras 3 has": (
        "GM103",
        KERAS + "optimizer = keras.optimizers.SGD(clipnorm=1.0)\nmodel.fit_generator(data)\n",
    ),
    "a legacy optimizer": ("GM103", TF + "tf.keras.optimizers.legacy.Adam(global_clipnorm=1.0)\n"),
    "Keras of TensorFlow 1": ("GM103", TF + "tf.compat.v1.keras.optimizers.Adam(clipnorm=1.0)\n"),
    # 4: a clip by value with a norm's limit
    "clip_by_value with a norm": ("GM104", TF + "g = tf.clip_by_value(grad, -max_grad_norm, max_grad_norm)\n"),
    "optax.clip with a norm": ("GM104", OPTAX + "optax.chain(optax.clip(config.max_norm), optax.sgd(1))\n"),
    "clip_grad_value_ with a norm": ("GM104", TORCH + "clip_grad_value_(params, args.max_grad_norm)\n"),
    "ClipGradByValue with a norm": ("GM104", PADDLE + "clip = paddle.nn.ClipGradByValue(max_norm)\n"),
    "clamp_ with a norm": ("GM104", TORCH + "p.grad.clamp_(-max_norm, max_norm)\n"),
    # 5: in place, or returned
    "clip_by_norm ignored": ("GM105", TF + "tf.clip_by_norm(grad, 1.0)\n"),
    "clip_by_global_norm ignored": ("GM105", TF + "tf.clip_by_global_norm(grads, 1.0)\n"),
    "a result thrown away": ("GM105", TF + "_ = tf.clip_by_norm(grad, 1.0)\n"),
    "an object thrown away": ("GM105", PADDLE + "paddle.nn.ClipGradByNorm(1.0)\n"),
    "the norm taken for gradients": ("GM105", TORCH + "grads = clip_grad_norm_(model.parameters(), 1.0)\nf(zip(grads, ps))\n"),
    # 6: the norm before the clip
    "a norm called clipped": ("GM106", TORCH + "clipped_norm = clip_grad_norm_(params, 1.0)\n"),
    "a norm called after": ("GM106", TF + "grads, norm_after = tf.clip_by_global_norm(grads, 1.0)\n"),
    "the norm of something else": (
        "GM106",
        TF + "norm = tf.linalg.global_norm(variables)\ngrads, _ = tf.clip_by_global_norm(grads, 1.0, use_norm=norm)\n",
    ),
    "Lightning by hand": ("GM107", LIGHTNING.format(CLIPS, "precision='16-mixed'")),
    "Lightning by hand, of 1.x": ("GM107", LIGHTNING.format(CLIPS, "precision=16")),
    "Lightning by hand, with a plugin": ("GM107", LIGHTNING.format(CLIPS, "plugins=[L.MixedPrecision('16-mixed', 'cuda')]")),
    "Lightning by hand, in a branch": (
        "GM107",
        LIGHTNING.format(f"if n % 2:\n            {CLIPS}", "max_steps=1, precision='16-mixed'"),
    ),
    # 25: a limit that is off
    "clipnorm=0": ("GM125", KERAS + "keras.optimizers.Adam(1e-3, clipnorm=0)\n"),
    "clipvalue=0.0": ("GM125", TF + "tf.keras.optimizers.SGD(clipvalue=0.0)\n"),
    "a negative limit of Keras": ("GM125", KERAS + "keras.optimizers.SGD(global_clipnorm=-1.0)\n"),
    "a name for 0": ("GM125", KERAS + "CLIP = 0.0\nkeras.optimizers.SGD(clipnorm=CLIP)\n"),
    "a float of a text": ("GM125", KERAS + "keras.optimizers.RMSprop(clipnorm=float('0'))\n"),
    "an attribute of 0": ("GM125", KERAS + "opt = keras.optimizers.SGD()\nopt.clipnorm = 0.0\n"),
    "0 in a configuration": ("GM125", KERAS + "keras.optimizers.get({'class_name': 'SGD', 'config': {'clipnorm': 0}})\n"),
    # 7: mixed precision
    "no unscale_": ("GM107", TORCH + SCALED + CLIP + "scaler.step(optimizer)\n"),
    "the scaled loss has a name": ("GM107", TORCH + "scaled = self.scaler.scale(loss)\nscaled.backward()\n" + CLIP),
    "unscaled too late": ("GM107", TORCH + SCALED + CLIP + "scaler.unscale_(optimizer)\nscaler.step(optimizer)\n"),
    "within apex's scale_loss": (
        "GM107",
        TORCH + "with amp.scale_loss(loss, optimizer) as scaled:\n    scaled.backward()\n    " + CLIP + "optimizer.step()\n",
    ),
    "a scaler's step and no unscale_": ("GM107", TORCH + "loss.backward()\n" + CLIP + "self.grad_scaler.step(optimizer)\n"),
    "get_scaled_loss": (
        "GM107",
        TF
        + "scaled = opt.get_scaled_loss(loss)\ngrads = tape.gradient(scaled, v)\ngrads, _ = tf.clip_by_global_norm(grads, 1)\n",
    ),
    # 8: order
    "after the step": ("GM108", TORCH + "loss.backward()\noptimizer.step()\n" + CLIP),
    "after the step of a scaler": ("GM108", TORCH + SCALED + "scaler.step(optimizer)\n" + CLIP),
    "before the backward of a scaled loss": ("GM108", TORCH + CLIP + SCALED + "scaler.step(optimizer)\n"),
    "before the backward": ("GM108", TORCH + "optimizer.zero_grad()\n" + CLIP + "loss.backward()\noptimizer.step()\n"),
    "after apply_gradients": (
        "GM108",
        TF + "optimizer.apply_gradients(zip(grads, v))\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n",
    ),
    "after the optimizer in a chain": ("GM108", OPTAX + "optax.chain(optax.adam(1e-3), optax.clip_by_global_norm(1.0))\n"),
    "after a named optimizer in a chain": (
        "GM108",
        OPTAX + "adam = optax.adamw(1e-3)\ntx = optax.chain(adam, optax.clip(1.0))\n",
    ),
    "after the optimizer in a named chain": (
        "GM108",
        OPTAX + "tx = optax.named_chain(('o', optax.adam(1e-3)), ('c', optax.clip(1.0)))\n",
    ),
    "before the mean over replicas": (
        "GM122",
        TF + "import jax\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\ngrads = jax.lax.pmean(grads, 'batch')\n",
    ),
    "before all_reduce": (
        "GM122",
        TORCH + "loss.backward()\n" + CLIP + "for p in params:\n    dist.all_reduce(p.grad)\noptimizer.step()\n",
    ),
    # 9: wrappers
    "FSDP": ("GM124", FSDP + "model = FSDP(m)\n" + CLIP),
    "FSDP, as an attribute": ("GM124", FSDP + "class T:\n    def f(self):\n        self.m = FSDP(m)\n        " + OF_SELF),
    "FSDP, perhaps": ("GM109", FSDP + "model = FSDP(m) if is_sharded else m\n" + CLIP),
    "FSDP of its module": (
        "GM124",
        TORCH + "import torch.distributed.fsdp as fsdp\nmodel = fsdp.FullyShardedDataParallel(m)\n" + CLIP,
    ),
    "FSDP of its module, named": (
        "GM109",
        TORCH + "import torch.distributed.fsdp as fsdp\nwrap = partial(fsdp.FullyShardedDataParallel, m)\n" + CLIP,
    ),
    "DeepSpeed": ("GM109", TORCH + "import deepspeed\n" + CLIP),
    "Accelerate": ("GM109", TORCH + "from accelerate import Accelerator\n" + CLIP),
    "Opacus": ("GM109", TORCH + "from opacus import PrivacyEngine\n" + CLIP),
    "Accelerate's backward": ("GM109", TORCH + "self.accelerator.backward(loss)\n" + CLIP + "optimizer.step()\n"),
    "Fleet": (
        "GM109",
        PADDLE
        + "from paddle.distributed import fleet\nopt = paddle.optimizer.SGD(grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))\n"
        + "opt = fleet.distributed_optimizer(opt)\n",
    ),
    "accelerator.clip_grad_norm_": ("GM109", "accelerator.clip_grad_norm_(model.parameters(), 1.0)\n"),
    "Lightning's clip_gradients": (
        "GM109",
        "class M(L):\n    def f(self):\n        self.clip_gradients(o, gradient_clip_val=1)\n",
    ),
    # 10: Paddle before 2.0
    "set_gradient_clip": ("GM110", PADDLE + "paddle.fluid.clip.set_gradient_clip(clip)\n"),
    "ParamAttr(gradient_clip=)": ("GM110", PADDLE + "a = paddle.fluid.ParamAttr(gradient_clip=clip)\n"),
    "minimize(grad_clip=)": (
        "GM110",
        PADDLE + "clip = paddle.nn.ClipGradByNorm(1.0)\nopt.minimize(loss, grad_clip=clip)\n",
    ),
    "bounds in TensorFlow's order": ("GM110", PADDLE + "clip = paddle.nn.ClipGradByValue(-1.0, 1.0)\n"),
    "bounds named in TensorFlow's order": ("GM110", PADDLE + "clip = paddle.nn.ClipGradByValue(args.min, args.max)\n"),
    # 11: None and sparse
    "an embedding": ("GM111", TF + "e = tf.keras.layers.Embedding(9, 9)\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n"),
    "IndexedSlices": ("GM111", TF + "if isinstance(grad, tf.IndexedSlices):\n    grad = tf.clip_by_norm(grad, 1.0)\n"),
    "a sparse embedding of Paddle": (
        "GM111",
        PADDLE + "e = paddle.nn.Embedding(9, 9, sparse=True)\nclip = paddle.nn.ClipGradByGlobalNorm(1.0)\n",
    ),
    "a TensorFlow model of transformers": (
        "GM111",
        TF + "from transformers import TFBertModel\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n",
    ),
    "a feature column": (
        "GM111",
        TF + "c = tf.feature_column.embedding_column(words, 8)\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n",
    ),
    "None left out and zipped": (
        "GM111",
        TF + "gs = [g for g in grads if g is not None]\ngs, _ = tf.clip_by_global_norm(gs, 1.0)\npairs = zip(gs, variables)\n",
    ),
    # 13: a copy, scaling up
    "quotients clipped in place": (
        "GM113",
        "import numpy as np\nfor d in dparams:\n    d = d / n\n    np.clip(d, -5, 5, out=d)\n",
    ),
    "the variable of a loop": ("GM113", TF + "for g in grads:\n    g = tf.clip_by_norm(g, 1.0)\n"),
    "clones": ("GM113", TORCH + "clip_grad_norm_([p.clone() for p in params], 1.0)\n"),
    "gradients and not parameters": ("GM113", TORCH + "clip_grad_norm_([p.grad for p in params], 1.0)\n"),
    "scaling up by a setting": ("GM113", "import torch\nscale = args['max_norm'] / torch.norm(g)\ng = g * scale\n"),
    "scaling up": ("GM113", "scale = max_norm / total_norm\ngrads = [g * scale for g in grads]\n"),
    # 14: arguments and limits
    "a limit of 0": ("GM114", TORCH + "clip_grad_norm_(params, 0)\n"),
    "a limit of 0 with a name": ("GM114", TORCH + "CLIP = 0.0\nclip_grad_norm_(params, CLIP)\n"),
    "a negative limit": ("GM114", TORCH + "clip_grad_norm_(params, max_norm=-1.0)\n"),
    "the negative of a setting": ("GM114", TORCH + "clip_grad_norm_(params, max_norm=-cfg.clip)\n"),
    "the negative of a setting with a name": ("GM114", TF + "c = -cfg.clip\ng = tf.clip_by_norm(grad, c)\n"),
    "a limit of None": ("GM114", OPTAX + "optax.clip_by_global_norm(None)\n"),
    "a NaN": ("GM114", TORCH + "clip_grad_value_(params, float('nan'))\n"),
    "an infinite limit that poisons": ("GM114", TF + "grads, n = tf.clip_by_global_norm(grads, float('inf'))\n"),
    "an infinite limit for Paddle": ("GM114", "import math\n" + PADDLE + "clip = paddle.nn.ClipGradByNorm(math.inf)\n"),
    "a function of the parameter": ("GM114", PADDLE + "clip = paddle.fluid.clip.GradientClipByNorm(1.0, need_clip=f)\n"),
    "a limit that may be None in Keras": ("GM114", KERAS + "keras.optimizers.SGD(clipnorm=args.clip)\n"),
    # 15: the optimizer's state
    "inject_hyperparams": ("GM115", OPTAX + "tx = optax.inject_hyperparams(optax.clip)(max_delta=1.0)\n"),
    # 16: a parameter listed twice
    "a module in a chain twice": ("GM116", TORCH + "clip_grad_norm_(itertools.chain(a.parameters(), a.parameters()), 1.0)\n"),
    "a module in a list twice": ("GM116", TORCH + "clip_grad_norm_([*a.parameters(), *a.parameters()], 1.0)\n"),
    "a module in a sum twice": ("GM116", TORCH + "x = list(a.parameters())\nclip_grad_norm_(x + list(a.parameters()), 1.0)\n"),
    "weights that are tied": (
        "GM116",
        TORCH + "decoder.weight = encoder.weight\nclip_grad_norm_([*a.parameters(), *b.parameters()], 1.0)\n",
    ),
    "weights that are tied by a method": (
        "GM116",
        TORCH + "model.tie_weights()\nclip_grad_norm_([*a.parameters(), *b.parameters()], 1.0)\n",
    ),
    # an obsolete framework
    "TensorFlow 1": ("GM117", TF + "with tf.Session() as s:\n    grads, _ = tf.clip_by_global_norm(grads, 1.0)\n"),
    "fluid": ("GM117", "import paddle.fluid as fluid\nclip = fluid.clip.GradientClipByNorm(1.0)\n"),
    "modules that share a weight": (
        "GM116",
        TORCH + "d.out.weight = e.emb.weight\nclip_grad_norm_([*e.parameters(), *d.parameters()], 1.0)\n",
    ),
    "one weight twice": ("GM116", TORCH + "clip_grad_norm_([w, w], 1.0)\n"),
    "a sum of Paddle's lists": ("GM116", PADDLE + "paddle.nn.utils.clip_grad_norm_(a.parameters() + a.parameters(), 1.0)\n"),
}

SILENT = {
    "GM101": [
        TORCH + "params = list(model.parameters())\n" + LOOP,
        TORCH + "for batch in batches:\n    params = filter(bool, model.parameters())\n    clip_grad_norm_(params, 1.0)\n",
        TORCH + "clip_grad_norm_((p for p in model.parameters()), 1.0)\n",
        TORCH + "params = model.parameters()\nif log:\n    print(list(params))\nelse:\n    clip_grad_norm_(params, 1.0)\n",
        TORCH + "clip_grad_norm_(itertools.chain(a.parameters(), b.parameters()), 1.0)\n",
        PADDLE + "params = model.parameters()\nfor batch in batches:\n    paddle.nn.utils.clip_grad_norm_(params, 1.0)\n",
    ],
    "GM103": [
        KERAS + "keras.optimizers.SGD(learning_rate=0.1, clipnorm=1.0)\n",
        TF + "tf.keras.optimizers.Adam(clipnorm=1.0)\n",
        KERAS + "keras.optimizers.SGD(global_clipnorm=1.0)\n",
    ],
    "GM104": [
        TF + "g = tf.clip_by_value(grad, -limit, limit)\n",
        TORCH + "clip_grad_norm_(params, args.max_grad_norm)\n",
        OPTAX + "optax.clip(0.1)\n",
    ],
    "GM125": [
        KERAS + "keras.optimizers.SGD(clipnorm=1e-9)\n",
        KERAS + "keras.optimizers.SGD(clipnorm=None)\n",
        KERAS + "keras.optimizers.SGD(clipnorm=limit)\n",
        KERAS + "CLIP = 0.0\nif big:\n    CLIP = 1.0\nkeras.optimizers.SGD(clipnorm=CLIP)\n",
        TORCH + "clip_grad_norm_(params, 0.0)\n",
        OPTAX + "optax.chain(optax.clip_by_global_norm(0.0), optax.sgd(1.0))\n",
        PADDLE + "clip = paddle.nn.ClipGradByGlobalNorm(0.0)\n",
    ],
    "GM105": [
        TF + "g = tf.clip_by_norm(grad, 1.0)\n",
        TF + "def f(grads):\n    return tf.clip_by_global_norm(grads, 1.0)\n",
        TORCH + "clip_grad_norm_(params, 1.0)\n",
        TORCH + "grad_norm = clip_grad_norm_(params, 1.0)\n",
        TORCH + "model_grad = clip_grad_norm_(params, 1.0)\nlog({'grad': model_grad})\n",
    ],
    "GM106": [
        TORCH + "norm = clip_grad_norm_(params, 1.0)\n",
        TORCH + "norm_before_clip = clip_grad_norm_(params, 1.0)\n",
        TF + "clipped, norm = tf.clip_by_global_norm(grads, 1.0)\n",
        TF + "norm = tf.linalg.global_norm(grads)\ngrads, _ = tf.clip_by_global_norm(grads, 1.0, use_norm=norm)\n",
        TF + "norm = tf.linalg.global_norm(a + b)\na, _ = tf.clip_by_global_norm(a, 1.0, use_norm=norm)\n",
        TF + "both = [*a, *b]\nnorm = tf.linalg.global_norm(both)\nb, _ = tf.clip_by_global_norm(b, 1.0, use_norm=norm)\n",
    ],
    "GM107": [
        LIGHTNING.format(CLIPS, "precision='bf16-mixed'"),
        LIGHTNING.format(CLIPS, "precision='16-true'"),
        LIGHTNING.format(CLIPS, "precision=32"),
        LIGHTNING.format(CLIPS, "precision='16-mixed', strategy='deepspeed_stage_2'"),
        LIGHTNING.format(CLIPS.replace("0.5", "0.5 * self.trainer.scaler.get_scale()"), "precision=16"),
        LIGHTNING.format(CLIPS, "precision=16").replace("= False", "= True"),
        LIGHTNING.format(CLIPS, "precision=16").replace("training_step", "clip").replace("self.manual_backward", "log"),
        LIGHTNING.format(f"pass\n    def on_before_optimizer_step(self, opt):\n        {CLIPS}", "precision=16"),
        LIGHTNING.format(CLIPS, "precision=16").replace("L.LightningModule", "Base"),
        LIGHTNING.format(CLIPS, "precision=16") + "def clip_gradients(self, opt, **limits):\n    pass\n",
        LIGHTNING.format(f"self.trainer.precision_plugin.scaler.unscale_(opt)\n        {CLIPS}", "precision=16"),
        TORCH + SCALED + "scaler.unscale_(optimizer)\n" + CLIP + "scaler.step(optimizer)\n",
        TORCH + "loss.backward()\n" + CLIP + "optimizer.step()\n",
        TORCH + f"def f(loss):\n    unscale()\n    {CLIP}    scaler.step(o)\ndef unscale():\n    scaler.unscale_(o)\n",
        TORCH + f"def f():\n    {CLIP}def g():\n    scaler.step(optimizer)\n",
        TORCH
        + f"if amp:\n    {SCALED}    scaler.step(optimizer)\nelse:\n    loss.backward()\n    {CLIP}    optimizer.step()\n",
        TORCH
        + f"if not scaler:\n    loss.backward()\nelse:\n    {SCALED}"
        + f"if scaler:\n    scaler.unscale_(o)\n    {CLIP}    scaler.step(o)\nelse:\n    {CLIP}    optimizer.step()\n",
        TF
        + "scaled = optimizer.get_scaled_loss(loss)\ngrads = optimizer.get_unscaled_gradients(tape.gradient(scaled, v))\n"
        + "grads, _ = tf.clip_by_global_norm(grads, 1)\n",
    ],
    "GM108": [
        TORCH + "loss.backward()\n" + CLIP + "optimizer.step()\nscheduler.step()\n",
        TORCH + "loss.backward()\nd_optimizer.step()\n" + CLIP + "g_optimizer.step()\n",
        TORCH + "d_loss.backward()\nd_optimizer.step()\ng_loss.backward()\n" + CLIP + "g_optimizer.step()\n",
        TORCH + "scheduler.step()\nstate = env.step(action)\nloss.backward()\n" + CLIP + "optimizer.step()\n",
        TORCH + f"for b in data:\n    if ready:\n        {CLIP}        optimizer.step()\n    loss(b).backward()\n",
        TORCH + "loss.backward()\n" + CLIP + "dist.all_reduce(loss)\noptimizer.step()\n",
        OPTAX + "optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))\n",
        OPTAX + "optax.named_chain(('c', optax.clip(1.0)), ('o', optax.adam(1e-3)))\n",
        OPTAX + "optax.chain(optax.zero_nans(), optax.clip_by_global_norm(1.0), optax.adam(1e-3))\n",
    ],
    "GM109": [
        TORCH + "from torch.distributed.fsdp import fully_shard\nfully_shard(model)\nsave(weight.full_tensor())\n" + CLIP,
        TORCH + "from torch.distributed.fsdp import fully_shard\nfully_shard(model)\nn = " + CLIP + "n = n.full_tensor()\n",
        TORCH + "import accelerate_me\n" + CLIP,
        TORCH + f"if accelerator:\n    accelerator.backward(loss)\nelse:\n    loss.backward()\n    {CLIP}",
        TORCH + f"if accelerator:\n    accelerator.backward(loss)\nif not accelerator:\n    {CLIP}",
        PADDLE + "from paddle.distributed import fleet\nfleet.init()\nclip = paddle.nn.ClipGradByGlobalNorm(1.0)\n",
        PADDLE + "opt = mesh.distributed_optimizer(opt)\nclip = paddle.nn.ClipGradByGlobalNorm(1.0)\n",
        "class M:\n    def clip_gradients(self):\n        pass\n    def f(self):\n        self.clip_gradients()\n",
    ],
    "GM124": [
        FSDP + "model = FSDP(m, sharding_strategy=ShardingStrategy.NO_SHARD)\n" + CLIP,
        FSDP + f"model = FSDP(m)\nif sharded:\n    model.clip_grad_norm_(1.0)\nelse:\n    {CLIP}",
        FSDP + "model = FSDP(m)\nclip_grad_norm_(other.parameters(), 1.0)\n",
        FSDP + "model = FSDP(m)\nclip_grad_value_(model.parameters(), 1.0)\n",
    ],
    "GM110": [
        PADDLE + "clip = paddle.nn.ClipGradByValue(1.0, -1.0)\n",
        PADDLE + "clip = paddle.nn.ClipGradByNorm(1.0)\noptimizer = paddle.optimizer.SGD(0.1, grad_clip=clip)\n",
        "import paddle.fluid as fluid\nclip = fluid.clip.GradientClipByNorm(1.0)\nopt.minimize(loss)\n",
    ],
    "GM111": [
        TF + "for i, (g, v) in enumerate(gvs):\n    if g is not None:\n        gvs[i] = (tf.clip_by_norm(g, 1.0), v)\n",
        TF + "from transformers import AutoTokenizer\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n",
        TF + "class Embedding: ...\ne = Embedding(9)\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n",
        PADDLE + "e = paddle.nn.Embedding(9, 9)\nclip = paddle.nn.ClipGradByGlobalNorm(1.0)\n",
        TF + "gvs = [(g, v) for g, v in gvs if g is not None]\ngvs = [(tf.clip_by_norm(g, 1.0), v) for g, v in gvs]\n",
    ],
    "GM113": [
        "import numpy as np\nfor d in dparams:\n    np.clip(d, -5, 5, out=d)\n",
        TF + "for g in grads:\n    g = tf.clip_by_norm(g, 1.0)\n    clipped.append(g)\n",
        TORCH + "clip_grad_norm_([p for p in params if p.grad is not None], 1.0)\n",
        "coefficient = max_norm / (total_norm + 1e-6)\nif coefficient < 1:\n    g *= coefficient\n",
        "scale = min(1.0, max_norm / total_norm)\n",
        "learning_rate = max_learning_rate / (norm_of_data + 1e-6)\n",
        "fraction = clip_count / total_norm_count\n",
        "most, n = unitwise(p) * 0.01, unitwise(p.grad)\ng = p.grad * (most / n.clamp(min=1e-6))\n"
        "p.grad.copy_(torch.where(n < most, p.grad, g))\n",
    ],
    "GM114": [
        TORCH + "clip_grad_norm_(params, 1)\n",
        TORCH + "clip_grad_norm_(params, float('inf'))\n",
        TORCH + "clip_grad_norm_(params, args.max_norm, norm_type=3, error_if_nonfinite=True, foreach=False)\n",
        TF + "g = tf.clip_by_value(grad, -1.0, 0.0)\n",
        TF + "g = tf.clip_by_value(grad, -cfg.clip, cfg.clip)\n",
        TORCH + "clip_grad_norm_(params, max_norm=cfg.high - cfg.low)\n",
        PADDLE + "clip = paddle.fluid.clip.GradientClipByNorm(1.0, need_clip=None)\n",
        KERAS + "keras.optimizers.SGD(clipnorm=1)\n",
    ],
    "GM115": [OPTAX + "tx = optax.inject_hyperparams(optax.adam)(learning_rate=1.0)\noptax.chain(optax.clip(1.0), tx)\n"],
    "GM117": [
        "import tensorflow.compat.v1 as tf\nwith tf.Session() as s:\n    grads, _ = tf.clip_by_global_norm(grads, 1.0)\n",
        TF + "writer = tf.summary.create_file_writer(x)\ngrads, _ = tf.clip_by_global_norm(grads, 1.0)\n",
        PADDLE + "clip = paddle.nn.ClipGradByNorm(1.0)\n",
    ],
    "GM116": [
        TORCH + CLIP,
        TORCH + "clip_grad_norm_(itertools.chain(a.parameters()), 1.0)\n",
        TORCH + "clip_grad_norm_([*a.parameters()], 1.0)\n",
        TORCH + "ps = list(filter(lambda p: p.requires_grad, a.parameters()))\nclip_grad_norm_(ps, 1.0)\n",
        TORCH + "clip_grad_norm_(set(a.parameters()) | set(b.parameters()), 1.0)\n",
        TORCH + "clip_grad_norm_(list(set([*a.parameters(), *b.parameters()])), 1.0)\n",
        TORCH + "clip_grad_norm_([p for g in optimizer.param_groups for p in g['params']], 1.0)\n",
        TORCH + "clip_grad_norm_(itertools.chain(*[g['params'] for g in optimizer.param_groups]), 1.0)\n",
        TORCH + "clip_grad_norm_([layer.weight, layer.bias], 1.0)\n",
        TORCH + "clip_grad_norm_([w, b], 1.0)\n",
        TORCH + "clip_grad_value_([*a.parameters(), *b.parameters()], 1.0)\n",
        PADDLE + "paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    ],
}


@pytest.mark.parametrize("name", FIRES)
def test_a_trap_is_seen_and_its_call_left_as_it_is(name: str) -> None:
    code, source = FIRES[name]
    migrated = migrate(source)
    assert code in manual(migrated)
    if CODES[code].advice:
        assert all(site.advice for site in migrated.sites if site.code == code)


@pytest.mark.parametrize(("code", "source"), [(code, source) for code, sources in SILENT.items() for source in sources])
def test_a_look_alike_sets_off_no_trap(code: str, source: str) -> None:
    migrated = migrate(source)
    assert code not in [site.code for site in migrated.sites]


def test_every_trap_of_the_catalogue_is_tried_in_both_ways() -> None:
    traps = {code for code in CODES if code.startswith("GM1")}
    elsewhere = {"GM102", "GM112"}  # these have tests in test_allowed
    planted = set(re.findall(r"^## (GM\d+)", PLANTED.read_text(encoding="utf-8"), re.MULTILINE))  # both ways, in tests/lint
    assert {code for code, _ in FIRES.values()} | planted == traps - elsewhere
    assert SILENT.keys() | planted == traps - elsewhere
