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

from gradclip.core.tracing import constant
from gradclip.core.versions import check_version

__all__ = [
    "DISTRIBUTED_TENSORS",
    "all_gather",
    "canonical",
    "count_write",
    "distributed_tensors",
    "has_hooks",
    "has_modes",
    "is_between_graphs",
    "is_compiling",
    "is_exporting",
    "is_fake",
    "is_forward_differentiating",
    "is_in_backward",
    "is_recording",
    "is_transformed",
    "is_wrapped",
    "make_room_for_hooks",
    "place",
    "run_between_graphs",
    "storage",
    "stored",
    "traces",
    "writes",
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
_function_modes = getattr(_C, "_len_torch_function_stack", lambda: 1)  # unknown: there may be one, so a slower test
_is_tracing = getattr(_C, "_is_tracing", torch.jit.is_tracing)
#: whether ``torch.compile`` can trace gradclip
traces = _RELEASE >= (2, 5)
_ops = getattr(torch, "_ops", None)
_before_dispatch = getattr(_ops, "_len_torch_dispatch_stack_pre_dispatch", lambda: 1)  # unknown: nothing is read
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


def place(x: torch.Tensor) -> tuple[int, int] | None:
    """The memory that a tensor is in, 0 for all addresses of this process, and its address there; None without either.

    The pointer of another device may be that of an object (MPS), and not every device has one (XLA).
    """
    try:
        if x.is_cpu or x.is_cuda:
            pointer = x.data_ptr()
            return (0, pointer) if pointer else None
        return x.untyped_storage().data_ptr(), x.storage_offset() * x.element_size()
    except RuntimeError:
        return None


def storage(x: torch.Tensor) -> int:
    """A number of the storage of a tensor, which may be without values."""
    held: Any = x.untyped_storage()
    return int(held._cdata if hasattr(held, "_cdata") else held.data_ptr())


def stored(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The indices and the values of a sparse COO tensor as they are, also of one that is not coalesced."""
    return (x.indices(), x.values()) if x.is_coalesced() else (x._indices(), x._values())


def is_fake(x: Any) -> bool:
    """Whether a tensor has a shape and a device but no values."""
    return isinstance(x, FakeTensor)


_graph_task = getattr(_C, "_current_graph_task_id", lambda: -1)  # unknown: an optimizer's mistake is not found


def is_in_backward() -> bool:
    """Whether a backward pass runs, and calls this."""
    return not is_compiling() and int(_graph_task()) >= 0


def has_modes() -> bool:
    """Whether a dispatch mode sees each operation, or a tracer records them."""
    # make_fx(pre_dispatch=True) has no dispatch mode, but one for functions
    return bool(_modes()) or _is_tracing() or (_function_modes() > 0 and is_recording())


def _records_before_dispatch() -> bool:
    """Whether ``make_fx(pre_dispatch=True)`` records, which ``get_proxy_mode`` of PyTorch 2.4 does not tell."""
    return not traces and _function_modes() > 0 and _before_dispatch() > 0


def is_recording() -> bool:
    """Whether ``torch.jit.trace`` or ``make_fx`` records the operations: a value that is read would stay for ever."""
    if _is_tracing():
        return True
    tracing = sys.modules.get("torch.fx.experimental.proxy_tensor")  # who traces has imported it
    if tracing is None:
        return False
    mode = getattr(tracing, "get_proxy_mode", getattr(tracing, "get_innermost_proxy_mode", None))  # the second name: 2.4
    return _records_before_dispatch() or (bool(_modes()) if mode is None else mode() is not None)


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


def is_between_graphs() -> bool:
    """Whether this runs eagerly inside a function that ``torch.compile`` compiles; False if torch does not say."""
    frames = getattr(getattr(_C, "_dynamo", None), "eval_frame", None)
    return callable(getattr(frames, "get_eval_frame_callback", lambda: None)())


def writes(x: torch.Tensor) -> int:
    """How often a tensor's memory was written, as autograd counts; 0 for one that is not counted."""
    try:
        return int(getattr(x, "_version", 0))
    except RuntimeError:  # made in inference mode
        return 0


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


def canonical(group: Any) -> Any:
    """The same group for all groups of the same processes that equal meshes have made: the first of them.

    All members of a group have made these groups in the same order. Without the register each mesh keeps its own group.
    """
    distributed = torch.distributed
    known = getattr(getattr(distributed.distributed_c10d, "_world", None), "pg_map", {})  # in the order of their making

    def kind(one: Any) -> tuple[Any, ...]:
        return distributed.get_process_group_ranks(one), distributed.get_backend_config(one), getattr(one, "group_desc", "")

    mine = kind(group)
    return next((one for one in known if kind(one) == mine), group)


def strided_shard() -> type:
    """The placement of a tensor whose axis two dimensions of a mesh shard; without the name there are no such tensors."""
    try:
        from torch.distributed.tensor.placement_types import _StridedShard
    except ImportError:
        return type("StridedShard", (), {})
    found: type = _StridedShard
    return found


def run_eagerly() -> Callable[[], None] | None:
    """Let all that torch.compile has made run eagerly, until the returned function is called; torch cannot before 2.6."""
    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None:
        return None
    eager = stance("force_eager")
    return lambda: eager.__exit__(None, None, None)


def has_hooks(optimizer: Any) -> bool:
    """Whether an optimizer can have hooks: a wrapper may call no ``__init__`` of torch's."""
    return hasattr(optimizer, "_optimizer_step_pre_hooks")


def make_room_for_hooks(optimizer: Any) -> None:
    """Let an optimizer have hooks that has no state yet; when it gets its state it keeps them."""
    if not has_hooks(optimizer):
        torch.optim.Optimizer.__setstate__(optimizer, {"defaults": {}})


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
DTYPE, LAYOUT, REQUIRES_GRAD, IS_NESTED = map(operator.attrgetter, ("dtype", "layout", "requires_grad", "is_nested"))
