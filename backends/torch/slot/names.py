"""The names of an optimizer's parameters: its own, or those in the module that holds them, which an optimizer does not know."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch

__all__ = ["in_modules", "modules", "of_optimizer"]


def of_optimizer(optimizer: torch.optim.Optimizer, count: int) -> list[str]:
    """The names that an optimizer made from ``model.named_parameters()`` has; [] if it has none, or not all."""
    names = [name for group in optimizer.param_groups for name in group.get("param_names", ())]
    return names if len(set(names)) == count else []


def in_modules(parameters: Sequence[torch.Tensor]) -> list[str]:
    """The names in the smallest module that holds all of these; else each by its own module and its shape; else []."""
    wanted = set(map(id, parameters))
    if len(wanted) < len(parameters):
        return []  # one name would stand for two places
    owners: dict[int, str] = {}
    holders = []
    for module in modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in wanted:
                owners.setdefault(id(parameter), f"{type(module).__name__}.{name} {tuple(parameter.shape)}")
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        if wanted <= names.keys():
            holders.append([names[id(parameter)] for parameter in parameters])
    if holders:  # a wrapper, as of DDP, has a longer name for each
        return min(holders, key=lambda names: sum(map(len, names)))
    found = [owners.get(id(parameter), "") for parameter in parameters]
    if not any(found):
        return []
    shown = [name or f"param {tuple(parameter.shape)}" for name, parameter in zip(found, parameters, strict=True)]
    return [f"{i}: {name}" if shown.count(name) > 1 else name for i, name in enumerate(shown)]


def modules() -> list[torch.nn.Module]:
    """The modules that are alive: no parameter tells in which module it is."""
    objects = gc.get_objects()
    # a test of each object would load lazy modules
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, torch.nn.Module)}
    return [x for x in objects if type(x) in kinds and "training" in vars(x)]  # not one whose class has yet to call Module
