"""The first screen of the README: what it shows of PyTorch's examples, and a program with the same mistake in the same line."""

from __future__ import annotations

import re
from pathlib import Path

from pages import ROOT

_LINT = re.compile(r"^\$ gradclip lint examples\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LAST = re.compile(r"^1 mistake in \d+ clips? of \d+ files?\.$", re.MULTILINE)
_PLACE = re.compile(r"^(examples/\S+\.py):(\d+):\d+: ")
_PROGRAM = """\
import types

import torch


class Trainer:
    def __init__(self, config, model, optimizer):
        self.config, self.model, self.optimizer = config, model, optimizer
        self.scaler = torch.amp.GradScaler("cpu")

    def run_batch(self, source, train=True):
        loss = self.model(source).square().mean()
        if train:
            self.optimizer.zero_grad()
            if self.scaler.is_enabled():
                self.scaler.scale(loss).backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
                self.scaler.step(self.optimizer)
                self.scaler.update()


model = torch.nn.Linear(2, 1)
trainer = Trainer(types.SimpleNamespace(grad_norm_clip=1.0), model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(3):
    trainer.run_batch(torch.ones(4, 2))
"""


def shown() -> str:
    """Return what the page shows of the linter, without how much the linter read."""
    (said,) = _LINT.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    return of_one_clip(said)


def of_one_clip(said: str) -> str:
    """Return what the linter says without how many clips and files it read."""
    assert len(_LAST.findall(said)) == 1, said
    return _LAST.sub("1 mistake", said)


def write(folder: Path) -> Path:
    """Write the program where the page's finding is: its file, with the clip in its line; return the file."""
    place = _PLACE.match(shown())
    assert place is not None
    file, line = folder / place[1], int(place[2])
    before = _PROGRAM.partition("torch.nn.utils.")[0].count("\n")
    file.parent.mkdir(parents=True)
    file.write_text("\n" * (line - 1 - before) + _PROGRAM, encoding="utf-8")
    return file
