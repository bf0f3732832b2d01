"""PyTorch tensors on any device, sparse COO gradients, ``torch.compile`` and the optimizers' step hook."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from gradclip.backends.host.lane import FUSED
from gradclip.backends.torch import compiled, lanes, versions
from gradclip.backends.torch.distributed import TorchDistributed
from gradclip.core.backend import Backend, Tensor
from gradclip.core.containers import Containers
from gradclip.core.errors import DTypeError, NotWritableError
from gradclip.core.lane import Lane
from gradclip.core.memory import Layout, layout

if TYPE_CHECKING:
    from gradclip.backends.torch.slot import step_pre_hook

__all__ = ["TorchBackend", "step_pre_hook"]

_HOST = torch.device("cpu")
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items() if str(dtype) == f"torch.{name}"}


def __getattr__(name: str) -> Any:
    if name == "step_pre_hook":  # it is above the engine, which a backend does not import
        from gradclip.backends.torch.slot import step_pre_hook

        return step_pre_hook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _nested(x: Tensor) -> DTypeError:
    what, hint = "A nested tensor is several gradients in one.", "pass list(x.unbind()), which shares its memory."
    return DTypeError(what, f"a nested tensor, dtype={x.dtype}", hint)


class TorchContainers(Containers):
    """Python's own containers, and tensors that stand for the gradient that they hold."""

    def is_param(self, x: Any) -> bool:
        if x.requires_grad and x.is_leaf and type(x) is not torch.nn.Parameter:
            # inside torch.func.grad the inputs are gradients, and also leaves that require one
            if not versions.is_compiling():
                return not versions.is_wrapped(x)
            # so is a gradient in the backward of an autograd.Function; TorchDynamo knows nothing of its .grad
            return not compiled.is_transformed() and (x.grad is None or torch.is_tensor(x.grad))
        return isinstance(x, torch.nn.Parameter)

    def gradients(self, leaves: list[Any], every: bool) -> tuple[list[Any], list[Any]]:
        if every or set(map(type, leaves)) == {torch.nn.Parameter}:  # all at once
            return [x.grad for x in leaves], leaves
        return super().gradients(leaves, every)


