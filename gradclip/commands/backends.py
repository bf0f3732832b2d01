"""``gradclip backends``: the backends, and what each supports, tested by trying it.

As ``python -m gradclip.commands.backends MODULE`` it is the process that imports one framework and asks its backend.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib import util
from typing import Any

import gradclip
from gradclip.commands.common import print_json
from gradclip.conformance import children
from gradclip.core import registry
from gradclip.core.backend import Backend, Tensor, number
from gradclip.core.dtypes import COMPLEX, FLOATS, WIDE
from gradclip.core.errors import VersionError
from gradclip.core.versions import FRAMEWORKS, standing
from gradclip.dialects import torch as dialect

__all__ = ["DESCRIPTION", "EPILOG", "add_options", "describe", "main", "survey"]

DESCRIPTION = """\
List the backends and what each supports. Each framework is tried in its own
process.
"""
EPILOG = "exit status: 0; 1 if an installed framework does not work; 2 for wrong usage"

Entry = dict[str, Any]

_BUILT_IN = "gradclip.backends."
_TRAINERS = "gradclip.backends.demo."
_LABEL = 12
_SLOTS = ("optax", "keras")  # libraries with a slot for a clip and no tensors of their own
_SAID = {
    "tested": "the tests ran on this one",
    "newer": "newer than {last}, the last that the tests ran on",
    "between": "supported, though the tests ran on other versions",
    "below": "below {minimum}, the oldest that gradclip works with",
    "unknown": "not known to the tests",
}


# ---- in the command's own process ------------------------------------------------------------------------------------


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def main(options: argparse.Namespace) -> int:
    """Run the command."""

    def report(name: str) -> None:
        sys.stderr.write(f"asking {name} ...\n")  # in one write: two threads report

    entries, slots, has_loops = survey(report), _slots(), _has_compiled_loops()
    if options.json:
        print_json({"backends": entries, "slots": slots, "compiled_loops": has_loops})
    else:
        blocks = (_text(entries), _slots_text(slots), _loops_text(has_loops))
        print(*filter(None, blocks), sep="\n\n")
    return int(any(entry["error"] for entry in entries))


def survey(report: Callable[[str], None]) -> list[Entry]:
    """One entry for each backend, from :func:`describe`, with its origin and whether its framework is installed.

    Args:
        report: called with each framework before its process starts.
    """
    here = registry.installed()
    entries: list[Entry] = []
    for module, source in registry._sources().items():
        twin = next((entry for entry in entries if entry["source"] == _source(source)), None)
        if twin is not None:
            twin["modules"].append(module)  # jax and jaxlib
            continue
        known: Entry = {"name": module, "modules": [module], "origin": _origin(source), "source": _source(source)}
        entries.append(known | {"installed": here[module], "error": None})

    def ask(entry: Entry) -> None:
        report(entry["name"])
        if entry["origin"] == "registered":  # a registration in this process is unknown to others
            entry.update(_attempt(entry["name"]))
        else:
            failure = children.run("gradclip.commands.backends", [entry["name"]], entry.update, seconds=300)
            entry["error"] = entry["error"] or failure

    children.two_at_a_time(ask, [entry for entry in entries if entry["installed"]])
    return entries


def _text(entries: list[Entry]) -> str:
    """The entries as text: a block each, at most 80 columns wide."""
    return "\n\n".join("\n".join(_block(entry)) for entry in entries)


def _has_compiled_loops() -> bool:
    """Whether the compiled loops are installed and can be loaded."""
    try:
        importlib.import_module(_BUILT_IN + "host._kernels")
    except ImportError:
        return False
    return True


def _loops_text(are_there: bool) -> str:
    """One line of text about the compiled loops."""
    return "compiled loops: " + ("yes" if are_there else "no: installed without a C compiler, slower on a CPU")


def _slots() -> list[Entry]:
    """The installed libraries with a slot for a clip and no tensors of their own."""
    found = {name: _distribution(name) for name in _SLOTS}
    return [{"name": name, "version": at, "standing": standing(name, at)} for name, at in found.items() if at is not None]


def _slots_text(entries: list[Entry]) -> str:
    """One line of text for each library with a slot."""
    return "\n".join(f"slot of {entry['name']} {entry['version']}: {_said(entry)}" for entry in entries)


def _said(entry: Entry) -> str:
    known = FRAMEWORKS.get(entry["name"])
    return _SAID[entry["standing"]].format(minimum=known and known.minimum, last=known and known.tested[-1])


def _distribution(name: str) -> str | None:
    from importlib import metadata  # it takes long to import

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _framework_of(entry: Entry) -> str:
    """``"torch 2.13.0"``, and a note if the version is a problem."""
    if not entry["installed"]:
        return f"{entry['name']}: not installed"
    if entry["error"]:
        at = f" {entry['version']}" if "version" in entry else ""
        return f"{entry['name']}{at}: installed, but does not work"
    return f"{entry['name']} {entry['version']}"


def _block(entry: Entry) -> Iterator[str]:
    yield f"{_framework_of(entry)}  ({entry['origin']}: {entry['source']})"
    if entry["error"]:
        yield from _lines("reason", entry["error"].split(" "))
    elif entry["installed"]:
        if entry["name"] in FRAMEWORKS:
            yield from _lines("version", _said(entry).split(" "))
        yield from _lines("devices", entry["devices"] or ["not known"], ", ")
        yield from _trials("dtypes", entry["dtypes"], " ")
        yield from _lines("in place", ["yes" if entry["in_place"] else "no"])
        yield from _lines("sparse", ["yes" if entry["sparse"] else "no"])
        yield from _trials("traced", entry["traced"], ", ")


def _trials(label: str, tried: dict[str, str | None] | None, separator: str) -> Iterator[str]:
    """The trials that worked, then those that did not, and why."""
    if tried is None:
        yield from _lines(label, ["not tried: no tensor to try it with"])
        return
    yield from _lines(label, [name for name, why in tried.items() if why is None] or ["no"], separator)
    for name, why in tried.items():
        if why is not None:
            yield from _lines("", f"not {name}: {why}".split(" "))


def _lines(label: str, words: list[str], separator: str = " ") -> Iterator[str]:
    """Words after a label, wrapped at 80 columns."""
    line = ""
    for i, word in enumerate(words):
        word += separator if i + 1 < len(words) else ""
        if line and len(line) + len(word.rstrip()) > 80 - 2 - _LABEL:
            yield f"  {label:<{_LABEL}}{line.rstrip()}"
            label, line = "", ""
        line += word
    if line:
        yield f"  {label:<{_LABEL}}{line.rstrip()}"


def _origin(source: object) -> str:
    if not isinstance(source, str):
        return "registered"
    return "built in" if source.startswith(_BUILT_IN) else "entry point"


def _source(source: object) -> str:
    if isinstance(source, str):
        return source
    return f"{getattr(source, '__module__', '')}:{getattr(source, '__qualname__', repr(source))}"


def _attempt(module: str) -> Entry:
    try:
        return describe(module)
    except Exception as error:  # a third party's backend may fail in any way: continue with the next
        return {"error": f"{type(error).__name__}: {error}"}


# ---- in the framework's own process ---------------------------------------------------------------------------------


def describe(module: str) -> Entry:
    """The abilities of the backend of a top-level module; imports the framework.

    It tries the dtypes and the ways to trace: each clips [3, 4] to norm 1. The backend itself tells whether it writes in place
    and knows sparse gradients.
    """
    framework = importlib.import_module(module)
    version = str(getattr(framework, "__version__", None) or _version(module))
    known = {"version": version, "standing": standing(module, version)}
    try:
        backend = registry.get(module)
    except VersionError as error:
        return known | {"error": f"VersionError: {' '.join(str(error).split())}"}
    trainer = _trainer(module)
    sample = trainer.vector([3.0, 4.0]) if trainer else _standard(framework, backend)
    dtypes, traces = (*FLOATS, *COMPLEX), trainer.traces() if trainer else {}
    return known | {
        "devices": trainer.devices() if trainer else None,
        "dtypes": None if sample is None else {name: _tried(_clipped, backend, sample, name) for name in dtypes},
        "in_place": type(backend).assign_ is not Backend.assign_,
        "sparse": type(backend).is_sparse is not Backend.is_sparse,
        "traced": {name: _tried(_traced, trainer, traces[name], sample) for name in traces} if trainer else None,
    }


def _trainer(module: str) -> Any:
    """The built-in framework's own way to make a tensor and to trace; None for a third party's."""
    if util.find_spec(_TRAINERS + module) is None:
        return None
    return importlib.import_module(_TRAINERS + module).trainer


def _standard(framework: Any, backend: Backend) -> Tensor | None:
    """A tensor made by the array API standard, if a third party's framework supports it."""
    try:
        sample = framework.asarray([3.0, 4.0])
    except (AttributeError, TypeError, ValueError):
        return None
    return sample if backend.is_tensor(sample) else None


