"""Options of XLA that halve the time of compilation, for tests that do not measure how accurate compiled programs are."""

from __future__ import annotations

from importlib.metadata import version

from frameworks.base import release

#: the emitters of a fusion before those on MLIR, which prepare for 20 ms; older releases have no such option
OLDER_EMITTERS = "--xla_cpu_use_fusion_emitters=false" if release(version("jaxlib")) >= [0, 10] else ""
#: what LLVM makes faster is the arithmetic on one device, which other tests compare
FAST = f"--xla_backend_optimization_level=0 {OLDER_EMITTERS}"


def of_devices(count: int) -> str:
    """Return the options for a process with so many devices."""
    return f"--xla_force_host_platform_device_count={count} {FAST}"
