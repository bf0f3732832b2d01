"""What ``gradclip demo`` shows where NumPy is alone: one limit in three meanings, and three findings of ``gradclip lint``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import util

import numpy as np

import gradclip
from gradclip import dialects

__all__ = ["LIMIT", "Finding", "Meaning", "findings", "gradients", "meanings"]

LIMIT = 1.0
#: a training loop with three mistakes
PROGRAM = """\
import torch
from torch.nn.utils import clip_grad_norm_

scaler = torch.amp.GradScaler()
weights = model.parameters()
for batch in batches:
    loss = scaler.scale(model(batch).mean())
    clip_grad_norm_(model.parameters(), 0.5)
    loss.backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.unscale_(optimizer)
    clip_grad_norm_(weights, 2.0)
    scaler.step(optimizer)
    scaler.update()
"""


@dataclass(frozen=True, slots=True)
class Meaning:
    """A rule with the limit, and the gradients that it clipped."""

    rule: str
    clipped: list[list[float]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake in the program."""

    line: int
    code: str
    text: str  #: the line
    reason: str


def gradients() -> list[list[float]]:
    """Two gradients with the norms 5 and 1."""
    return [[3.0, 4.0], [0.6, 0.8]]


def meanings() -> list[Meaning]:
    """The same limit by three frameworks' rules."""
    rules = (dialects.torch.clip_grad_norm(LIMIT), dialects.keras.clipnorm(LIMIT), dialects.optax.clip(LIMIT))
    found = []
    for rule in rules:
        clipped = gradclip.clip([np.array(g) for g in gradients()], rule).grads
        found.append(Meaning(f"{rule}({LIMIT})", [[float(x) for x in g] for g in clipped]))
    return found


def findings() -> list[Finding] | None:
    """The mistakes in ``PROGRAM``; None where a package that reads sources is not installed."""
    if util.find_spec("libcst") is None:
        return None
    from gradclip.code.model import Options, Outcome
    from gradclip.migrate import codemod

    sites = codemod.migrate_source(PROGRAM, Options(lint=True)).sites
    lines = PROGRAM.splitlines()
    wrong = (site for site in sites if site.outcome is Outcome.MANUAL)
    return [Finding(site.line, site.code, lines[site.line - 1].strip(), site.reason) for site in wrong]
