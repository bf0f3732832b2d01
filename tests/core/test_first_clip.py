"""The first clip of a process imports only the backend from gradclip: a fork during an import would leave it incomplete."""

from __future__ import annotations

import copies
from frameworks.base import Framework

CODE = """
import importlib, sys
import numpy as np
import gradclip
from gradclip.core import registry
from gradclip.dialects import optax, paddle, tensorflow, torch

registry.get({name!r})
trainer = importlib.import_module("gradclip.backends.demo.{name}").trainer
grads = [trainer.tensor(np.full(size, 3, np.float32)) for size in (3, 1 << 20)]
before = set(sys.modules)
for rule in (torch.clip_grad_norm(1.0), torch.clip_grad_norm(1.0, norm_type=3.0), tensorflow.clip_by_norm(1.0),
             tensorflow.clip_by_value(-1.0, 1.0), paddle.clip_grad_by_global_norm(1.0), optax.clip_by_global_norm(1.0)):
    gradclip.clip(grads, rule)
print(sorted(module for module in set(sys.modules) - before if module.startswith("gradclip")))
"""


def test_the_first_clip_imports_no_more_of_gradclip(backend: Framework) -> None:
    ended = copies.run(backend.name, "-c", CODE.format(name=backend.name))
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr
