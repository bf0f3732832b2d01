"""The table of types: what a type checker says of each public function for each argument, and whether it is so.

``program(framework)`` is a file for the checkers, with a ``reveal_type`` in each line. ``python revealed.py framework`` runs
the same expressions, and tests each value against the same text.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

__all__ = ["FRAMEWORKS", "MYPY", "expected", "program", "short"]


@dataclass(frozen=True)
class Argument:
    """An argument, and the types of the results for it; None where the function refuses it."""

    name: str
    type: str
    value: str
    norm: str  #: of a clip by one norm
    total: str | None  #: the norm of the drop-ins: for NumPy an array
    grads: str | None = None  #: of a clip; None for ``type``
    listed: str | None = None  #: of clip_by_global_norm
    result: str | None = None  #: the first parameter of ClipResult, if the checkers write ``type`` in another way
    writes: bool = True  #: whether these can be written in place
    is_one: bool = False  #: whether it is one gradient


@dataclass(frozen=True)
class Framework:
    """The beginning of a program, the names in it, and its arguments."""

    imports: str
    names: tuple[str, ...]  #: long spelling = short one
    arguments: tuple[Argument, ...]
    others: tuple[tuple[str, str], ...] = ()  #: more expressions


COMMON = """
import gradclip
from gradclip import dialects

rule = dialects.torch.clip_grad_norm(max_norm=1.0)
each = dialects.keras.clipnorm(1.0)
"""

NUMPY = Framework(
    """
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
import numpy as np
import numpy.typing as npt
F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]
a, b = np.array([3.0, 4.0]), np.array([1.0, 2.0], np.float32)
def iterable() -> Iterable[np.ndarray]:
    return {"w": a.copy()}.values()
""",
    (
        "ndarray[tuple[Any, ...], dtype[float64]]=F64",
        "ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]=F32",
        "ndarray[tuple[Any, ...], dtype[float32]]=F32",
        "ndarray[tuple[Any, ...], dtype[Any]]=ndarray",
        "ndarray[Any, Any]=ndarray",
        "ndarray[tuple[()], dtype[floating[Any]]]=Total",
        "floating[Any]=floating",
    ),
    (
        Argument("bare", "np.ndarray", "a.copy()", "floating", "ndarray", grads="ndarray", is_one=True),
        Argument("one", "F64", "a.copy()", "floating", "F64", is_one=True),
        Argument("single", "F32", "b.copy()", "floating", "F32", is_one=True),
        Argument(
            "bares", "list[np.ndarray]", "[a.copy()]", "floating", "ndarray", grads="list[ndarray]", listed="list[ndarray]"
        ),
        Argument("several", "list[F64]", "[a.copy(), a + 1]", "floating", "F64", listed="list[F64]"),
        Argument("gaps", "list[F64 | None]", "[a.copy(), None]", "floating", "F64", listed="list[F64 | None]"),
        Argument("pair", "tuple[F64, F32]", "(a.copy(), b.copy())", "floating", "F64 | F32", listed="list[F64 | F32]"),
        Argument("alike", "tuple[F64, ...]", "(a.copy(), a + 1)", "floating", "F64", listed="list[F64]"),
        Argument("sequence", "Sequence[F64]", "[a.copy()]", "floating", "F64", listed="list[F64]"),
        Argument("iterator", "Iterator[F64]", "iter([a.copy()])", "floating", "F64", grads="list[F64]", listed="list[F64]"),
        Argument(
            "bare_iterator",
            "Iterator[np.ndarray]",
            "iter([a.copy()])",
            "floating",
            "ndarray",
            grads="list[ndarray]",
            listed="list[ndarray]",
            result="Iterator[ndarray]",
        ),
        Argument("named", "dict[str, F64]", '{"w": a.copy()}', "floating", "F64", listed="dict[str, F64]"),
        Argument(
            "bare_named",
            "dict[str, np.ndarray]",
            '{"w": a.copy()}',
            "floating",
            "ndarray",
            grads="dict[str, ndarray]",
            listed="dict[str, ndarray]",
        ),
        Argument(
            "named_gaps",
            "dict[str, F64 | None]",
            '{"w": a.copy(), "b": None}',
            "floating",
            "F64",
            listed="dict[str, F64 | None]",
        ),
        Argument(
            "nested",
            "dict[str, dict[str, F64]]",
            '{"x": {"w": a.copy()}}',
            "floating",
            "F64",
            listed="dict[str, dict[str, F64]]",
        ),
    ),
    (
        ("gradclip.clip(named().items(), rule).grads", "dict[str, F64]"),
        ("gradclip.clip(several(), gradclip.Group(rule)).grads", "list[F64]"),
        ("gradclip.Monitor().report()", "dict[str, float]"),
        ("gradclip.clip_grad_norm_(iterable(), 1.0)", "Total"),
    ),
)

TORCH = Framework(
    """
