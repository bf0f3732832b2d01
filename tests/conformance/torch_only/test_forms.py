"""Functions of third parties are called as they are: with leaves, a model, an optimizer, named parameters, or weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from gradclip.conformance import check_target, function_target
from gradclip.conformance.specification import Specification

NORM, ADAPTIVE, EACH = "torch.clip_grad_norm_", "optax.adaptive_grad_clip", "tensorflow.clip_by_norm"
SELECT = ["*/A1", "*/A2", "*/A3", "*/B1"]


def clip(params: Iterable[Any], max_norm: float) -> torch.Tensor:
    params = [p for p in params if p.requires_grad and p.grad is not None]
    if not max_norm >= 0:
        raise ValueError("max_norm")
    norm = torch.stack([p.grad.norm() for p in params]).norm() if params else torch.zeros(())
    for p in params:
        p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def of_leaves(parameters: Iterable[Any], max_norm: float) -> Any:
    parameters = list(parameters)
    assert all(isinstance(p, torch.nn.Parameter) and p.is_leaf and p.requires_grad for p in parameters)
    return clip(parameters, max_norm)


def of_model(model: Any, max_norm: float) -> None:
    clip(model.parameters(), max_norm)


def of_annotated(it: torch.nn.Module, max_norm: float) -> None:
    clip([p for _, p in it.named_parameters()], max_norm)


def of_what_its_name_does_not_say(thing: Any, max_norm: float) -> None:
    clip(thing.parameters(), max_norm)


def of_optimizer(optimizer: Any, limit: float) -> None:
    clip([p for group in optimizer.param_groups for p in group["params"]], limit)


def of_both(model: Any, optimizer: Any, max_norm: float) -> None:
    assert list(model.parameters()) == optimizer.param_groups[0]["params"]
    of_optimizer(optimizer, max_norm)


def of_named(named_parameters: Any, max_norm: float) -> None:
    clip([p for name, p in named_parameters if "bias" not in name], max_norm)


def of_dict(state: Any, max_norm: float) -> None:
    clip(state.values(), max_norm)


def after_the_limit(max_norm: float, params: Any) -> Any:
    return clip(params, max_norm)


def that_rebinds(params: Any, max_norm: float) -> None:
    norm = torch.stack([p.grad.norm() for p in params]).norm()
    if not max_norm >= 0:
        raise ValueError("max_norm")
    for p in params:
        p.grad = p.grad * (max_norm / (norm + 1e-6)).clamp(max=1.0)


def of_gradients(grads: Any, max_norm: float) -> Any:
    return clip([_held(g) for g in grads], max_norm), list(grads)


def _held(gradient: Any) -> Any:
    held = torch.nn.Parameter(torch.zeros_like(gradient))
    held.grad = gradient
    return held


def with_option(params: Any, max_norm: float, kind: str | None = None) -> Any:
    assert kind == "x"
    return clip(params, max_norm)


def undocumented(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)


RIGHT = [
    clip,
    of_leaves,
    of_model,
    of_annotated,
    of_what_its_name_does_not_say,
    of_optimizer,
    of_both,
    of_named,
    of_dict,
    after_the_limit,
    that_rebinds,
    of_gradients,
    functools.partial(with_option, kind="x"),
    undocumented(of_optimizer),
]


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: getattr(function, "__name__", "partial"))
def test_a_right_function_conforms(function: Callable[..., Any]) -> None:
    report = check_target(function_target(function, NORM, "torch"), dialects=[NORM], select=SELECT)
    assert [(result.case, result.message) for result in report.results if result.status == "fail"] == []
    assert report.counts()["pass"] == len(SELECT)


def test_a_function_that_scales_the_weights_is_not_handed_gradients_instead() -> None:
    def weights(params: Any, max_norm: float) -> None:
        for p in params:
            p.mul_(0.5)  # raises: a leaf that requires a gradient

    report = check_target(function_target(weights, NORM, "torch"), dialects=[NORM], select="*/A1")
    assert "a leaf Variable that requires grad" in report.results[0].message


def unit_norm(x: torch.Tensor) -> torch.Tensor:
    return x.norm() if x.ndim <= 1 else x.norm(dim=tuple(range(1, x.ndim)), keepdim=True)


def agc(parameters: Any, clip_factor: float = 0.01, eps: float = 1e-3, norm_type: float = 2.0) -> None:
    """As timm writes it."""
    if not clip_factor >= 0:
        raise ValueError("clip_factor")
    for p in parameters:
        largest = unit_norm(p.detach()).clamp_(min=eps).mul_(clip_factor)
        norm = unit_norm(p.grad)
        p.grad.copy_(torch.where(norm < largest, p.grad, p.grad * (largest / norm.clamp(min=1e-6))))


def test_a_clip_in_place_of_weights_gets_their_values() -> None:
    target = function_target(agc, ADAPTIVE, "torch")
    assert target.claims[ADAPTIVE] == {"float32", "several", "in place", "eps"}
    report = check_target(target, dialects=[ADAPTIVE], select=["*/A1", "*/A3"])  # torch's units are rows: A2 has columns
    assert (report.counts()["fail"], report.counts()["pass"]) == (0, 2)


def test_a_function_of_one_tensor_gets_each() -> None:
    def one(t: torch.Tensor, clip_norm: float) -> torch.Tensor:
        return t * (clip_norm / t.norm()).clamp(max=1.0)

    report = check_target(function_target(one, EACH, "torch"), dialects=[EACH], select=["*/A1", "*/A2"])
    assert (report.counts()["fail"], report.counts()["pass"]) == (0, 2)


SOURCE = """
class Trainer:
    def clip(self, parameters, max_norm):
        norm = sum(p.grad.norm() ** 2 for p in parameters) ** 0.5
        for p in parameters:
            p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))

class Other:
    def __init__(self, model): ...
    def clip(self, parameters, max_norm): ...
"""


def test_a_method_of_a_class_whose_file_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "trainer_without_imports.py").write_text(SOURCE)
    target = Specification.parse(f"{tmp_path}/trainer_without_imports.py:Trainer.clip").load(NORM)
    report = check_target(target, dialects=[NORM], select=SELECT)
    assert (report.counts()["fail"], report.counts()["pass"]) == (0, len(SELECT))
    with pytest.raises(ValueError, match="Other cannot be made without arguments") as raised:
        Specification.parse(f"{tmp_path}/trainer_without_imports.py:Other.clip").load(NORM)
    assert str(raised.value).endswith(
        "Hint: name a method of an object: trainer = Other(...), and trainer.method as the target."
    )
