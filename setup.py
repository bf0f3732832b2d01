"""The compiled loops. All else stands in pyproject.toml, whose table for extensions setuptools still calls an experiment."""

import os
import sysconfig

from setuptools import Extension, setup

IS_WINDOWS = sysconfig.get_platform().startswith("win")
# a Python without a global lock has no stable interface, and would take one for an extension that does not say otherwise
IS_STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
# a wheel for where none with loops fits; without it the install would look for a compiler there
IS_PURE = bool(os.environ.get("GRADCLIP_PURE"))

setup(
    ext_modules=[
        Extension(
            "gradclip.backends.host._kernels",
            ["backends/host/_kernels.c"],
            depends=["backends/host/_loops.h"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            # without the second the choices in the loops are branches; the third, so that two builds are the same to the bit
            extra_compile_args=[] if IS_WINDOWS else ["-O3", "-fno-trapping-math", "-g0", "-pthread"],
            extra_link_args=[] if IS_WINDOWS else ["-pthread"],
            optional=True,  # where it cannot be built gradclip has other ways
            py_limited_api=True,
        )
    ]
    if IS_STABLE and not IS_PURE
    else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_STABLE and not IS_PURE else {},
)
