"""The backends, one for each framework. Installed as ``gradclip.backends``.

``gradclip.backends.jax`` imports itself, because ``gradclip explain`` prints lines with that name.
"""

from importlib import import_module, util


def _look_up(name: str) -> object:
    if not name.startswith("_") and util.find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


globals()["__getattr__"] = _look_up  # not by def: a type checker would then accept every name
