"""torch's own functions, and gradclip's drop-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from frameworks.torch import framework
from natives.behaviours import Behaviours, warned
from natives.compare import Outcome
from natives.replay import Native, Run, calls

import gradclip

FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_", "get_total_norm", "clip_grads_with_norm_")
THEIRS = SimpleNamespace(**{name: getattr(torch.nn.utils, name) for name in FUNCTIONS})
OURS = SimpleNamespace(**{name: getattr(gradclip, name) for name in FUNCTIONS})

#: recorded behaviours without a counterpart here, with the reason
NOT_REPLAYED = {
    "quirk: reciprocal-then-multiply": "the last bit of a coefficient; case B1 replays what comes of it",
    "deprecated clip_grad_norm (no underscore)": "gradclip takes over no deprecated name",
}

NORM, VALUE = "torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"
TOTAL, WITH_NORM = "torch.nn.utils.get_total_norm", "torch.nn.utils.clip_grads_with_norm_"
PREFIX = "torch."  #: of the names of its natives


# ---- the recorded cases --------------------------------------------------------------------------------------------------


def hold(grads: list[Any]) -> list[Any]:
    """Return tensors with these gradients, one for each distinct object; without requires_grad, any dtype is allowed."""
    made: dict[int, Any] = {}
    for gradient in grads:
        if gradient is not None:
            made[id(gradient)] = torch.zeros(gradient.shape, dtype=gradient.dtype)
            made[id(gradient)].grad = gradient
    return [torch.zeros(1) if gradient is None else made[id(gradient)] for gradient in grads]


def gradients_of(parameters: list[Any]) -> list[Any]:
    return [parameter.grad for parameter in parameters]


def over(function: Any, **fixed: Any) -> Run:
    def run(parameters: list[Any], limit: Any, **arguments: Any) -> Outcome:
        norm = function(parameters, limit, **arguments, **fixed)
        return Outcome(gradients_of(parameters), norm, norm)

    return run


CALLS = calls(
    *(
        Native(
            NORM, over(THEIRS.clip_grad_norm_, **fixed), over(OURS.clip_grad_norm_, **fixed), True, variant, hold, gradients_of
        )
        for variant, fixed in (("", {}), ("foreach=False", {"foreach": False}))
    )
)

# ---- behaviours ----------------------------------------------------------------------------------------------------------

BEHAVIOURS = Behaviours()
of = BEHAVIOURS.of


def parameter(values: list[float] | None = None) -> torch.nn.Parameter:
    return framework.parameter(framework.make([3.0, 4.0] if values is None else values))


@of(NORM, "in place: the gradient stays the same object")
def _(api: Any) -> Any:
    p = parameter()
    gradient, storage = p.grad, p.grad.data_ptr()
    api.clip_grad_norm_([p], 1.0)
    return p.grad is gradient, p.grad.data_ptr() == storage, p.grad


@of(NORM, "return value: a tensor of its own, before clipping")
def _(api: Any) -> Any:
    norm = api.clip_grad_norm_([parameter()], 1.0)
    return norm, norm.requires_grad, str(norm.device)


@of(NORM, "empty list")
def _(api: Any) -> Any:
    return warned(lambda: api.clip_grad_norm_([], 1.0))


@of(NORM, "empty generator, with a warning")
def _(api: Any) -> Any:
    return warned(lambda: api.clip_grad_norm_((p for p in ()), 1.0))


@of(NORM, "empty tuple and iterator")
def _(api: Any) -> Any:
    return api.clip_grad_norm_((), 1.0), api.clip_grad_norm_(iter([]), 1.0)


@of(NORM, "dict.values()")
def _(api: Any) -> Any:
    p = parameter()
    return api.clip_grad_norm_({"a": p}.values(), 1.0), p.grad


@of(NORM, "single tensor without a gradient")
def _(api: Any) -> Any:
    return api.clip_grad_norm_(torch.zeros(2), 1.0)


@of(NORM, "list containing None")
def _(api: Any) -> Any:
    return api.clip_grad_norm_([parameter(), None], 1.0)


@of(NORM, "a module instead of its parameters")
def _(api: Any) -> Any:
    return api.clip_grad_norm_(torch.nn.Linear(1, 1), 1.0)


@of(NORM, "generator works")
def _(api: Any) -> Any:
    p = parameter()
    return api.clip_grad_norm_((q for q in [p]), 1.0), p.grad


@of(WITH_NORM, "generators for both stages")
def _(api: Any) -> Any:
    p = parameter()
    norm = api.get_total_norm(q.grad for q in [p])
    return norm, api.clip_grads_with_norm_((q for q in [p]), 1.0, norm), p.grad


@of(TOTAL, "of parameters: their own norm, not their gradients'")
def _(api: Any) -> Any:
    p = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    p.grad = torch.tensor([30.0, 40.0])
    norm = api.get_total_norm([p])
    return norm, norm.requires_grad


@of(TOTAL, "of nothing")
def _(api: Any) -> Any:
    return api.get_total_norm([])


@of(TOTAL, "float16", dtype=torch.float16)
@of(TOTAL, "bfloat16", dtype=torch.bfloat16)
def _(api: Any, dtype: torch.dtype) -> Any:
    return api.get_total_norm([torch.full((250, 240), 300.0, dtype=dtype)])


@of(WITH_NORM, "both stages in float16")
def _(api: Any) -> Any:
    p = framework.parameter(framework.make([60000.0, 60000.0], "float16"))
    api.clip_grads_with_norm_([p], 1.0, api.get_total_norm([p.grad]))
    return p.grad


@of(WITH_NORM, "total_norm of float16")
def _(api: Any) -> Any:
    p = framework.parameter(framework.make([3.0, 4.0], "float16"))
    api.clip_grads_with_norm_([p], 1.0, torch.tensor(8.0, dtype=torch.float16))
    return p.grad


@of(WITH_NORM, "larger total_norm")
def _(api: Any) -> Any:
    p = parameter()
    return api.clip_grads_with_norm_([p], 5.0, torch.tensor(50.0)), p.grad


@of(WITH_NORM, "total_norm a Python float")
def _(api: Any) -> Any:
    p = parameter()
    api.clip_grads_with_norm_([p], 1.0, 5.0)
    return p.grad


@of(VALUE, "[3, -4, nan, inf, -.5], 1")
def _(api: Any) -> Any:
    p = parameter([3.0, -4.0, float("nan"), float("inf"), -0.5])
    return api.clip_grad_value_([p], 1.0), p.grad


@of(VALUE, "-1", value=-1.0, foreach=None)
@of(VALUE, "nan", value=float("nan"), foreach=None)
@of(VALUE, "-1, foreach=False", value=-1.0, foreach=False)
@of(VALUE, "nan, foreach=False", value=float("nan"), foreach=False)
def _(api: Any, value: float, foreach: bool | None) -> Any:
    p = parameter([3.0, -4.0, 0.5])
    api.clip_grad_value_([p], value, foreach=foreach)
    return p.grad


@of(VALUE, "1.5 and an integer gradient", foreach=None)
@of(VALUE, "1.5 and an integer gradient, foreach=False", foreach=False)
def _(api: Any, foreach: bool | None) -> Any:
    p = torch.zeros(2, dtype=torch.int64)
    p.grad = torch.tensor([3, -4])
    return api.clip_grad_value_([p], 1.5, foreach=foreach)


@of(VALUE, "of nothing")
def _(api: Any) -> Any:
    return api.clip_grad_value_([], 1.0)


@of(VALUE, "of parameters without gradients")
def _(api: Any) -> Any:
    return api.clip_grad_value_([framework.parameter(None)], 1.0)


@of(NORM, "sparse, uncoalesced", coalesced=False, foreach=None)
@of(NORM, "sparse, coalesced", coalesced=True, foreach=None)
@of(NORM, "sparse, uncoalesced, foreach=True", coalesced=False, foreach=True)
@of(NORM, "sparse, coalesced, foreach=True", coalesced=True, foreach=True)
@of(NORM, "sparse, uncoalesced, foreach=False", coalesced=False, foreach=False)
@of(NORM, "sparse, coalesced, foreach=False", coalesced=True, foreach=False)
def _(api: Any, coalesced: bool, foreach: bool | None) -> Any:
    p = torch.zeros(4, 2)
    p.grad = framework.sparse([0, 2, 2], [[3.0, 0.0], [2.0, 0.0], [2.0, 0.0]], 4)
    p.grad = p.grad.coalesce() if coalesced else p.grad
    return api.clip_grad_norm_([p], 1.0, foreach=foreach)


@of(NORM, "nn.Embedding(sparse=True)")
def _(api: Any) -> Any:
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    return api.clip_grad_norm_(embedding.parameters(), 1.0)


@of(NORM, "a gradient with a history (create_graph=True)")
def _(api: Any) -> Any:
    p = torch.nn.Parameter(torch.tensor([1.5, 2.0]))
    (p * p).sum().backward(create_graph=True)
    norm = api.clip_grad_norm_([p], 1.0)
    return norm, norm.requires_grad, p.grad, p.grad.requires_grad


@of(NORM, "the same parameter twice")
def _(api: Any) -> Any:
    p = parameter()
    return api.clip_grad_norm_([p, p], 1.0), p.grad


@of(NORM, "two parameters that share a gradient")
def _(api: Any) -> Any:
    p, q = parameter(), parameter()
    q.grad = p.grad
    return api.clip_grad_norm_([p, q], 1.0), p.grad


@of(NORM, "meta device")
def _(api: Any) -> Any:
    p = torch.nn.Parameter(torch.zeros(2, device="meta"))
    p.grad = torch.zeros(2, device="meta")
    norm = api.clip_grad_norm_([p], 1.0)
    return str(norm.device), str(norm.dtype), tuple(norm.shape)


@of(NORM, "max_norm a tensor of two elements")
def _(api: Any) -> Any:
    return api.clip_grad_norm_([parameter()], torch.tensor([1.0, 2.0]))


@of(NORM, "max_norm a tensor that requires a gradient")
def _(api: Any) -> Any:
    p = parameter()
    return api.clip_grad_norm_([p], torch.tensor(1.0, requires_grad=True)), p.grad, p.grad.requires_grad


@of(NORM, "torch.compile")
def _(api: Any) -> Any:
    p = parameter()

    def step() -> Any:
        return api.clip_grad_norm_([p], 1.0)

    return torch.compile(step, backend="eager")(), p.grad


@of(NORM, "inference_mode")
def _(api: Any) -> Any:
    p = parameter()
    with torch.inference_mode():
        norm = api.clip_grad_norm_([p], 1.0)
    return norm.item(), p.grad


@of(NORM, "float8_e4m3fn")
def _(api: Any) -> Any:
    p = torch.zeros(2, dtype=torch.float8_e4m3fn)
    p.grad = torch.tensor([3.0, 4.0]).to(torch.float8_e4m3fn)
    return api.clip_grad_norm_([p], 1.0)