from collections.abc import Iterable, Iterator, Mapping, Sequence
import torch
from torch import Tensor
from torch.nn import Parameter
def model() -> torch.nn.Linear:
    made = torch.nn.Linear(2, 1)
    made(torch.ones(1, 2)).sum().backward()
    return made
t = torch.tensor([3.0, 4.0])
def iterable() -> Iterable[Parameter]:
    return model().parameters()
""",
    (),
    (
        Argument("one", "Tensor", "t.clone()", "Tensor", "Tensor", is_one=True),
        Argument("parameter", "Parameter", "list(model().parameters())[0]", "Tensor", "Tensor", grads="Tensor | None"),
        Argument("several", "list[Tensor]", "[t.clone()]", "Tensor", "Tensor", listed="list[Tensor]"),
        Argument("gaps", "list[Tensor | None]", "[t.clone(), None]", "Tensor", "Tensor", listed="list[Tensor | None]"),
        Argument("tuple_", "tuple[Tensor, ...]", "(t.clone(),)", "Tensor", "Tensor", listed="list[Tensor]"),
        Argument("sequence", "Sequence[Tensor]", "[t.clone()]", "Tensor", "Tensor", listed="list[Tensor]"),
        Argument("mapping", "Mapping[str, Tensor]", '{"w": t.clone()}', "Tensor", "Tensor"),
        Argument("named", "dict[str, Tensor]", '{"w": t.clone()}', "Tensor", "Tensor", listed="dict[str, Tensor]"),
        Argument(
            "named_gaps",
            "dict[str, Tensor | None]",
            '{"w": t.clone(), "b": None}',
            "Tensor",
            "Tensor",
            listed="dict[str, Tensor | None]",
        ),
        Argument(
            "nested", "dict[str, list[Tensor]]", '{"w": [t.clone()]}', "Tensor", "Tensor", listed="dict[str, list[Tensor]]"
        ),
        Argument("iterator", "Iterator[Parameter]", "model().parameters()", "Tensor", "Tensor", grads="list[Tensor | None]"),
        Argument(
            "parameters", "list[Parameter]", "list(model().parameters())", "Tensor", "Tensor", grads="list[Tensor | None]"
        ),
        Argument(
            "pairs",
            "Iterator[tuple[str, Parameter]]",
            "model().named_parameters()",
            "Tensor",
            "Tensor",
            grads="dict[str, Tensor | None]",
        ),
        Argument(
            "by_name",
            "dict[str, Parameter]",
            "dict(model().named_parameters())",
            "Tensor",
            "Tensor",
            grads="dict[str, Tensor | None]",
        ),
    ),
    (
        ("gradclip.norms_by_name(model())", "dict[str, Tensor]"),
        ("gradclip.clip_grad_norm_(iterable(), 1.0)", "Tensor"),
        ("gradclip.clip(tuple(model().parameters()), rule).grads", "tuple[Tensor | None, ...]"),
        ("gradclip.clipped(torch.optim.SGD(model().parameters()), rule).param_groups", "list[dict[str, Any]]"),
    ),
)

JAX = Framework(
    """
