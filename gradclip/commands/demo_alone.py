"""The second part of ``gradclip demo`` where NumPy is alone: one limit in three meanings, and what ``gradclip lint`` finds.

Needs rich.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

import gradclip
from gradclip import dialects
from gradclip.core.errors import counted

if TYPE_CHECKING:
    from gradclip.source.model import Site

__all__ = ["PROGRAM", "findings", "show"]

_LIMIT = 1.0
_RULES = (dialects.torch.clip_grad_norm(_LIMIT), dialects.keras.clipnorm(_LIMIT), dialects.optax.clip(_LIMIT))
_GRADIENTS = ([3.0, 4.0], [0.6, 0.8])  # with the norms 5 and 1
#: a training loop with three mistakes
PROGRAM = """\
import torch
from torch.nn.utils import clip_grad_norm_

scaler = torch.amp.GradScaler()
weights = model.parameters()
for batch in batches:
    optimizer.zero_grad()
    scaler.scale(model(batch).mean()).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
for batch in batches:
    optimizer.zero_grad()
    model(batch).mean().backward()
    clip_grad_norm_(weights, 1.0)
    optimizer.step()
for batch in batches:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    clip_grad_norm_(model.parameters(), 1.0)
"""


def show(console: Console) -> None:
    """Print the three meanings of one limit, and the mistakes in a program."""
    arrays = [np.array(x) for x in _GRADIENTS]
    console.print(Text("The same limit, three meanings", "bold"))
    _line(console, f"Two gradients, {_numbers(arrays)}, clipped at {_LIMIT}:")
    for rule in _RULES:
        console.print()
        _line(console, f"{rule}({_LIMIT})")
        _line(console, _numbers(gradclip.clip(arrays, rule).grads), 4)
    console.print()
    found = findings()
    console.print(Text(f"{counted(len(found), 'finding')} of gradclip lint", "bold"))
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        _line(console, f"{number:2}  {line}".rstrip())
    for one in found:
        console.print()
        _line(console, f"line {one.line}: {one.code} {one.reason}")


def findings() -> list[Site]:
    """The mistakes in ``PROGRAM``; without LibCST those of single calls are missing."""
    from gradclip import lint
    from gradclip.source.model import Verdict

    return [site for site in lint.of_source(PROGRAM) if site.outcome is Verdict.MANUAL]


def _numbers(arrays: list[Any]) -> str:
    return ", ".join("[" + ", ".join(f"{x:.3g}" for x in array) + "]" for array in arrays)


def _line(console: Console, text: str, indent: int = 0) -> None:
    console.print(Text(" " * indent + text))
