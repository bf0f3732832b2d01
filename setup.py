"""The compiled loops. All else is in pyproject.toml; setuptools still calls its table for extensions experimental."""

import os
import sysconfig

from setuptools import Extension, setup

IS_WINDOWS = sysconfig.get_platform().startswith("win")
# free-threaded Python had no stable ABI before 3.15: its loops are compiled for each version
IS_STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
# a wheel for platforms without a wheel with loops; without it, an install there would look for a compiler
IS_PURE = bool(os.environ.get("GRADCLIP_PURE"))

setup(
    ext_modules=[
        Extension(
            "gradclip.backends.host._kernels",
            ["backends/host/_kernels.c"],
            depends=["backends/host/_loops.h"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if IS_STABLE else [],
            # -fno-trapping-math: selects instead of branches in the loops; -g0: two builds are the same to the bit
            extra_compile_args=[] if IS_WINDOWS else ["-O3", "-fno-trapping-math", "-g0", "-pthread"],
            extra_link_args=[] if IS_WINDOWS else ["-pthread"],
            optional=True,  # gradclip works without it, if it cannot be built
            py_limited_api=IS_STABLE,
        )
    ]
    if not IS_PURE
    else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_STABLE and not IS_PURE else {},
)