from dataclasses import dataclass
from typing import Any, NamedTuple
from jax import Array
import jax
import jax.numpy as jnp
j = jnp.array([3.0, 4.0])
@jax.tree_util.register_dataclass
@dataclass
class Weights:
    w: Array
class Pair(NamedTuple):
    w: Array
    b: list[Array]
""",
    ("tuple[Array, list[Array], fallback=Pair]=Pair",),
    (
        Argument("one", "Array", "j", "Array", None, is_one=True, writes=False),
        Argument("several", "list[Array]", "[j]", "Array", None, listed="list[Array]", writes=False),
        Argument("named", "dict[str, Array]", '{"w": j}', "Array", None, listed="dict[str, Array]", writes=False),
        Argument(
            "nested",
            "dict[str, dict[str, Array]]",
            '{"x": {"w": j}}',
            "Array",
            None,
            listed="dict[str, dict[str, Array]]",
            writes=False,
        ),
        Argument("gaps", "list[Array | None]", "[j, None]", "Array", None, listed="list[Array | None]", writes=False),
        Argument("pair", "Pair", "Pair(j, [j])", "Array", None, writes=False),
        Argument("weights", "Weights", "Weights(j)", "Array", None, writes=False),
    ),
    (("gradclip.clip({'w': j}.values(), rule).grads", "list[Array]"),),
)

PADDLE = Framework(
    """
from collections.abc import Iterator
import paddle
from paddle import Tensor
def p() -> Tensor:
    return paddle.to_tensor([3.0, 4.0])
""",
    (),
    (
        Argument("one", "Tensor", "p()", "Tensor", None, is_one=True),
        Argument("several", "list[Tensor]", "[p()]", "Tensor", None, listed="list[Tensor]"),
        Argument("gaps", "list[Tensor | None]", "[p(), None]", "Tensor", None, listed="list[Tensor | None]"),
        Argument("named", "dict[str, Tensor]", '{"w": p()}', "Tensor", None, listed="dict[str, Tensor]"),
        Argument("iterator", "Iterator[Tensor]", "iter([p()])", "Tensor", None, grads="list[Tensor]", listed="list[Tensor]"),
    ),
    (("gradclip.clip_grad_norm_(paddle.nn.Linear(2, 1).parameters(), 1.0)", "Tensor"),),
)

TENSORFLOW = Framework(
    """
