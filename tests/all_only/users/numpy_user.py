"""What a user of NumPy writes."""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import gradclip
from gradclip import dialects

Weights = npt.NDArray[np.float64]

grads: list[Weights] = [np.array([3.0, 4.0]), np.array([0.6, 0.8])]
rule = dialects.torch.clip_grad_norm(max_norm=1.0)
result = gradclip.clip(grads, rule)
assert_type(result, gradclip.ClipResult[list[Weights], np.floating[Any]])
assert_type(result.grads, list[Weights])
assert_type(gradclip.clip_({"w": grads[0]}, rule).grads, dict[str, Weights])
assert_type(gradclip.clip(grads[0], rule).grads, Weights)
assert_type(gradclip.clip({"w": grads[0]}.items(), rule).grads, dict[str, Weights])
assert_type(gradclip.clip(iter(grads), rule).grads, list[Weights])
assert_type(gradclip.scale_by_norm(grads, rule, gradclip.norm(grads, rule)).grads, list[Weights])
assert_type(gradclip.scale_by_norm_((grads[0],), rule, 2.0).grads, tuple[Weights])
print(float(result.norm), float(result.coefficient), result.skip, result.zeroed, result.culprits, result.is_list)

assert_type(gradclip.clip_grad_norm_(grads, 1.0), Weights)
assert_type(gradclip.clip_grad_norm_(grads[0], np.float32(1.0), norm_type=1), Weights)
assert_type(gradclip.get_total_norm({"w": grads[0]}), Weights)
gradclip.clip_grad_value_(grads, 0.5)
gradclip.clip_grads_with_norm_(grads, 1.0, gradclip.get_total_norm(grads))
assert_type(gradclip.clip_by_norm(grads[0], 1.0, axes=0), Weights)
assert_type(gradclip.clip_by_value(grads[0], [-1.0, -2.0], 1), Weights)
clipped, norm = gradclip.clip_by_global_norm(grads, 5.0)
assert_type(clipped, list[Weights])
assert_type(norm, Weights)
with_none, _ = gradclip.clip_by_global_norm([grads[0], None], 5.0)
assert_type(with_none, list[Weights | None])
assert_type(gradclip.clip_by_global_norm({"w": grads[0]}, 5.0)[0], dict[str, Weights])
assert_type(gradclip.global_norm(grads), Weights)
pairs: list[tuple[str, Weights]] = [("w", grads[0])]
assert_type(gradclip.ClipGradByGlobalNorm(1.0)(pairs), list[tuple[str, Weights]])

monitor = gradclip.Monitor(every=10, each=5)
assert_type(monitor.update(gradclip.clip(grads, rule)), gradclip.ClipResult[list[Weights], np.floating[Any]])
report: dict[str, Any] = monitor.report()
adaptive = gradclip.Adaptive(gradclip.limits.autoclip())
step = gradclip.Step(dialects.keras.clipnorm(adaptive), monitor)
state = step.init(grads)
assert_type(step.update(grads, state)[0].grads, list[Weights])
groups = [gradclip.Group(rule, "encoder.*"), gradclip.Group(dialects.optax.clip(0.5), ["head", "bias"])]
gradclip.clip({"encoder.w": grads[0], "head": grads[1]}, groups)
gradclip.norms_by_name(grads)


def bare(grads: list[np.ndarray]) -> list[np.ndarray]:
    return gradclip.clip(grads, rule).grads


def total(grads: list[np.ndarray]) -> np.floating[Any]:
    return gradclip.clip(grads, rule).norm
