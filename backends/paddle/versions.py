"""Paddle's private names, each with a fallback for versions without it."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import paddle

from gradclip.core.versions import check_version

__all__ = [
    "MESHES",
    "Group",
    "Parameter",
    "Value",
    "count_write",
    "divide_",
    "dtensor_from_local",
    "dtype",
    "dtypes",
    "grad_of",
    "has_memory",
    "is_distributed",
    "is_in_program",
    "is_static",
    "largest",
    "local_value",
    "maximum",
    "merged",
    "minimum",
    "operations",
    "parameters_of",
    "persistent",
    "read",
    "read_and_set",
    "run_between_programs",
    "scale_of",
    "take_rows",
    "topology",
    "values_of_rows",
]

check_version("paddle", paddle.__version__)
# built from its sources, Paddle has version 0.0.0
_RELEASE = tuple(map(int, paddle.__version__.split(".")[:2])) if paddle.__version__ != "0.0.0" else (99,)

Value = paddle.pir.Value  #: of a static program
Group: Any = paddle.distributed.communication.group.Group
_DTYPE = operator.attrgetter("dtype")
_names: dict[Any, str] = {}


def _parameter() -> type:
    """The type of dynamic mode's parameters; where it has no name, the type of a parameter made for this."""
    try:
        found: type = paddle.base.framework.EagerParamBase
    except AttributeError:
        zero = paddle.nn.initializer.Constant(0.0)  # which draws no random number
        found = type(paddle.create_parameter([1], "float32", default_initializer=zero))
    return found


Parameter = _parameter()


class _Operations:
    """Paddle's public functions instead of its operations: slower, because they check their arguments first."""

    clip, clip_ = paddle.clip, paddle.Tensor.clip_
    copysign, share_data = paddle.copysign, paddle.assign

    @staticmethod
    def max(x: Any, axes: list[int], keepdim: bool) -> Any:
        return paddle.max(x, axis=axes or None, keepdim=keepdim)

    @staticmethod
    def squared_l2_norm(x: Any) -> Any:
        return paddle.sum(x * x).reshape([1])

    @staticmethod
    def hardtanh(x: Any, lower: float, upper: float) -> Any:
        return paddle.nn.functional.hardtanh(x, lower, upper)

    @staticmethod
    def scale(x: Any, factor: Any, bias: float, after: bool) -> Any:
        return paddle.scale(x, factor, bias, after)

    @staticmethod
    def empty_like(x: Any, dtype: Any, place: Any) -> Any:
        return paddle.empty_like(x, dtype).to(place)

    @staticmethod
    def check_finite_and_unscale_(tensors: list[Any], divisor: Any) -> None:
        for x in tensors:
            x.copy_((x.astype("float32") / divisor).astype(x.dtype), True)


#: Paddle's operations, all or none
operations: Any = getattr(paddle, "_C_ops", None)
if not all(hasattr(operations, name) for name in vars(_Operations) if not name.startswith("__")):
    operations = _Operations


def run_between_programs(functions: Iterable[Callable[..., object]], folders: Sequence[str]) -> None:
    """Make ``to_static`` in its default mode run functions unchanged, and read no file in these folders.

    Otherwise it would treat a marked function as an operation of Paddle and lose the tensors of a dataclass that it returns.
    """
    if hasattr(paddle.jit, "marker"):
        for function in functions:
            paddle.jit.marker.force_dynamic(function)
    elif _RELEASE < (3, 1):
        importlib.import_module("paddle.jit.sot.utils.paddle_api_config").add_break_graph_apis(list(functions))
    paddle.framework.core.eval_frame_skip_file_prefix(tuple(folders))


def is_static() -> bool:
    """Whether operations go into a static program, and none is traced by ``to_static``, which takes any tensor."""
    return not paddle.in_dynamic_mode() and not _is_in_to_static()


def _is_in_to_static() -> bool:
    try:
        found: bool = paddle.base.dygraph.base.in_to_static_mode()
    except AttributeError:
        found = True
    return found


def dtype(of: Any) -> str:
    """The common name of one of Paddle's dtypes. Equal dtypes are not always the same object in Paddle 3.0 to 3.2."""
    name = _names.get(of)
    if name is None:
        name = _names[of] = str(of).removeprefix("paddle.")
    return name


