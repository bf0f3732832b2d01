"""A monitor's cost beside a clip of many small gradients: ``python -m benchmarks.monitor [--gradients 2000] [--seconds 5]``.

Each clip and the ``update`` after it are timed separately, in turn, so that other work on the machine slows both. A block is a
hundred steps; the last one copies the norms to the host. It prints the medians of the blocks, and exits with 1 above two per
cent. With --launches it counts instead the operations that a monitor runs in a step of PyTorch, on CUDA if there is a device,
and exits with 1 above one operation.
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


def wait_for(grads: list[Any]) -> None:
    """Wait for the values of these gradients: JAX returns a result before it is computed."""
    for x in grads:
        if hasattr(x, "block_until_ready"):
            x.block_until_ready()


def block(grads: list[Any], clip_by: Callable[..., Any], monitor: gradclip.Monitor, steps: int = 100) -> tuple[float, float]:
    """The seconds of a clip and of an ``update``, each the mean of ``steps`` steps."""
    rule = dialect.clip_grad_norm(1e9)  # nothing is scaled, so nothing has to be restored
    clips = updates = 0.0
    for _ in range(steps):
        begun = time.perf_counter()
        result = clip_by(grads, rule)
        wait_for(result.grads)
        clipped = time.perf_counter()
        monitor.update(result)
        updates += time.perf_counter() - clipped
        clips += clipped - begun
    return clips / steps, updates / steps


def cost(framework: str, count: int, seconds: float) -> tuple[float, float]:
    """The seconds of a clip, and those of the ``update`` after it, transfers included."""
    grads, monitor = tensors(framework, count), gradclip.Monitor()
    clip_by = gradclip.clip_ if framework in IN_PLACE else gradclip.clip
    blocks: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(blocks) < 5:
        blocks.append(block(grads, clip_by, monitor))
    clips, updates = zip(*blocks, strict=True)
    return statistics.median(clips), statistics.median(updates)


def operations(count: int, steps: int = 1000) -> float:
    """The mean number of operations that a monitor runs in a step, transfers included, without views."""
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
        print(f"{framework:<8} clip {1e6 * clip:8.1f} us, monitor {1e6 * added:6.2f} us: {added / clip:6.2%}")
    return int(worst > BOUND)


if __name__ == "__main__":
    sys.exit(main())