import tensorflow as tf  # type: ignore[import-untyped]
from tensorflow import Tensor
t = tf.constant([3.0, 4.0])
""",
    (),
    (
        Argument("one", "Tensor", "t", "Tensor", None, is_one=True, writes=False),
        Argument("several", "list[Tensor]", "[t]", "Tensor", None, listed="list[Tensor]", writes=False),
        Argument("named", "dict[str, Tensor]", '{"w": t}', "Tensor", None, listed="dict[str, Tensor]", writes=False),
    ),
)

#: where mypy says less: named pairs with a norm of Any fit two lines of ``Returned``
MYPY = {"gradclip.clip(pairs(), each).grads": "Any"}

FRAMEWORKS = {"numpy": NUMPY, "torch": TORCH, "jax": JAX, "paddle": PADDLE, "tensorflow": TENSORFLOW}


def rows(framework: Framework) -> Iterator[tuple[str, str]]:
    """Each expression with its type."""
    for given in framework.arguments:
        x, grads = f"{given.name}()", given.grads or given.type
        result = given.result or re.sub(r"\bnp\.", "", given.type)
        yield f"gradclip.clip({x}, rule)", f"ClipResult[{result}, {given.norm}]"
        yield f"gradclip.clip({x}, rule).grads", grads
        yield f"gradclip.clip({x}, rule).norm", given.norm
        yield f"gradclip.clip({x}, rule).coefficient", given.norm
        yield f"gradclip.norm({x}, rule)", given.norm
        yield f"gradclip.norms_by_name({x})", f"dict[str, {given.norm}]"
        yield f"gradclip.scale_by_norm({x}, rule, 2.0).grads", grads
        yield f"gradclip.Step(rule).update({x}, gradclip.Step(rule).init({x}))[0].grads", grads
        yield f"gradclip.Monitor().update(gradclip.clip({x}, rule)).norm", given.norm
        yield f"gradclip.clip({x}, each).grads", grads
        if given.writes:
            yield f"gradclip.clip_({x}, rule).grads", grads
            yield f"gradclip.clip_({x}, rule).norm", given.norm
            yield f"gradclip.scale_by_norm_({x}, rule, 2.0).grads", grads
        yield from drop_ins(given, x)
    yield from framework.others


def drop_ins(given: Argument, x: str) -> Iterator[tuple[str, str]]:
    """The functions that have a native's name."""
    total = given.total or given.norm
    if given.writes and "None" not in given.type:  # torch refuses None
        yield f"gradclip.clip_grad_norm_({x}, 1.0)", total
    if given.name != "weights":  # a drop-in takes no dataclass
        yield f"gradclip.get_total_norm({x})", total
    if given.is_one:
        yield f"gradclip.clip_by_norm({x}, 1.0)", given.grads or given.type
        yield f"gradclip.clip_by_value({x}, -1.0, 1.0)", given.grads or given.type
    if given.listed:
        is_array = given.total is not None and given.name in ("named_gaps", "nested") and given.norm == "floating"
        yield f"gradclip.clip_by_global_norm({x}, 1.0)", f"tuple[{given.listed}, {'Total' if is_array else total}]"
        yield f"gradclip.global_norm({x})", total


def program(name: str) -> str:
    """A user's program with a line for each row."""
    framework = FRAMEWORKS[name]
    made = [f"def {one.name}() -> {one.type}:\n    return {one.value}\n" for one in framework.arguments]
    lines = [f"reveal_type({row})" for row, _ in rows(framework)]
    return "\n".join([framework.imports, COMMON, *made, *lines, ""])


def expected(name: str) -> list[tuple[str, str]]:
    """The rows of a framework."""
    return list(rows(FRAMEWORKS[name]))


def short(name: str, told: str) -> str:
    """A checker's words for a type, without the modules of its names."""
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", told)
    for pair in FRAMEWORKS[name].names:
        long, _, brief = pair.rpartition("=")
        text = text.replace(long, brief)
    return text


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, in all its parts."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(is_of(value, one) for one in args)
    if origin is None:
        return value is None if kind is type(None) else isinstance(value, (int, float) if kind is float else kind)
    if origin.__name__ == "ClipResult":  # its first parameter is what was given: a test of ``grads`` is another row
        return isinstance(value, origin) and is_of(value.norm, args[1])
    if not isinstance(value, origin):
        return False
    if isinstance(value, Mapping):
        return all(is_of(k, args[0]) and is_of(x, args[1]) for k, x in value.items())
    if origin is tuple and Ellipsis not in args:
        return len(value) == len(args) and all(map(is_of, value, args))
    return all(is_of(x, args[0]) for x in value)


def run(name: str) -> int:
    """Run the rows of a framework; the number of wrong ones, which it prints."""
    framework, space = FRAMEWORKS[name], {}
    made = [f"def {one.name}():\n    return {one.value}\n" for one in framework.arguments]
    exec("\n".join([framework.imports, COMMON, *made]), space)
    types_of = dict(space)
    if name == "numpy":
        np = space["np"]
        types_of |= dict.fromkeys(("F64", "F32", "ndarray", "Total"), np.ndarray) | {"floating": np.floating}
    types_of |= {"Any": Any, "ClipResult": space["gradclip"].ClipResult}
    wrong = 0
    for row, kind in rows(framework):
        value = eval(row, space)
        if not is_of(value, eval(kind, types_of)):
            print(f"{row} is no {kind}: {value!r}")
            wrong += 1
    return wrong


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
