"""Behaviours of the natives beyond the recorded cases: each is a function, run with the native's names and with gradclip's.

A behaviour takes a namespace of functions and returns its observations: tensors, numbers, texts, and lists, tuples and
dicts of them. A raised exception is an observation too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from frameworks.base import Framework
from natives.compare import Outcome, differences, tensor_differences
from natives.replay import WITH_CASES, judge
from vectors.cases import BY_NAME
from vectors.departed import CASES

Seen = Callable[[SimpleNamespace], Any]


@dataclass(frozen=True)
class Behaviour:
    native: str  #: the name in the table of departures
    name: str
    see: Seen

    def __str__(self) -> str:
        return f"{self.native}: {self.name}"


class Behaviours(list[Behaviour]):
    """The behaviours of one framework, in the order of their recording."""

    def of(self, native: str, name: str, **fixed: Any) -> Callable[[Seen], Seen]:
        """Register a behaviour; ``fixed`` are arguments, so that one function can serve for several."""

        def add(see: Seen) -> Seen:
            self.append(Behaviour(native, name, lambda api: see(api, **fixed)))
            return see

        return add


def replay(framework: Framework, behaviour: Behaviour, theirs: SimpleNamespace, ours: SimpleNamespace) -> None:
    """Both sides agree, or differ where a departure is listed."""
    sides = []
    for api in (theirs, ours):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                sides.append(Outcome(returned=behaviour.see(api)))
            except Exception as error:  # the comparison covers the exception's type
                sides.append(Outcome(error=error))
    native, own = sides
    if native.error is not None or own.error is not None:
        found = differences(framework, native, own, 0)
    else:
        found = list(_unlike(framework, native.returned, own.returned))
    judge(behaviour.native, behaviour.name, found)


def _unlike(framework: Framework, a: Any, b: Any) -> Iterator[str]:
    if isinstance(a, (list, tuple, dict)):
        if type(a) is not type(b) or len(a) != len(b) or (isinstance(a, dict) and a.keys() != b.keys()):
            yield f"{a} and {b}"
            return
        items = a.keys() if isinstance(a, dict) else range(len(a))
        for item in items:
            yield from _unlike(framework, a[item], b[item])
    elif hasattr(a, "dtype") and hasattr(a, "shape") and hasattr(b, "dtype"):
        yield from tensor_differences(framework, a, b, 4)
    elif a != b:
        yield f"{a} and {b}"


def warned(call: Callable[[], Any]) -> tuple[Any, bool]:
    """Return what a call returned, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        returned = call()
    return returned, any(issubclass(warning.category, UserWarning) for warning in caught)


def never_replayed(prefix: str, behaviours: Behaviours) -> list[tuple[str, str]]:
    """Return the cases that are listed for a framework's natives but that no test replays: their names are misspelt."""
    replayed = {(behaviour.native, behaviour.name) for behaviour in behaviours}
    listed = [(native, case) for of_natives in CASES.values() for native, cases in of_natives.items() for case in cases]
    return [
        (native, case)
        for native, case in listed
        if native.startswith(prefix) and (native, case) not in replayed and not (native in WITH_CASES and case in BY_NAME)
    ]
