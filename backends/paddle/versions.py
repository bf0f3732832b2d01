"""Paddle's private names. Paddle 3.3 has them all, and no public name does the same."""

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
_RELEASE = tuple(map(int, paddle.__version__.split(".")[:2])) if paddle.__version__ != "0.0.0" else (99,)  # from its sources

operations = paddle._C_ops
Parameter, Value = paddle.base.framework.EagerParamBase, paddle.pir.Value  #: of dynamic mode, and of a static program
Group: Any = paddle.distributed.communication.group.Group
dtensor_from_local = paddle.distributed.auto_parallel.api.dtensor_from_local
_DTYPE = operator.attrgetter("dtype")
_names: dict[Any, str] = {}


def run_between_programs(functions: Iterable[Callable[..., object]], folders: Sequence[str]) -> None:
    """Have ``to_static`` in its default mode run functions as they are, and read no file in these folders.

    It would take a marked function for an operation of Paddle, whose result may be no dataclass, and lose its tensors.
    """
    if hasattr(paddle.jit, "marker"):
        for function in functions:
            paddle.jit.marker.force_dynamic(function)
    else:  # Paddle 3.0
        importlib.import_module("paddle.jit.sot.utils.paddle_api_config").add_break_graph_apis(list(functions))
    paddle.framework.core.eval_frame_skip_file_prefix(tuple(folders))


def dtype(of: Any) -> str:
    """The common name of one of Paddle's dtypes. They are equal, but in Paddle 3.0 to 3.2 not always the same object."""
    name = _names.get(of)
    if name is None:
        name = _names[of] = str(of).removeprefix("paddle.")
    return name


def dtypes(tensors: Sequence[Any]) -> list[str]:
    """The dtypes of tensors, each once. Hashing a dtype takes long, so that each object is hashed once."""
    found = list(map(_DTYPE, tensors))
    return list(dict.fromkeys(map(dtype, dict(zip(map(id, found), found, strict=True)).values())))


if _RELEASE < (3, 2):  # a NaN is lost in Paddle 3.0; 3.1 has not been tried

    def minimum(x: Any, y: Any) -> Any:
        """The smaller of two numbers; NaN where the first is one."""
        return paddle.where(paddle.isnan(x), x, paddle.minimum(x, y))

    def maximum(x: Any, y: Any) -> Any:
        """The larger of two numbers; NaN where the first is one."""
        return paddle.where(paddle.isnan(x), x, paddle.maximum(x, y))
else:
    minimum, maximum = paddle.minimum, paddle.maximum


def largest(x: Any, axes: tuple[int, ...] | None) -> Any:
    """The largest element, of all or along axes, which stay with length 1."""
    if _RELEASE == (3, 2):  # whose function warns in each call that torch's is another
        return operations.max(x, list(axes or ()), axes is not None)
    return paddle.max(x, axis=axes, keepdim=axes is not None)


def held(parameter: Any) -> Any:
    """The gradient of a parameter itself, where ``.grad`` is a new object each time; Paddle 3.0 has none without elements."""
    gradient = parameter._grad_ivar()
    return parameter.grad if gradient is None else gradient


def count_write(tensors: Sequence[Any]) -> None:
    """Count that tensors were written, as Paddle's own functions in place do, for a derivative that has read them."""
    for x in tensors:
        x._bump_inplace_version()


def divide_(halves: Sequence[Any], divisor: Any) -> None:
    """Divide tensors of one half precision by a number in a tensor, all in one launch: what loss scaling is undone by.

    Paddle has this for halves on accelerators only.
    """
    operations.check_finite_and_unscale_(list(halves), divisor)


def local_value(x: Any) -> Any:
    """This process's part of a distributed tensor, in the same memory."""
    return x._local_value()


def merged(rows: Any) -> Any:
    """SelectedRows in memory of their own, each row once; without a row they have no memory."""
    if not rows.rows():
        return rows
    with paddle.no_grad():
        return paddle.nn.clip.merge_selected_rows(rows)


def values_of_rows(rows: Any) -> Any:
    """The dense tensor of SelectedRows, in the same memory."""
    return rows._get_tensor_from_selected_rows() if rows.rows() else paddle.zeros(rows.shape, rows.dtype)


def take_rows(x: Any, value: Any) -> None:
    """Let SelectedRows have the rows and the memory of others."""
    target, source = x.get_selected_rows(), value.get_selected_rows()
    target.get_tensor()._share_data_with(source.get_tensor())
    target.set_rows(source.rows())
    target.sync_index()


#: a mesh of processes as users make it, and as Paddle keeps it
MESHES = (paddle.distributed.ProcessMesh, paddle.base.core.ProcessMesh)


def has_memory(x: Any) -> bool:
    """Whether a part of a distributed tensor holds anything; an empty one has no memory."""
    return bool(x._is_initialized())


def topology() -> Any:
    """How fleet's hybrid parallel mode divides the processes; None outside of it."""
    return getattr(paddle.distributed.fleet.fleet, "_hcg", None)


def persistent(name: str, shape: list[int], dtype: str, value: Any) -> Any:
    """A variable of the program that is being built, which keeps its value between runs and begins with this one."""
    initializers = paddle.nn.initializer
    made = initializers.Assign(np.array(value, dtype)) if isinstance(value, list) else initializers.Constant(value)
    return paddle.pir.core.create_persistable_value(dtype, shape, name, initializer=made)


def read(scope: Any, name: str) -> Any:
    """The value of a variable in a scope, as an array."""
    return np.array(scope.find_var(name).get_tensor())


def read_and_set(scope: Any, name: str, value: Any) -> Any:
    """The value of a variable in a scope, as an array; then it is another, on the same device."""
    held = scope.find_var(name).get_tensor()
    place, found = held._place(), read(scope, name)
    held.set(value, paddle.CUDAPlace(place.gpu_device_id()) if place.is_gpu_place() else paddle.CPUPlace())
    return found