def dtypes(tensors: Sequence[Any]) -> list[str]:
    """The dtypes of tensors, each once. Hashing a dtype is slow, so it hashes each object once."""
    found = list(map(_DTYPE, tensors))
    return list(dict.fromkeys(map(dtype, dict(zip(map(id, found), found, strict=True)).values())))


if _RELEASE < (3, 2):  # a NaN is lost in Paddle 3.0; 3.1 has not been tried

    def minimum(x: Any, y: Any) -> Any:
        """The smaller of two numbers; NaN if the first is NaN."""
        return paddle.where(paddle.isnan(x), x, paddle.minimum(x, y))

    def maximum(x: Any, y: Any) -> Any:
        """The larger of two numbers; NaN if the first is NaN."""
        return paddle.where(paddle.isnan(x), x, paddle.maximum(x, y))
else:
    minimum, maximum = paddle.minimum, paddle.maximum


def largest(x: Any, axes: tuple[int, ...] | None) -> Any:
    """The largest element, of all or along axes, which stay as axes of length 1."""
    if _RELEASE == (3, 2):  # Paddle's function warns in each call that torch's differs
        return operations.max(x, list(axes or ()), axes is not None)
    return paddle.max(x, axis=axes, keepdim=axes is not None)


def grad_of(parameter: Any) -> Any:
    """The gradient object of a parameter; ``.grad`` returns a new one each time. Paddle 3.0 has none of an empty gradient."""
    gradient = parameter._grad_ivar() if _SAYS_WHAT_IT_HOLDS else None
    return parameter.grad if gradient is None else gradient


_SAYS_WHAT_IT_HOLDS = hasattr(paddle.Tensor, "_grad_ivar")


def count_write(tensors: Sequence[Any]) -> None:
    """Count a write of these tensors, as Paddle's in-place functions do: autograd checks it."""
    if hasattr(paddle.Tensor, "_bump_inplace_version"):
        for x in tensors:
            x._bump_inplace_version()
    else:
        with paddle.no_grad():
            for x in tensors:
                paddle.assign(x.clone(), x)  # written once more


def divide_(halves: Sequence[Any], divisor: Any) -> None:
    """Divide half-precision tensors of one dtype by a number in a tensor, in one launch: the operation of loss unscaling.

    Paddle has it for half precision only on accelerators.
    """
    operations.check_finite_and_unscale_(list(halves), divisor)


def local_value(x: Any) -> Any:
    """This process's shard of a distributed tensor, in the same memory."""
    if hasattr(paddle.Tensor, "_local_value"):
        return x._local_value()
    return paddle.distributed.auto_parallel.api.dtensor_to_local(x, x.process_mesh, x.placements)


def dtensor_from_local(x: Any, mesh: Any, placements: Sequence[Any]) -> Any:
    """A distributed tensor of the shards of the processes. No public function of Paddle makes one without a group."""
    return paddle.distributed.auto_parallel.api.dtensor_from_local(x, mesh, placements)


def merged(rows: Any) -> Any:
    """A copy of SelectedRows with each row once; without rows they have no memory."""
    if not rows.rows():
        return rows
    with paddle.no_grad():
        return paddle.nn.clip.merge_selected_rows(rows)


def values_of_rows(rows: Any) -> Any:
    """The dense tensor of SelectedRows, in the same memory."""
    if not rows.rows():
        return paddle.zeros(rows.shape, rows.dtype)
    if hasattr(paddle.Tensor, "_get_tensor_from_selected_rows"):
        return rows._get_tensor_from_selected_rows()
    return paddle.Tensor(rows.get_selected_rows().get_tensor(), place=rows.place)


def take_rows(x: Any, value: Any) -> None:
    """Give SelectedRows the rows and the memory of others."""
    target, source = x.get_selected_rows(), value.get_selected_rows()
    tensor, given = target.get_tensor(), source.get_tensor()
    if hasattr(tensor, "_share_data_with"):
        tensor._share_data_with(given)
    else:
        tensor.set(np.array(given), _place_of(tensor))
    target.set_rows(source.rows())
    target.sync_index()


def _place_of(tensor: Any) -> Any:
    """The place of a tensor of a scope or of SelectedRows; where Paddle does not say, the current device."""
    if hasattr(tensor, "_place"):
        place = tensor._place()
        return paddle.CUDAPlace(place.gpu_device_id()) if place.is_gpu_place() else paddle.CPUPlace()
    kind, _, number = paddle.device.get_device().partition(":")
    return paddle.CUDAPlace(int(number)) if kind == "gpu" else paddle.CPUPlace()


