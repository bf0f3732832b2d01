"""PyTorch's private names, each with a fallback for versions without it."""

from __future__ import annotations

import importlib
import inspect
import operator
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradclip.floors import check_version
from gradclip.tracing import constant

__all__ = [
    "DISTRIBUTED_TENSORS",
    "all_gather",
    "count_write",
    "distributed_tensors",
    "has_modes",
    "is_compiling",
    "is_exporting",
    "is_fake",
    "is_forward_differentiating",
    "is_transformed",
    "is_wrapped",
    "run_between_graphs",
    "traces",
]

check_version("torch", torch.__version__)
_RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))

try:
    from torch._subclasses.fake_tensor import FakeTensor
except ImportError:  # there is no public name; without it fake tensors use the reference

    class FakeTensor:  # type: ignore[no-redef]
        """A type without instances."""


_C = getattr(torch, "_C", None)
_functorch = getattr(_C, "_functorch", None)
_level = getattr(_functorch, "maybe_current_level", lambda: 0)  # unknown: there may be one, so the reference
_modes = getattr(_C, "_len_torch_dispatch_stack", lambda: 1)  # unknown: there may be one, so torch's own operations
#: whether ``torch.compile`` can trace gradclip
traces = _RELEASE >= (2, 5)
_exports = getattr(torch.compiler, "is_exporting", lambda: False)  # torch has the name from 2.7 on


@constant
def _is_exporting() -> bool:
    return bool(_exports())


#: whether ``torch.export`` traces this, which keeps no library's operators. TorchDynamo in torch 2.10 makes a traced call True:
#: https://github.com/pytorch/pytorch/issues/176347. So this is not traced, except in 2.7, whose strict export is seen only so
is_exporting = _exports if _RELEASE < (2, 8) else _is_exporting


def _has_no_storage(x: torch.Tensor) -> bool:
    try:
        x.untyped_storage()
    except NotImplementedError:
        return bool(x.layout == torch.strided)  # sparse tensors have none either
    return False


#: whether a tensor is an input of ``torch.func.grad``, ``vmap`` or the like; else told by its lack of memory, more slowly
is_wrapped = getattr(_functorch, "is_functorch_wrapped_tensor", _has_no_storage)


def is_transformed() -> bool:
    """Whether this is inside ``torch.func.vmap``, ``grad`` or the like, or inside forward-mode differentiation."""
    return _level() is not None or is_forward_differentiating()


if _RELEASE < (2, 13):

    def _is_functionalized() -> bool:
        key = torch._C._TorchDispatchModeKey.FUNCTIONAL
        return torch._C._get_dispatch_mode(key) is not None

    def is_compiling() -> bool:
        """Whether TorchDynamo or AOTAutograd traces this; torch itself reports AOTAutograd only after 2.10."""
        return torch.compiler.is_compiling() or _is_functionalized()
else:
    is_compiling = torch.compiler.is_compiling


def is_forward_differentiating() -> bool:
    """Whether forward-mode differentiation is on: inside ``torch.autograd.forward_ad.dual_level()``."""
    level = getattr(torch.autograd.forward_ad, "_current_level", None)
    return _is_on_a_level() if level is None else level >= 0


def _is_on_a_level() -> bool:
    """Whether torch refuses to open a level, as it does inside another: a slower way to know."""
    try:
        with torch.autograd.forward_ad.dual_level():
            return False
    except RuntimeError:
        return True


def is_fake(x: Any) -> bool:
    """Whether a tensor has a shape and a device but no values."""
    return isinstance(x, FakeTensor)


def has_modes() -> bool:
    """Whether a dispatch mode sees each operation, or ``torch.jit.trace`` records them."""
    return bool(_modes()) or torch.jit.is_tracing()


def _counts_lists() -> bool:
    try:
        torch.autograd.graph.increment_version([])
    except (TypeError, RuntimeError):  # 2.4; tested once and early: after a write it would be too late
        return False
    return True


_COUNTS_LISTS = _counts_lists()


def count_write(tensors: Sequence[torch.Tensor]) -> None:
    """Tell autograd that memory was written; in torch 2.4 one tensor at a time."""
    for x in [tensors] if _COUNTS_LISTS else tensors:
        torch.autograd.graph.increment_version(x)


def run_between_graphs() -> None:
    """Make ``torch.compile`` skip all loaded modules of gradclip if it cannot trace them: torch 2.4 cannot read slots.

    Then a compiled function is two graphs, and gradclip runs between them; with ``fullgraph=True`` torch raises an error.
    """
    if traces:
        return
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "gradclip"]
    held = [x for module in modules for x in vars(module).values()]
    methods = [x for kind in held if isinstance(kind, type) for x in vars(kind).values()]
    for x in (*held, *methods):
        function = inspect.unwrap(getattr(x, "fget", None) or getattr(x, "__func__", x))
        if inspect.isfunction(function) and function.__module__.partition(".")[0] == "gradclip":
            function._torchdynamo_disable = True  # type: ignore[attr-defined]
            _skip(function.__code__)


def _skip(code: types.CodeType) -> None:
    if (dynamo := getattr(_C, "_dynamo", None)) is None:
        return  # the mark on the function is enough, except for inlined functions
    dynamo.eval_frame.skip_code(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _skip(inner)


#: the module of distributed tensors: a program that has such tensors has imported it, and the import takes a second
DISTRIBUTED_TENSORS = "torch.distributed.tensor" if _RELEASE >= (2, 5) else "torch.distributed._tensor"


def distributed_tensors() -> Any:
    """The module of distributed tensors and their placements."""
    return importlib.import_module(DISTRIBUTED_TENSORS)


def all_gather(whole: torch.Tensor, part: torch.Tensor, group: Any) -> None:
    """Put the parts that processes have into one tensor; not every version has the function by its new name."""
    distributed = torch.distributed
    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    gather(whole, part, group=group)


def strided_shard() -> type:
    """The placement of a tensor whose axis two dimensions of a mesh shard; without the name there are no such tensors."""
    try:
        from torch.distributed.tensor.placement_types import _StridedShard
    except ImportError:
        return type("StridedShard", (), {})
    found: type = _StridedShard
    return found


def _or_each(together: Callable[..., Any] | None, alone: Callable[..., Any]) -> Callable[..., Any]:
    """A multi-tensor operation; where there is none, the operation on one tensor after the other."""

    def each(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> list[Any]:
        rows = [x if isinstance(x, (list, tuple)) else [x] * len(tensors) for x in arguments]
        return [alone(*of_one, **options) for of_one in zip(tensors, *rows, strict=True)]

    return together or each


#: the multi-tensor operations, which torch's own optimizers and clips are made of
foreach_norm = _or_each(getattr(torch, "_foreach_norm", None), torch.linalg.vector_norm)
foreach_mul = _or_each(getattr(torch, "_foreach_mul", None), torch.mul)
foreach_mul_ = _or_each(getattr(torch, "_foreach_mul_", None), torch.Tensor.mul_)
foreach_clamp_max = _or_each(getattr(torch, "_foreach_clamp_max", None), torch.clamp_max)
foreach_clamp_max_ = _or_each(getattr(torch, "_foreach_clamp_max_", None), torch.Tensor.clamp_max_)
foreach_clamp_min_ = _or_each(getattr(torch, "_foreach_clamp_min_", None), torch.Tensor.clamp_min_)

#: tests of all tensors at once
DTYPE, LAYOUT, REQUIRES_GRAD = map(operator.attrgetter, ("dtype", "layout", "requires_grad"))
