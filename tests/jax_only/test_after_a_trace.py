"""A step that was jitted before its optimizer clipped: it is traced again, and the old state is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradclip
from gradclip import dialects

RULE = dialects.torch.clip_grad_norm(max_norm=0.5)
GRADIENT = np.float32([30.0, 40.0])


class Trainer:
    """It has the optimizer that its jitted step reads."""

    def __init__(self) -> None:
        self.optimizer: Any = optax.sgd(1.0)
        self.state = self.optimizer.init(jnp.zeros(2))
        self.traced = 0

        def step(state: Any) -> Any:
            self.traced += 1
            return self.optimizer.update(GRADIENT, state)

        self.step = jax.jit(step)

    def length(self) -> float:
        updates, self.state = self.step(self.state)
        return float(jnp.linalg.norm(updates))


def test_the_optimizer_that_a_jitted_step_reads() -> None:
    trainer = Trainer()
    assert trainer.length() == 50
    trainer.optimizer = gradclip.clipped(trainer.optimizer, RULE)
    with pytest.raises(TypeError, match="not a state of this clip") as caught:
        trainer.length()
    assert "Hint: optimizer.init(params) makes one" in str(caught.value)
    trainer.state = trainer.optimizer.init(jnp.zeros(2))
    assert trainer.length() == pytest.approx(0.5, rel=1e-4)


def test_a_name_that_a_jitted_step_reads() -> None:
    optimizer: Any = optax.sgd(1.0)
    step = jax.jit(lambda state: optimizer.update(GRADIENT, state))
    state = optimizer.init(jnp.zeros(2))
    step(state)
    optimizer = gradclip.clipped(optimizer, RULE)
    with pytest.raises(TypeError, match="not a state of this clip"):
        step(state)
    updates, _ = step(optimizer.init(jnp.zeros(2)))
    assert jnp.linalg.norm(updates) == pytest.approx(0.5, rel=1e-4)


def test_an_optimizer_that_nothing_has_read_leaves_other_programs() -> None:
    trainer = Trainer()
    trainer.length()
    gradclip.clipped(optax.sgd(1.0), RULE)
    trainer.length()
    assert trainer.traced == 1