#: a mesh of processes, as users make it and as Paddle stores it: its base class
MESHES = paddle.distributed.ProcessMesh.__mro__[:2]


def is_distributed(x: object) -> bool:
    return isinstance(x, paddle.Tensor) and bool(x.is_dist())


def has_memory(x: Any) -> bool:
    """Whether a shard of a distributed tensor has elements; an empty one has no memory."""
    return bool(x._is_initialized()) if hasattr(paddle.Tensor, "_is_initialized") else 0 not in x.shape


def topology() -> Any:
    """The topology of fleet's hybrid parallel mode; None outside of it."""
    try:
        return paddle.distributed.fleet.get_hybrid_communicate_group()
    except (AttributeError, AssertionError):  # before fleet.init
        return None


def persistent(name: str, value: Any) -> Any:
    """A variable of the program being built, which keeps its value between runs and starts with this array."""
    initializers = paddle.nn.initializer
    made = initializers.Assign(value) if value.ndim else initializers.Constant(value.item())
    return paddle.pir.core.create_persistable_value(value.dtype.name, list(value.shape), name, initializer=made)


def read(scope: Any, name: str) -> Any:
    """The value of a variable in a scope, as an array."""
    return np.array(scope.find_var(name).get_tensor())


def read_and_set(scope: Any, name: str, value: Any) -> Any:
    """The value of a variable in a scope, as an array; it then sets another value on the same device."""
    tensor, found = scope.find_var(name).get_tensor(), read(scope, name)
    tensor.set(value, _place_of(tensor))
    return found


def parameters_of(optimizer: Any) -> list[Any]:
    """The parameters of an optimizer, of all its groups; none where it does not say."""
    # what a step takes; a group that is added later is only there
    found = getattr(optimizer, "_param_groups", None) or getattr(optimizer, "_parameter_list", None) or []
    groups = [x["params"] if isinstance(x, dict) else [x] for x in found]
    return [x for group in groups for x in group]


def clip_of(optimizer: Any) -> Any:
    """The object that clips for an optimizer, or for one of its groups; None without."""
    groups = (x for x in getattr(optimizer, "_param_groups", None) or [] if isinstance(x, dict))
    found = (getattr(optimizer, "_grad_clip", None), *(group.get("grad_clip") for group in groups))
    return next((x for x in found if x is not None), None)


def is_in_program(optimizer: Any) -> bool:
    """Whether a static program has a step of the optimizer; False if Paddle does not tell."""
    rates = getattr(optimizer, "_learning_rate_map", None) or {}
    return any(not isinstance(rate, paddle.Tensor) for rate in rates.values())


def set_clip(optimizer: Any, clip: Any) -> None:
    """Make an object clip for an optimizer and for each of its groups."""
    optimizer._grad_clip = clip
    set_clip_of_groups(optimizer, clip)


def set_clip_of_groups(optimizer: Any, clip: Any) -> None:
    """Make an object clip for each group of an optimizer that has no clip, such as one that was added."""
    for group in getattr(optimizer, "_param_groups", None) or []:
        if isinstance(group, dict) and group.get("grad_clip") is None:
            group["grad_clip"] = clip


def pairs_of(optimizer: Any, parameters: Any = None) -> list[tuple[Any, Any]]:
    """The pairs of parameters and gradients of an optimizer's next step, as it makes them, perhaps of some parameters only.

    A distributed parameter is there without its gradient too: other processes may have it.
    """
    trained = [p for p in parameters or parameters_of(optimizer) if not p.stop_gradient]
    mains = [getattr(p, "main_grad", None) for p in trained]  # in float32, for parameters in half precision
    pairs = [(p, grad_of(p) if main is None else main) for p, main in zip(trained, mains, strict=True)]
    return [(p, gradient) for p, gradient in pairs if gradient is not None or is_distributed(p)]


def is_void(optimizer: Any) -> bool:
    """Whether a scaler has found infinities, with which the optimizer will not step."""
    found = getattr(optimizer, "_get_auxiliary_var", lambda name: None)("found_inf")
    return found is not None and bool(found)


def scale_of(scaler: Any) -> float:
    """The loss scale of a scaler; that at the beginning where it does not say."""
    scale = getattr(scaler, "_scale", None)
    return float(scaler.get_init_loss_scaling() if scale is None else scale)
