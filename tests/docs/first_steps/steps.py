"""A newcomer's first steps by framework: the setup lines, and the steps, most of them mistakes.

``renew.py`` writes the output of each step to a text file beside this one, for review; ``test_first_steps.py`` compares.
"""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """The first steps in one framework."""

    setup: str  #: defines ``grads``, a dictionary of two gradients, ``whole``, a tensor of integers, and ``rule``
    steps: list[tuple[str, str]]


_IMPORTS = "import gradclip\nfrom gradclip import dialects\n"
_RULE = "rule = dialects.torch.clip_grad_norm(max_norm=1.0)\n"

#: for every framework
EVERYWHERE = [
    ("The first clip.", 'result = gradclip.clip(grads, rule)\nresult'),
    ("The rule.", "rule"),
    ("A number instead of a rule.", "gradclip.clip(grads, 1.0)"),
    ("A dialect's function that was not called.", "gradclip.clip(grads, dialects.torch.clip_grad_norm)"),
    ("A dialect instead of a rule.", "gradclip.clip(grads, dialects.torch)"),
    ("A rule by its name.", 'gradclip.clip(grads, "torch.clip_grad_norm")'),
    ("No rule.", "gradclip.clip(grads, None)"),
    ("An object of Paddle's kind instead of a rule.", "gradclip.clip(grads, gradclip.ClipGradByNorm(1.0))"),
    ("Rule and gradients swapped.", "gradclip.clip(rule, grads)"),
    ("The same, with an operation of torch's name.", "gradclip.clip_grad_norm_(1.0, list(grads.values()))"),
    ("The limit of torch's function left out, and a rule in its place.", "gradclip.clip_grad_norm_(grads, rule)"),
    ("Two rules.", "gradclip.clip(grads, [rule, rule])"),
    ("A result instead of gradients.", "gradclip.clip(gradclip.clip(grads, rule), rule)"),
    ("A number instead of gradients.", "gradclip.clip(0.5, rule)"),
    ("Numbers instead of gradients.", 'gradclip.clip({"w": 0.5}, rule)'),
    ("A name instead of gradients.", 'gradclip.clip("w", rule)'),
    ("Names and gradients.", "gradclip.clip(list(grads.items()), rule)"),
    ("No gradient.", "gradclip.clip(None, rule)"),
    ("A gradient that is not there.", 'gradclip.clip({**grads, "head": None}, rule)'),
    ("A generator that is used up.", "each = iter(grads.values())\ngradclip.norm(each, rule)\ngradclip.clip(each, rule)"),
    ("Integers.", 'gradclip.clip({**grads, "step": whole}, rule)'),
    ("An axis that one gradient lacks.", "gradclip.clip(grads, dialects.tensorflow.clip_by_norm(1.0, axes=[1]))"),
    ("An axis that the only gradient lacks.", 'gradclip.clip_by_norm(grads["b"], 1.0, axes=[1])'),
    ("An axis twice.", "gradclip.clip(grads, dialects.tensorflow.clip_by_norm(1.0, axes=[0, -1]))"),
    ("A negative limit.", "dialects.torch.clip_grad_norm(max_norm=-1.0)"),
    ("A limit of None, as in a configuration.", "dialects.torch.clip_grad_norm(max_norm=None)"),
    ("Several tensors where one is expected.", "gradclip.clip_by_norm(list(grads.values()), 1.0)"),
    ("Gradients where pairs are expected.", "gradclip.ClipGradByNorm(1.0)(list(grads.values()))"),
    (
        "Another container than TensorFlow's own function takes.",
        "clipped, norm = gradclip.clip_by_global_norm(grads, 1.0)\nsorted(clipped), float(norm)",
    ),
    ("A pattern that matches nothing.", 'gradclip.clip(grads, gradclip.Group(rule, "encoder.*"))'),
    ("A limit relative to parameters, without them.", "gradclip.clip(grads, dialects.optax.adaptive_grad_clip(0.1))"),
    ("An operation without its underscore.", 'gradclip.clip_grad_norm(grads, 1.0)'),
    ("An operation misspelt.", 'gradclip.clip_grad_nrom_(grads, 1.0)'),
    ("A rule with an underscore.", "dialects.torch.clip_grad_norm_(max_norm=1.0)"),
    ("A rule by its native's name.", "dialects.paddle.ClipGradByGlobalNorm(1.0)"),
    ("A rule misspelt.", "dialects.torch.clip_gradient_norm(1.0)"),
    ("Another dialect's rule.", "dialects.torch.clip_by_global_norm(1.0)"),
    ("A dialect misspelt.", "dialects.pytorch.clip_grad_norm(1.0)"),
    ("A dialect of a framework that has none.", "dialects.jax.clip_by_global_norm(1.0)"),
]  # fmt: skip

