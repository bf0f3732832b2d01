"""The backends, one for each framework. Installed as ``gradclip.backends``.

``gradclip.backends.jax`` imports itself, because ``gradclip explain`` prints lines with that name.
"""

from functools import cache
from importlib import import_module, util


@cache
def exported() -> dict[str, str]:
    """Name -> its qualified name, for what the backends export. It reads their sources: an import needs the framework.

    >>> exported()["step_pre_hook"]
    'gradclip.backends.torch.step_pre_hook'
    """
    import ast  # these only here: they take time, and an error needs them
    from pathlib import Path
    from pkgutil import iter_modules

    found = {}
    for module in iter_modules(__path__):
        spec = util.find_spec(f"{__name__}.{module.name}")
        for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body if spec and spec.origin else ():
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                found.update({name: f"{__name__}.{module.name}.{name}" for name in ast.literal_eval(node.value)})
    return found


def _look_up(name: str) -> object:
    if not name.startswith("_") and util.find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


globals()["__getattr__"] = _look_up  # not by def: a type checker would then accept every name
