"""Options of XLA that halve the time of compilation, for tests that do not measure how accurate compiled programs are."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

#: what LLVM makes faster is the arithmetic on one device, which other tests compare; the emitters of a fusion before those on
#: MLIR, which prepare for 20 ms; and the parts that a program is cut into, for threads
OPTIONS = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
_START = "from jaxlib import xla_client; xla_client.make_cpu_client()"


@functools.cache
def fast() -> str:
    """Return the options that the installed jaxlib knows: releases come and go with options, and abort at an unknown one."""
    return " ".join(filter(knows, OPTIONS))


def knows(option: str) -> bool:
    """Return whether a process that sets the option can start."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": option}
    started = subprocess.run([sys.executable, "-P", "-c", _START], env=env, capture_output=True, text=True, timeout=300)
    is_unknown = "Unknown flag" in started.stderr
    assert is_unknown == (started.returncode != 0), started.stderr
    return not is_unknown


def of_devices(count: int) -> str:
    """Return the options for a process with so many devices."""
    return f"--xla_force_host_platform_device_count={count} {fast()}"