class _Differs(Exception):
    """It ran with a wrong result."""


def _tried(attempt: Callable[..., None], *arguments: Any) -> str | None:
    """None if the attempt succeeded; else the reason."""
    try:
        attempt(*arguments)
    except _Differs as difference:
        return str(difference)
    except Exception as error:  # a framework may raise anything
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def _clipped(backend: Backend, sample: Tensor, dtype: str) -> None:
    gradient = backend.cast(sample, dtype)
    if backend.dtype(gradient) != dtype:
        raise _Differs(f"becomes {backend.dtype(gradient)}")
    clipped = gradclip.clip(gradient, dialect.clip_grad_norm(max_norm=1.0)).grads
    if backend.dtype(clipped) != dtype:
        raise _Differs(f"the result is {backend.dtype(clipped)}")
    size = number(backend, backend.sum(backend.abs(backend.cast(clipped, WIDE[dtype])), None))
    if abs(size - 1.4) > 0.01:
        raise _Differs(f"3/5 + 4/5 came out as {size}")


def _traced(trainer: Any, trace: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor], sample: Tensor) -> None:
    rule = dialect.clip_grad_norm(max_norm=1.0)

    def clipped(gradient: Tensor) -> Tensor:  # no lambda: Paddle reads the source
        return gradclip.clip([gradient], rule).grads[0]

    values = trainer.numbers(trace(clipped, sample))
    if max(abs(values[0] - 0.6), abs(values[1] - 0.8)) > 1e-5:
        raise _Differs(f"[0.6, 0.8] came out as {values}")


def _version(module: str) -> str:
    from importlib import metadata

    names = metadata.packages_distributions().get(module, [])
    return metadata.version(names[0]) if names else "of unknown version"


if __name__ == "__main__":
    with children.channel() as send:
        send(describe(sys.argv[1]))
