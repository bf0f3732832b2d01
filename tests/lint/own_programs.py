"""Programs that clip with gradclip's own calls: name -> the source, and the code of its one mistake, or "" for a right one."""

from __future__ import annotations

__all__ = ["PROGRAMS"]

_TORCH = "import torch\nimport gradclip as gc\nfrom gradclip.dialects import torch as rules\n"
_JAX = "import jax\nimport optax\nimport gradclip\nfrom gradclip.dialects import optax as rules\n"
_TF = "import tensorflow as tf\nimport gradclip\nfrom gradclip.dialects import tensorflow as rules\n"

PROGRAMS: dict[str, tuple[str, str]] = {
    "a method clips after the step": (
        _TORCH
        + """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.rule = rules.clip_grad_norm(max_norm=1.0)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def clip(self):
        gc.clip_(self.model.parameters(), self.rule)

    def step(self, batch):
        self.optimizer.zero_grad()
        self.model(batch).mean().backward()
        self.optimizer.step()
        self.clip()
""",
        "GM108",
    ),
    "a method clips before the step": (
        _TORCH
        + """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.rule = rules.clip_grad_norm(max_norm=1.0)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def clip(self):
        gc.clip_(self.model.parameters(), self.rule)

    def step(self, batch):
        self.optimizer.zero_grad()
        self.model(batch).mean().backward()
        self.clip()
        self.optimizer.step()
""",
        "",
    ),
    "an alias of the drop-in, with a scaler": (
        """
import torch
from gradclip import clip_grad_norm_ as clip

def train(model, optimizer, loader, scaler):
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch).mean()).backward()
        clip(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
""",
        "GM107",
    ),
    "an alias of the drop-in, after unscale": (
        """
import torch
from gradclip import clip_grad_norm_ as clip

def train(model, optimizer, loader, scaler):
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch).mean()).backward()
        scaler.unscale_(optimizer)
        clip(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
""",
        "",
    ),
    "two stages, the result dropped": (
        _TF
        + """
def step(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    grads = tape.gradient(loss, model.trainable_variables)
    rule = rules.clip_by_global_norm(1.0)
    norm = gradclip.norm(grads, rule)
    gradclip.scale_by_norm(grads, rule, norm)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return norm
""",
        "GM105",
    ),
    "two stages": (
        _TF
        + """
def step(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    grads = tape.gradient(loss, model.trainable_variables)
    rule = rules.clip_by_global_norm(1.0)
    norm = gradclip.norm(grads, rule)
    grads = gradclip.scale_by_norm(grads, rule, norm).grads
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return norm
""",
        "",
    ),
    "only the norm of the result is taken": (
        _TF
        + """
def step(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    grads = tape.gradient(loss, model.trainable_variables)
    result = gradclip.clip(grads, rules.clip_by_global_norm(1.0))
    tf.summary.scalar("norm", result.norm)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
""",
        "GM105",
    ),
    "a clipped optimizer, and a clip before it": (
        _TORCH
        + """
def train(model, loader):
    optimizer = gc.clipped(torch.optim.SGD(model.parameters(), lr=0.1), rules.clip_grad_norm(1.0))
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        gc.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
""",
        "GM120",
    ),
    "a clipped optimizer": (
        _TORCH
        + """
def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gc.clipped(optimizer, rules.clip_grad_norm(1.0), monitor=gc.Monitor())
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
""",
        "",
    ),
    "a clipped transformation that nothing uses": (
        _JAX
        + """
def make(learning_rate):
    optimizer = optax.adam(learning_rate)
    gradclip.clipped(optimizer, rules.clip_by_global_norm(1.0))
    return optimizer
""",
        "GM105",
    ),
    "a clipped transformation": (
        _JAX
        + """
def train(loss, params, batches):
    optimizer = gradclip.clipped(optax.adam(1e-3), rules.clip_by_global_norm(1.0))
    state = optimizer.init(params)
    for batch in batches:
        grads = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params
""",
        "",
    ),
    "a clip before a clipped transformation": (
        _JAX
        + """
def train(loss, params, batches):
    optimizer = gradclip.clipped(optax.adam(1e-3), rules.clip_by_global_norm(1.0))
    state = optimizer.init(params)
    for batch in batches:
        grads = jax.grad(loss)(params, batch)
        grads = gradclip.clip(grads, rules.clip_by_global_norm(5.0)).grads
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params
""",
        "GM120",
    ),
    "a link after the optimizer": (
        _JAX
        + """
from gradclip.backends.jax import gradient_transformation

optimizer = optax.chain(optax.adam(1e-3), gradient_transformation(rules.clip_by_global_norm(1.0)))

def step(grads, state, params):
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state
""",
        "GM108",
    ),
    "a clip on each device, before the mean": (
        _JAX
        + """
optimizer = optax.sgd(0.1)

@jax.pmap
def step(params, state, batch):
    grads = jax.grad(loss)(params, batch)
    grads = gradclip.clip(grads, rules.clip_by_global_norm(1.0)).grads
    grads = jax.lax.pmean(grads, "devices")
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state
""",
        "GM122",
    ),
    "a limit of elements that is called a norm": (
        _TORCH
        + """
def fit(model, optimizer, batches, max_grad_norm=1.0):
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        gc.clip_(model.parameters(), rules.clip_grad_value(max_grad_norm))
        optimizer.step()
""",
        "GM104",
    ),
    "other parameters than those of the optimizer": (
        _TORCH
        + """
encoder, decoder = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(decoder.parameters())
for x in batches:
    optimizer.zero_grad()
    decoder(encoder(x)).mean().backward()
    gc.clip_grad_norm_(encoder.parameters(), max_norm=1.0)
    optimizer.step()
""",
        "GM118",
    ),
    "each parameter by itself": (
        _TORCH
        + """
def train(model, optimizer, loader):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        for parameter in model.parameters():
            gc.clip_(parameter, rules.clip_grad_norm(1.0))
        optimizer.step()
""",
        "GM126",
    ),
    "a rule that is off": (
        "import keras\nimport gradclip\nfrom gradclip.dialects.keras import global_clipnorm\n"
        "optimizer = gradclip.clipped(keras.optimizers.Adam(1e-3), global_clipnorm(0.0))\n",
        "GM125",
    ),
    "an iterator that the optimizer has used up": (
        _TORCH
        + """
def train(model, loader):
    parameters = (p for p in model.parameters() if p.requires_grad)
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        gc.clip_(parameters, rules.clip_grad_norm(1.0))
        optimizer.step()
""",
        "GM101",
    ),
    "names with their parameters, tied weights, and gradients in place": (
        _TORCH
        + """
def train(model, optimizer, loader):
    model.head.weight = model.embedding.weight
    parameters = [*model.head.parameters(), *model.embedding.parameters()]
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        norm = gc.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

def of_names(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    gc.clip_(model.named_parameters(), [gc.Group(rules.clip_grad_norm(1.0), "head.*")])
    optimizer.step()
""",
        "",
    ),
    "only one process clips": (
        _TORCH
        + """
def step(model, optimizer, batch, rank):
    optimizer.zero_grad()
    model(batch).mean().backward()
    if rank == 0:
        gc.clip_(model.parameters(), rules.clip_grad_norm(1.0))
    optimizer.step()
""",
        "GM127",
    ),
    "each micro-batch is clipped": (
        _TORCH
        + """
def train(model, optimizer, batches, every=4):
    rule = rules.clip_grad_norm(1.0)
    for i, batch in enumerate(batches):
        (model(batch).mean() / every).backward()
        norm = gc.norm(model.parameters(), rule)
        gc.scale_by_norm_(model.parameters(), rule, norm)
        if (i + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
""",
        "GM119",
    ),
    "a norm after the clip": (
        _TORCH
        + """
def step(model, optimizer, batch, log):
    optimizer.zero_grad()
    model(batch).mean().backward()
    rule = rules.clip_grad_norm(1.0)
    gc.clip_(model.parameters(), rule)
    log("grad_norm", gc.norm(model.parameters(), rule))
    optimizer.step()
""",
        "GM131",
    ),
    "the norm of the result, and a step that it guards": (
        _TORCH
        + """
def step(model, optimizer, batch, log):
    optimizer.zero_grad()
    model(batch).mean().backward()
    result = gc.clip_(model.parameters(), rules.clip_grad_norm(1.0))
    log("grad_norm", result.norm)
    if torch.isfinite(result.norm):
        optimizer.step()
""",
        "",
    ),
    "a step that is left out, and its NaN that stays": (
        _TORCH
        + """
def train(model, optimizer, batches):
    for batch in batches:
        model(batch).mean().backward()
        result = gc.clip_(model.parameters(), rules.clip_grad_norm(1.0))
        if torch.isfinite(result.norm):
            optimizer.step()
            optimizer.zero_grad()
""",
        "GM133",
    ),
    "a slot's object that no optimizer gets": (
        """
import paddle
import gradclip

def make(model):
    clip = gradclip.ClipGradByGlobalNorm(1.0)
    return paddle.optimizer.Adam(parameters=model.parameters())
""",
        "GM105",
    ),
    "slots": (
        """
import paddle
import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.dialects.torch import clip_grad_norm

def make(model, other):
    clip = gradclip.ClipGradByGlobalNorm(1.0)
    first = paddle.optimizer.Adam(parameters=model.parameters(), grad_clip=clip)
    return first, paddle.optimizer.Adam(parameters=other.parameters(), grad_clip=grad_clip(clip_grad_norm(1.0)))
""",
        "",
    ),
    "a hook of an optimizer": (
        _TORCH
        + """
from gradclip.backends.torch import step_pre_hook

def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.register_step_pre_hook(step_pre_hook(rules.clip_grad_norm(1.0)))
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
""",
        "",
    ),
    "gradients of NumPy in place, and an expected error": (
        """
import numpy as np
import pytest
import gradclip
from gradclip.dialects.torch import clip_grad_norm

def step(weights, grads):
    gradclip.clip_grad_norm_(grads, 1.0)
    for w, g in zip(weights, grads):
        w -= 0.1 * g

def test_a_negative_limit():
    with pytest.raises(ValueError):
        gradclip.clip([np.ones(2)], clip_grad_norm(-1.0))
""",
        "",
    ),
    "a partial function clips after the step": (
        _TORCH
        + """
from functools import partial

clip = partial(gc.clip_grad_norm_, max_norm=1.0)

def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    clip(model.parameters())
""",
        "GM108",
    ),
    "a name that is assigned, with a scaler": (
        _TORCH
        + """
clip = gc.clip_grad_norm_

def step(model, optimizer, batch, scaler):
    optimizer.zero_grad()
    scaler.scale(model(batch).mean()).backward()
    clip(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
        "GM107",
    ),
    "a rule of a function, and a rule that is changed": (
        _TORCH
        + """
import dataclasses

def make(limit):
    return dataclasses.replace(rules.clip_grad_norm(limit), skip_above=100.0)

def step(model, optimizer, batch, limit):
    optimizer.zero_grad()
    model(batch).mean().backward()
    with torch.no_grad():
        result = gc.clip_(model.parameters(), make(limit))
    optimizer.step()
    return result.norm.item()
""",
        "",
    ),
    "a setting of 0 for no clip": (
        _TORCH
        + """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--max-grad-norm", type=float, default=0.0)
args = parser.parse_args()

def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    gc.clip_(model.parameters(), rules.clip_grad_norm(args.max_grad_norm))
    optimizer.step()
""",
        "GM134",
    ),
    "a setting of 0 that is tested": (
        _TORCH
        + """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--max-grad-norm", type=float, default=0.0)
args = parser.parse_args()

def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    if args.max_grad_norm > 0:
        gc.clip_(model.parameters(), rules.clip_grad_norm(args.max_grad_norm))
    optimizer.step()
""",
        "",
    ),
    "FSDP with its shards": (
        _TORCH
        + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def train(module, loader, group):
    model = FSDP(module)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        gc.clip_grad_norm_(model.parameters(), 1.0, shards={"*": group})
        optimizer.step()
""",
        "",
    ),
    "FSDP without its shards": (
        _TORCH
        + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def train(module, loader):
    model = FSDP(module)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        gc.clip_(model.parameters(), rules.clip_grad_norm(1.0))
        optimizer.step()
""",
        "GM124",
    ),
    "each gradient alone, some of which are None": (
        _TF
        + """
def step(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [gradclip.clip_by_norm(g, 1.0) for g in grads]
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
""",
        "GM123",
    ),
    "all gradients, some of which are None": (
        _TF
        + """
def step(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    grads = tape.gradient(loss, model.trainable_variables)
    grads = gradclip.clip(grads, rules.clip_by_norm(1.0)).grads
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
""",
        "",
    ),
    "the pair of a drop-in is zipped": (
        _TF
        + """
def step(model, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    grads = gradclip.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
""",
        "GM105",
    ),
    "a compiled Keras model with a clipped optimizer, and a clip in its step": (
        _TF
        + """
class Model(tf.keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        grads = gradclip.clip(grads, rules.clip_by_global_norm(1.0)).grads
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}

model = Model()
model.compile(optimizer=gradclip.clipped(tf.keras.optimizers.Adam(1e-3), rules.clip_by_global_norm(5.0)))
""",
        "GM120",
    ),
    "new gradients of PyTorch that no parameter gets": (
        _TORCH
        + """
def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    grads = [p.grad for p in model.parameters()]
    gc.clip(grads, rules.clip_grad_norm(1.0))
    optimizer.step()
""",
        "GM105",
    ),
    "new gradients of PyTorch that the parameters get": (
        _TORCH
        + """
def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    result = gc.clip(model.parameters(), rules.clip_grad_norm(1.0))
    for p, g in zip(model.parameters(), result.grads):
        p.grad = g
    optimizer.step()
""",
        "",
    ),
    "the gradients of PyTorch are given to the drop-in": (
        _TORCH
        + """
def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    gc.clip_grad_norm_([p.grad for p in model.parameters()], 1.0)
    optimizer.step()
""",
        "GM113",
    ),
    "the gradients of PyTorch are clipped in place": (
        _TORCH
        + """
def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    gc.clip_([p.grad for p in model.parameters()], rules.clip_grad_norm(1.0))
    optimizer.step()
""",
        "",
    ),
    "Lightning, whose trainer clips too": (
        _TORCH
        + """
import lightning

class Module(lightning.LightningModule):
    def on_before_optimizer_step(self, optimizer):
        gc.clip_(self.parameters(), rules.clip_grad_norm(1.0))

trainer = lightning.Trainer(gradient_clip_val=0.5)
trainer.fit(Module())
""",
        "GM120",
    ),
    "the norm that the drop-in returns, called the clipped one": (
        _TORCH
        + """
def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).mean().backward()
    clipped_norm = gc.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return clipped_norm
""",
        "GM106",
    ),
    "a clip in some branch of an option only": (
        _TORCH
        + """
def step(model, optimizer, batch, amp):
    scaler = torch.amp.GradScaler()
    optimizer.zero_grad()
    loss = model(batch).mean()
    if amp:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        gc.clip_(model.parameters(), rules.clip_grad_norm(1.0))
        optimizer.step()
""",
        "GM136",
    ),
}
