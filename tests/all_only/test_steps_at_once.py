"""A run moves from PyTorch to JAX in its middle, by the numbers of its step's state: the same limits after."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

import gradclip
from gradclip import limits
from gradclip.dialects import torch as dialect

NORMS = [float(n) * (40 if i % 17 == 16 else 1) for i, n in enumerate(np.exp(np.random.default_rng(0).normal(size=60) * 0.3))]


def step() -> gradclip.Step:
    rule = dialect.clip_grad_norm(gradclip.Adaptive(limits.zclip(warmup=5)))
    skips = dataclasses.replace(rule, skip_above=gradclip.Adaptive(limits.deviations(window=16, warmup=8)))
    return gradclip.Step(skips, gradclip.Monitor())


def test_from_torch_to_jax() -> None:
    torchs, jaxs = step(), step()
    stays = torchs.init([torch.zeros(2)])
    moved: Any = None
    skips = 0
    for i, n in enumerate(NORMS):
        if i == 30:
            saved = json.loads(json.dumps(torchs.state_dict(stays)))
            moved = jaxs.load_state_dict(saved, [jnp.zeros(2)])
        want, stays = torchs.update([torch.tensor([0.6 * n, 0.8 * n])], stays)
        if moved is not None:
            got, moved = jaxs.update([jnp.array([0.6 * n, 0.8 * n])], moved)
            np.testing.assert_allclose(np.asarray(got.grads[0]), want.grads[0].numpy(), rtol=1e-5)
            assert bool(got.skip) is bool(want.skip)
            skips += bool(got.skip)
    assert skips > 0
    left, right = torchs.state_dict(stays), jaxs.state_dict(moved)
    for one, other in zip(left["limits"], right["limits"], strict=True):
        for name, x in one.items():
            np.testing.assert_allclose(other[name], x, rtol=1e-5)
    assert left["skips"] == right["skips"]
