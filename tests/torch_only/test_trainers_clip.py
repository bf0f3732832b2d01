"""Trainers with ``gradclip.clipped``: the parameters are those of their own clip to the bit, and steps are skipped.

`tox -e trainers` has the libraries.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

import gradclip
from gradclip.dialects import torch as dialect

LIMIT = 64.0
RULE = dialect.clip_grad_norm(LIMIT)
SKIPS = dataclasses.replace(RULE, skip_above=5000.0, if_nonfinite="skip")
# Each row is the gradient of a step. The norms are exact, and so large that torch's 1e-6 does not change
# them: torch rounds their sum to float32, and beside a smaller norm its coefficient may be an ulp off.
ROWS = [[192.0, 256.0, 0.0], [32.0, 0.0, 0.0], [0.0, 384.0, 512.0], [-512.0, 960.0, 0.0], [0.0, 16.0, 0.0]]
BAD = [[30000.0, 40000.0, 0.0], [math.nan, 0.0, 1.0], [0.0, math.inf, 0.0]]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.ones_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x).sum()


def adamw(parameters: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, **{"lr": 0.125, "weight_decay": 0.125, **options})


def loader(rows: list[list[float]]) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.tensor(rows), torch.zeros(len(rows), 1)), batch_size=1)


def lightning(rows: Any, put: Any, folder: Path) -> Any:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(batch[0])

        def configure_optimizers(self) -> Any:
            return put(adamw(self.parameters())) if put else adamw(self.parameters())

    module = Module()
    quiet: Any = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    own = {} if put else {"gradient_clip_val": LIMIT}
    lightning.Trainer(max_epochs=1, accelerator="cpu", **own, **quiet).fit(module, loader(rows))
    return module.model, module.optimizers().optimizer


def transformers(rows: Any, put: Any, folder: Path) -> Any:
    import transformers

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def forward(self, x: torch.Tensor) -> Any:
            return {"loss": self.model(x)}

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args: Any) -> Any:
            return SequentialSampler(self.train_dataset)

    options = transformers.TrainingArguments(
        str(folder),
        max_grad_norm=0.0 if put else LIMIT,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        use_cpu=True,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
    )
    loss = Loss()
    optimizer = put(adamw(loss.parameters())) if put else adamw(loss.parameters())
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    data: Any = [{"x": row} for row in torch.tensor(rows)]
    InOrder(loss, options, train_dataset=data, optimizers=(optimizer, constant)).train()
    return loss.model, optimizer


def accelerate(rows: Any, put: Any, folder: Path) -> Any:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model = Model()
    model, optimizer, batches = accelerator.prepare(model, adamw(model.parameters()), loader(rows))
    if put:
        put(optimizer)
    for x, _ in batches:
        accelerator.backward(model(x))
        if not put:
            accelerator.clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer.optimizer


def skorch(rows: Any, put: Any, folder: Path) -> Any:
    import skorch
    from skorch.callbacks import GradientNormClipping

    class Criterion(torch.nn.Module):
        def forward(self, given: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return given

    def made(*groups: Any, **options: Any) -> Any:
        return put(adamw(*groups, **options)) if put else adamw(*groups, **options)

    net = skorch.NeuralNet(
        Model,
        Criterion,
        optimizer=made,
        lr=0.125,
        max_epochs=1,
        batch_size=1,
        train_split=None,
        verbose=0,
        callbacks=[] if put else [GradientNormClipping(LIMIT)],
    )
    net.fit(torch.tensor(rows), torch.zeros(len(rows), 1))
    return net.module_, net.optimizer_


def fastai(rows: Any, put: Any, folder: Path) -> Any:
    from fastai.callback.training import GradientClip
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.optimizer import OptimWrapper

    def opt_func(parameters: Any, **options: Any) -> Any:
        return OptimWrapper(opt=put(adamw(list(parameters))) if put else adamw(list(parameters)))

    dls = DataLoaders(loader(rows), loader(rows[:1]))
    clip = [] if put else [GradientClip(LIMIT)]
    learner = Learner(dls, Model(), loss_func=lambda given, target: given, opt_func=opt_func, cbs=clip, path=folder)
    with learner.no_bar(), learner.no_logging():
        learner.fit(1, lr=0.125)
    return learner.model, learner.opt.opt


def mmengine(rows: Any, put: Any, folder: Path) -> Any:
    from mmengine.optim import OptimWrapper

    model = Model()
    optimizer = adamw(model.parameters())
    wrapper = OptimWrapper(put(optimizer)) if put else OptimWrapper(optimizer, clip_grad={"max_norm": LIMIT})
    for row in torch.tensor(rows):
        with wrapper.optim_context(model):
            wrapper.update_params(model(row))
    return model, optimizer


TRAINERS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (lightning, transformers, accelerate, skorch, fastai, mmengine)
}

pytestmark = [
    pytest.mark.slow("a changed trainer"),
    pytest.mark.filterwarnings("ignore"),  # warnings of the trainers themselves
    pytest.mark.parametrize("name", TRAINERS),
]


def trained(name: str, rows: list[list[float]], rule: Any, folder: Path) -> tuple[torch.Tensor, list[torch.Tensor], Any]:
    """The weights, the optimizer's state and the clip after these steps; without a rule the trainer clips."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is in the environment of `tox -e trainers`")
    put = None if rule is None else lambda optimizer: gradclip.clipped(optimizer, rule)
    model, optimizer = TRAINERS[name](rows, put, folder)
    (state,) = optimizer.state.values()
    return model.layer.weight.detach().clone(), [state[key] for key in sorted(state)], getattr(optimizer, "gradclip", None)


def test_the_parameters_are_those_of_the_trainers_own_clip(name: str, tmp_path: Path) -> None:
    got, state, hook = trained(name, ROWS, RULE, tmp_path)
    want, own_state, none = trained(name, ROWS, None, tmp_path)
    assert torch.equal(got, want)
    assert all(map(torch.equal, state, own_state))
    assert (none, hook.last.norm) == (None, 16.0)
    unclipped, _, _ = trained(name, ROWS, dialect.clip_grad_norm(1e9), tmp_path)
    assert not torch.equal(got, unclipped)


def test_a_skipped_step_is_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    got, state, hook = trained(name, [*ROWS[:2], *BAD, *ROWS[2:]], SKIPS, tmp_path)
    want, state_without, _ = trained(name, ROWS, SKIPS, tmp_path)
    assert torch.equal(got, want)
    assert all(map(torch.equal, state, state_without))
    assert (hook.skipped, hook.skipped_in_a_row) == (3, 0)
