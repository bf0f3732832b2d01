"""What a monitor adds to a clip of many small gradients: ``python -m benchmarks.monitor [--gradients 2000] [--seconds 5]``.

In turn, a hundred clips and a hundred clips of which a monitor is told; shown is the median of the differences over the median
of the clips. It ends with 1 above two per cent. With --launches it counts instead what a monitor runs in a step of PyTorch, on
CUDA where there is a device, and ends with 1 above one operation.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import gradclip
from gradclip.dialects import torch as dialect

BOUND = 0.02
FRAMEWORKS = ("numpy", "torch", "paddle", "tensorflow", "jax")
IN_PLACE = ("numpy", "torch", "paddle")


def tensors(framework: str, count: int) -> list[Any]:
    """Small gradients of a framework."""
    module = importlib.import_module({"jax": "jax.numpy"}.get(framework, framework))
    return [module.ones((64,), dtype="float32" if framework != "torch" else module.float32) for _ in range(count)]


def timed(call: Callable[[], Any]) -> float:
    """The seconds that a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def cost(framework: str, count: int, seconds: float) -> tuple[float, float]:
    """The seconds of a clip, and those that a monitor adds to it, its transfers included."""
    grads, rule = tensors(framework, count), dialect.clip_grad_norm(1e9)  # nothing is scaled, so nothing has to be restored
    monitor, clip_by = gradclip.Monitor(), gradclip.clip_ if framework in IN_PLACE else gradclip.clip
    clips: list[float] = []
    added: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(clips) < 5:
        # a hundred steps of each: every hundredth brings the norms to the host
        clip = timed(lambda: [clip_by(grads, rule) for _ in range(100)])
        told = timed(lambda: [monitor.update(clip_by(grads, rule)) for _ in range(100)])
        clips.append(clip / 100)
        added.append((told - clip) / 100)
    return statistics.median(clips), statistics.median(added)


def operations(count: int, steps: int = 1000) -> float:
    """How many operations a monitor runs in a step, in the mean, its transfers included; views are none."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    ran: list[str] = []

    class Counted(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran.append(str(func))
            return func(*args, **(kwargs or {}))

    device = "cuda" if torch.cuda.is_available() else "cpu"
    grads, rule, monitor = (
        [torch.ones(64, device=device) for _ in range(count)],
        dialect.clip_grad_norm(1e9),
        gradclip.Monitor(),
    )
    for _ in range(steps):
        result = gradclip.clip_(grads, rule)
        with Counted():
            monitor.update(result)
    return sum(name != "aten.detach.default" for name in ran) / steps


def main() -> int:
    """Print a line for each framework that is installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gradients", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--launches", action="store_true", help="count operations instead")
    options = parser.parse_args()
    if options.launches:
        many = operations(options.gradients)
        print(f"torch    {many:.3f} operations a step")
        return int(many > 1)
    worst = 0.0
    for framework in FRAMEWORKS:
        if importlib.util.find_spec(framework) is None:
            continue
        clip, added = cost(framework, options.gradients, options.seconds)
        worst = max(worst, added / clip)
        print(f"{framework:<8} clip {1e6 * clip:8.1f} us, monitor {1e6 * added:6.2f} us more: {added / clip:6.2%}")
    return int(worst > BOUND)


if __name__ == "__main__":
    sys.exit(main())
