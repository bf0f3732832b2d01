"""Paddle's private names. Paddle 3.3 has them all, and no public name replaces them."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import paddle

from gradclip.floors import check_version

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
    "has_memory",
    "held",
    "largest",
    "local_value",
    "maximum",
    "merged",
    "minimum",
    "operations",
    "persistent",
    "read",
    "read_and_set",
    "run_between_programs",
    "take_rows",
    "topology",
    "values_of_rows",
]

check_version("paddle", paddle.__version__)
_RELEASE = (
    tuple(map(int, paddle.__version__.split(".")[:2])) if paddle.__version__ != "0.0.0" else (99,)
)  # built from its sources

operations = paddle._C_ops
Parameter, Value = (
    paddle.base.framework.EagerParamBase,
    paddle.pir.Value,
)  #: the types of tensors of dynamic mode and of a static program
Group: Any = paddle.distributed.communication.group.Group
dtensor_from_local = paddle.distributed.auto_parallel.api.dtensor_from_local
_DTYPE = operator.attrgetter("dtype")
_names: dict[Any, str] = {}


def run_between_programs(functions: Iterable[Callable[..., object]], folders: Sequence[str]) -> None:
    """Make ``to_static`` in its default mode run functions unchanged, and read no file in these folders.

    It would treat a marked function as an operation of Paddle and lose the tensors of a dataclass that it returns.
    """
    if hasattr(paddle.jit, "marker"):
        for function in functions:
            paddle.jit.marker.force_dynamic(function)
    else:  # Paddle 3.0
        importlib.import_module("paddle.jit.sot.utils.paddle_api_config").add_break_graph_apis(list(functions))
    paddle.framework.core.eval_frame_skip_file_prefix(tuple(folders))


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


def held(parameter: Any) -> Any:
    """The gradient object of a parameter; ``.grad`` returns a new object each time."""
    return parameter._grad_ivar()


def count_write(tensors: Sequence[Any]) -> None:
    """Count a write of these tensors, as Paddle's in-place functions do: autograd checks it."""
    for x in tensors:
        x._bump_inplace_version()


def divide_(halves: Sequence[Any], divisor: Any) -> None:
    """Divide half-precision tensors of one dtype by a number in a tensor, in one launch: the operation of loss unscaling.

    Paddle has it for half precision only on accelerators.
    """
    operations.check_finite_and_unscale_(list(halves), divisor)


def local_value(x: Any) -> Any:
    """This process's shard of a distributed tensor, in the same memory."""
    return x._local_value()


def merged(rows: Any) -> Any:
    """A copy of SelectedRows with each row once; without rows they have no memory."""
    if not rows.rows():
        return rows
    with paddle.no_grad():
        return paddle.nn.clip.merge_selected_rows(rows)


def values_of_rows(rows: Any) -> Any:
    """The dense tensor of SelectedRows, in the same memory."""
    return rows._get_tensor_from_selected_rows() if rows.rows() else paddle.zeros(rows.shape, rows.dtype)


def take_rows(x: Any, value: Any) -> None:
    """Give SelectedRows the rows and the memory of others."""
    target, source = x.get_selected_rows(), value.get_selected_rows()
    target.get_tensor()._share_data_with(source.get_tensor())
    target.set_rows(source.rows())
    target.sync_index()


#: a mesh of processes, as users make it and as Paddle stores it
MESHES = (paddle.distributed.ProcessMesh, paddle.base.core.ProcessMesh)


def has_memory(x: Any) -> bool:
    """Whether a shard of a distributed tensor has elements; an empty one has no memory."""
    return bool(x._is_initialized())


def topology() -> Any:
    """The topology of fleet's hybrid parallel mode; None outside of it."""
    return getattr(paddle.distributed.fleet.fleet, "_hcg", None)


def persistent(name: str, shape: list[int], dtype: str, value: Any) -> Any:
    """A variable of the program being built, which keeps its value between runs and starts with this one."""
    initializers = paddle.nn.initializer
    made = initializers.Assign(np.array(value, dtype)) if isinstance(value, list) else initializers.Constant(value)
    return paddle.pir.core.create_persistable_value(dtype, shape, name, initializer=made)


def read(scope: Any, name: str) -> Any:
    """The value of a variable in a scope, as an array."""
    return np.array(scope.find_var(name).get_tensor())


def read_and_set(scope: Any, name: str, value: Any) -> Any:
    """The value of a variable in a scope, as an array; it then sets another value on the same device."""
    held = scope.find_var(name).get_tensor()
    place, found = held._place(), read(scope, name)
    held.set(value, paddle.CUDAPlace(place.gpu_device_id()) if place.is_gpu_place() else paddle.CPUPlace())
    return found