_TORCH = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.Adam(model.parameters())
loss = model(torch.ones(1, 2)).square().sum() + 1
grads = {"w": torch.tensor([[3.0, 4.0]]), "b": torch.tensor([12.0])}
whole = torch.tensor([1, 2])
"""
_PADDLE = """
import paddle
with paddle.utils.unique_name.guard():
    layer = paddle.nn.Linear(2, 1)
optimizer = paddle.optimizer.Adam(parameters=layer.parameters())
loss = (layer(paddle.ones([1, 2])) ** 2).sum() + 1
grads = {"w": paddle.to_tensor([[3.0, 4.0]]), "b": paddle.to_tensor([12.0])}
whole = paddle.to_tensor([1, 2])
"""
_TENSORFLOW = """
import tensorflow as tf
variable = tf.Variable([[3.0, 4.0]], name="kernel")
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(variable * variable)
grads = {"w": tf.constant([[3.0, 4.0]]), "b": tf.constant([12.0])}
whole = tf.constant([1, 2])
"""
_JAX = """
import jax, jax.numpy as jnp, optax
def loss(params):
    return jnp.sum(params["w"] ** 2)
params = {"w": jnp.array([[3.0, 4.0]])}
grads = {"w": jnp.array([[3.0, 4.0]]), "b": jnp.array([12.0])}
whole = jnp.array([1, 2], "int32")
"""
_KERAS = """
import keras, numpy as np
model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
optimizer = keras.optimizers.Adam()
"""
_NUMPY = """
import numpy as np
grads = {"w": np.array([[3.0, 4.0]]), "b": np.array([12.0])}
whole = np.array([1, 2])
"""

_IN_PLACE = "In place, where nothing can be written."
_JAX_GRADS = "jax.grad(lambda x: (x['index'] * x['w']).sum(), allow_int=True)"

PROGRAMS = {
    "numpy": Program(_IMPORTS + _NUMPY + _RULE, [
        *EVERYWHERE,
        (_IN_PLACE, 'grads["w"].flags.writeable = False\ngradclip.clip_(grads, rule)'),
    ]),
    "torch": Program(_IMPORTS + _TORCH + _RULE, [
        *EVERYWHERE,
        ("A model instead of its parameters.", "gradclip.clip_(model, rule)"),
        ("parameters that were not called.", "gradclip.clip_(model.parameters, rule)"),
        ("The same, in torch's function.", "gradclip.clip_grad_norm_(model.parameters, 1.0)"),
        ("named_parameters that were not called.", "gradclip.clip_(model.named_parameters, rule)"),
        ("A list of pairs of name and parameter.", "gradclip.clip_(list(model.named_parameters()), rule)"),
        ("The names alone.", "gradclip.clip_(dict(model.named_parameters()).keys(), rule)"),
        ("A state_dict.", "gradclip.clip_(model.state_dict(), rule)"),
        ("An optimizer instead of parameters.", "gradclip.clip_(optimizer, rule)"),
        ("The same, in torch's function.", "gradclip.clip_grad_norm_(optimizer, 1.0)"),
        ("param_groups.", "gradclip.clip_(optimizer.param_groups, rule)"),
        ("One of the param_groups.", "gradclip.clip_(optimizer.param_groups[0], rule)"),
        ("The state of an optimizer.", "loss.backward()\noptimizer.step()\ngradclip.clip_(optimizer.state, rule)"),
        ("The state_dict of an optimizer.", "loss.backward()\noptimizer.step()\ngradclip.clip_(optimizer.state_dict(), rule)"),
        ("A loss.", "gradclip.clip_(loss, rule)"),
        ("Before backward().", "gradclip.clip_(model.parameters(), rule)"),
        ("A gradient before backward().", "gradclip.clip_(model.weight.grad, rule)"),
        ("Gradients where parameters are expected.", "float(gradclip.clip_grad_norm_(list(grads.values()), 1.0))"),
        ("Parameters where gradients are expected.", "gradclip.clip_by_global_norm(list(model.parameters()), 1.0)"),
        ("torch's own function instead of a rule.", "gradclip.clip_(grads, torch.nn.utils.clip_grad_norm_)"),
        ("backward that was not called.", "gradclip.clip_(loss.backward, rule)"),
        ("The result of backward().", "gradclip.clip_(loss.backward(), rule)"),
        ("A number instead of a rule, in the hook.", "from gradclip.backends.torch import step_pre_hook\nstep_pre_hook(1.0)"),
        ("A class instead of a model.", "gradclip.clip_(torch.nn.Linear, rule)"),
    ]),
    "tensorflow": Program(_IMPORTS + _TENSORFLOW + _RULE, [
        *EVERYWHERE,
        ("A variable.", "gradclip.clip_([variable], rule)"),
        ("gradient that was not called.", "gradclip.clip(tape.gradient, rule)"),
        ("A tape.", "gradclip.clip(tape, rule)"),
        ("A gradient of a variable outside of the loss.", "gradclip.clip(tape.gradient(loss, [tf.Variable(1.0)]), rule)"),
        ("Pairs, as apply_gradients takes them.", "gradclip.clip([(grads['w'], variable)], rule).coefficient"),
        ("TensorFlow's own function instead of a rule.", "gradclip.clip(grads, tf.clip_by_global_norm)"),
        (_IN_PLACE, "gradclip.clip_(grads, rule)"),
    ]),
    "paddle": Program(_IMPORTS + _PADDLE + _RULE, [
        *EVERYWHERE,
        ("A layer instead of its parameters.", "gradclip.clip_(layer, rule)"),
        ("parameters that were not called.", "gradclip.clip_(layer.parameters, rule)"),
        ("A state_dict.", "gradclip.clip_(layer.state_dict(), rule)"),
        ("An optimizer instead of parameters.", "gradclip.clip_(optimizer, rule)"),
        ("The state of an optimizer.", "loss.backward()\noptimizer.step()\ngradclip.clip_(optimizer.state_dict(), rule)"),
        ("A loss.", "gradclip.clip_(loss, rule)"),
        ("Before backward().", "gradclip.clip_(layer.parameters(), rule)"),
        ("Gradients where parameters are expected.", "float(gradclip.clip_grad_norm_(list(grads.values()), 1.0))"),
        ("Parameters where pairs are expected.", "gradclip.ClipGradByNorm(1.0)(layer.parameters())"),
        ("Paddle's own object instead of a rule.", "gradclip.clip_(grads, paddle.nn.ClipGradByNorm(1.0))"),
        ("A number instead of a rule, in the slot.", "from gradclip.backends.paddle import grad_clip\ngrad_clip(1.0)"),
    ]),
    "jax": Program(_IMPORTS + _JAX + _RULE, [
        *EVERYWHERE,
        ("A loss function instead of its gradients.", "gradclip.clip(loss, rule)"),
        ("jax.grad that was not called.", "gradclip.clip(jax.grad(loss), rule)"),
        ("An optimizer.", "gradclip.clip(optax.adam(1e-3), rule)"),
        ("The state of an optimizer.", "gradclip.clip(optax.adam(1e-3).init(params), rule)"),
        ("optax's own clip instead of a rule.", "gradclip.clip(grads, optax.clip_by_global_norm(1.0))"),
        ("The same, not called.", "gradclip.clip(grads, optax.clip_by_global_norm)"),
        ("A number in optax's slot.",
         "from gradclip.backends.jax import gradient_transformation\ngradient_transformation(1.0)"),
        ("Gradients of integers, which are none.",
         f"given = {_JAX_GRADS}({{'index': whole, 'w': jnp.array([3.0, 4.0])}})\ngradclip.clip(given, rule)"),
        (_IN_PLACE, "gradclip.clip_(grads, rule)"),
        ("Parameters instead of gradients.", "gradclip.clip_grad_norm_(params, 1.0)"),
    ]),
    "keras": Program(_IMPORTS + _KERAS + _RULE, [
        ("A model.", "gradclip.clip_(model, rule)"),
        ("Its weights.", "gradclip.clip_(model.trainable_variables, rule)"),
        ("An optimizer.", "gradclip.clip_(optimizer, rule)"),
        ("A method that was not called.", "gradclip.clip_(model.get_weights, rule)"),
        ("A number instead of a rule.", "from gradclip.backends.keras import clipped\nclipped(optimizer, 1.0)"),
        ("Rule and optimizer swapped.", "from gradclip.backends.keras import clipped\nclipped(rule, optimizer)"),
        ("An optimizer that clips already.",
         "from gradclip.backends.keras import clipped\nclipped(keras.optimizers.Adam(clipnorm=1.0), rule)"),
        ("A rule by Keras's own name.", "dialects.keras.clip_norm(1.0)"),
    ]),
}  # fmt: skip