class TorchBackend(Backend):
    """A ``torch.nn.Parameter``, or a leaf that requires a gradient, stands for its ``.grad``. Other tensors are gradients."""

    name = "torch"
    holds_gradients = True
    containers = TorchContainers()
    distributed = TorchDistributed()
    fused = FUSED

    def __init__(self) -> None:
        # up to torch 2.4 Dynamo cannot read objects in a class
        self.containers, self.distributed = self.containers, self.distributed
        versions.run_between_graphs()

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, torch.Tensor)

    def dtype(self, x: Tensor) -> str:
        return _NAMES[x.dtype]

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        if x.is_nested:  # it has no shape
            raise _nested(x)
        return tuple(x.shape)

    def size(self, x: Tensor) -> Any:
        size = x.numel()
        # a symbol of torch.export or make_fx; TorchDynamo's are integers
        return torch.scalar_tensor(size, dtype=torch.float64) if isinstance(size, torch.SymInt) else size

    def identity(self, x: Tensor) -> Hashable:
        # compiled code can compare tensors; ids would differ in each step, and each step would recompile
        return x if versions.is_compiling() else super().identity(x)

    def layout(self, x: Tensor) -> Layout | None:
        if versions.is_compiling() or not lanes.has_address(x) or (place := versions.place(x)) is None:
            return None
        itemsize = x.element_size()
        return layout(place[1], itemsize, x.shape, [stride * itemsize for stride in x.stride()], place[0])

    def check(self, tensors: Sequence[Tensor]) -> None:
        for x in tensors:
            if isinstance(x, torch.masked.MaskedTensor):
                what, hint = "A masked tensor is not a gradient: some elements have no value.", "pass x.to_tensor(0.0)."
                raise DTypeError(what, "a MaskedTensor", hint)
            if x.is_nested:
                raise _nested(x)
            if not compiled.is_ordinary(x):
                what = "A gradient must be strided or sparse COO."
                hint = f"x.{'to_dense' if x.is_mkldnn else 'to_sparse_coo'}() makes it one."
                raise DTypeError(what, f"layout={x.layout}", hint)
        if len({x.is_meta for x in tensors}) > 1:
            what, hint = "Tensors on the meta device have no values to clip others by.", "clip them separately."
            raise DTypeError(what, ", ".join(sorted({f"device={x.device}" for x in tensors})), hint)

    def check_writable(self, x: Tensor) -> None:
        if not versions.is_compiling() and x.is_inference() and not torch.is_inference_mode_enabled():
            what = "A tensor made in inference mode cannot be written in place outside of it."
            raise NotWritableError(what, f"shape {tuple(x.shape)}", "use gradclip.clip, or clone it first.")
        if x.is_sparse or x.is_contiguous():
            return
        shared = (stride == 0 and length > 1 for stride, length in zip(x.stride(), x.shape, strict=True))
        if x.numel() and any(shared):  # the strides of an empty tensor have no meaning
            received = f"strides {x.stride()}, shape {tuple(x.shape)}"
            hint = "use gradclip.clip, or make it contiguous first."
            raise NotWritableError("An expanded gradient cannot be written in place.", received, hint)

    def reads_free(self, tensors: Sequence[Tensor]) -> bool:
        if versions.is_compiling() or versions.is_forward_differentiating() or versions.is_recording():
            return False
        records = torch.is_grad_enabled()
        return not any(
            not lanes.is_on_host(x) or (records and x.requires_grad) or versions.is_wrapped(x) or versions.is_fake(x)
            for x in tensors
        )

    def can_read(self, x: Tensor) -> bool:
        if versions.is_compiling() or versions.is_recording():
            return False
        return not (x.is_meta or versions.is_wrapped(x) or versions.is_fake(x))

    def is_sparse(self, x: Tensor) -> bool:
        return bool(x.is_sparse)

    def rows(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        if not x.is_sparse:
            return super().rows(x)
        merged = x.coalesce()

        def rebuild(values: Tensor) -> Tensor:
            indices = merged.indices().clone()
            return torch.sparse_coo_tensor(indices, values, x.shape, is_coalesced=True, check_invariants=False)

        return merged.values(), rebuild

    def stored(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        if x.sparse_dim() != 1:
            return None
        indices, values = versions.stored(x)
        return values, lambda new: torch.sparse_coo_tensor(indices.clone(), new, x.shape, check_invariants=False)

    # ---- arithmetic ------------------------------------------------------------------------------------------------------

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x.to(_DTYPES[dtype])

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        device = _HOST if like is None else like.device  # not torch's default device
        if isinstance(value, torch.Tensor) and (like is None or value.device == device):
            return value.to(_DTYPES[dtype])
        if type(value) is float:
            number = lanes.in_range(value, _DTYPES[dtype])
            return torch.scalar_tensor(number, dtype=_DTYPES[dtype], device=device)  # takes half the time
        return torch.as_tensor(value, dtype=_DTYPES[dtype], device=device)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        device = tensors[0].device
        return torch.stack([(x if x.device == device else x.to(device)).to(_DTYPES[dtype]) for x in tensors])

    def abs(self, x: Tensor) -> Tensor:
        return x.abs()

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        # compiled for the host a float32 sum is a running one; torch's own is not
        is_running = versions.is_compiling() and x.is_cpu
        wide = (torch.complex128 if x.is_complex() else torch.float64) if is_running else None
        return (x.sum(dtype=wide) if axes is None else x.sum(axes, keepdim=True, dtype=wide)).to(x.dtype)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return x.amax() if axes is None else x.amax(axes, keepdim=True)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        if isinstance(x, float) and isinstance(y, torch.Tensor) and y.shape == condition.shape:
            return y.masked_fill(condition, x)  # one operation less: torch.where would make a tensor of the number
        return torch.where(condition, x, y)

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        if isinstance(upper, torch.Tensor):
            x, upper = torch.minimum(x, upper.to(x)), None
        if isinstance(lower, torch.Tensor):
            x = x if upper is None else x.clamp(max=lanes.in_range(upper, x.dtype))
            return torch.maximum(x, lower.to(x))
        if lower is not None and upper is not None:
            upper = max(lower, upper)
        if lower is None and upper is None:
            return x
        if upper is None and versions.is_compiling():
            # a limit that changes from call to call: clamp would need a new program for each
            least = torch.ones((), dtype=x.dtype, device=x.device) * lanes.in_range(lower, x.dtype)
            return torch.where(x < least, least, x)
        return x.clamp(lanes.in_range(lower, x.dtype), lanes.in_range(upper, x.dtype))

    def log(self, x: Tensor) -> Tensor:
        return x.log()

    def tolist(self, x: Tensor) -> Any:
        return x.detach().tolist()

    def detach(self, x: Tensor) -> Tensor:
        return x.detach()

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x.copy_(value)

    # ---- how a clip runs -------------------------------------------------------------------------------------------------

    def lane(self, tensors: Sequence[Tensor]) -> Lane | None:
        if not versions.is_compiling():
            chosen = lanes.chosen(self, tensors)
            if chosen is None and versions.is_between_graphs() and all(map(lanes.has_address, tensors)):
                compiled.check_between_graphs(tensors)
            return chosen
        if any(x.is_sparse for x in tensors):
            return None
        # this test replaces many, which each compiled call would repeat as guards
        return compiled.CompiledLane(self, tensors)

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        return torch.no_grad() if in_place else nullcontext()
