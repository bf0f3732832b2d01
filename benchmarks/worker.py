"""One framework, in its own process: ``python -m benchmarks.worker OPTIONS``. It sends its measurements to the parent."""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from benchmarks import accuracy, machine
from benchmarks.bench import Bench
from benchmarks.case import Key, matches
from benchmarks.machine import Rates
from benchmarks.sets import chosen
from benchmarks.subjects.base import NoDeviceError, Subject
from benchmarks.timing import Budget
from gradclip.conformance import children

__all__ = ["Options", "selected"]

Send = Callable[[children.Message], None]

PROBED, PROBED_QUICKLY = 64 * 2**20, 16 * 2**20  #: elements


@dataclass(frozen=True)
class Options:
    """What to measure."""

    framework: str = ""
    device: str = "cpu"
    only: Sequence[str] = ()  #: patterns of cases; all if there are none
    quick: bool = False
    seconds: float = 1.0  #: for each case
    rounds: int = 400  #: at most
    accuracy: bool = False  #: of norms, instead of cases
    after: str = ""  #: the case at which the last process died
    patience: float = 900.0  #: seconds for a case, after which it is given up, and the process with it

    def text(self) -> str:
        """For the command line of the worker."""
        return json.dumps(asdict(self))


def main(options: Options, send: Send) -> None:
    """Measure, and send: the framework, the machine, and each case before and after."""
    try:
        subject: Subject = importlib.import_module(f"benchmarks.subjects.{options.framework}").subject(options.device)
    except NoDeviceError as error:
        send({"skipped": str(error)})
        return
    if options.accuracy:
        send({"versions": subject.versions(), "notes": subject.notes})
        exact: accuracy.Exact = {}
        for mode in subject.modes:
            for entry in accuracy.worst(subject, mode, options.quick, exact, lambda step: send({"step": step})):
                send({"accuracy": entry})
        return
    keys = selected(subject, options)
    send({"framework": options.framework, "versions": subject.versions(), "notes": subject.notes, "cases": len(keys)})
    if keys:
        _cases(subject, keys, options, send)


def selected(subject: Subject, options: Options) -> list[Key]:
    """The selected cases after ``options.after``."""
    keys = [key for key in subject.keys(chosen(options.quick), options.quick) if matches(key, options.only)]
    names = list(map(str, keys))
    return keys[names.index(options.after) + 1 :] if options.after else keys


def _cases(subject: Subject, keys: list[Key], options: Options, send: Send) -> None:
    elements, seconds = (PROBED_QUICKLY, 0.1) if options.quick else (PROBED, 0.3)
    threads = subject.threads if options.device == "cpu" else 0

    def measure() -> Rates | None:
        return machine.measure(subject.probes(elements), threads, elements, seconds)

    rates = measure()
    send({"threads": subject.threads, "rates": None if rates is None else asdict(rates)})
    bench = Bench(subject, measure, Budget(options.seconds, most=options.rounds), options.quick)
    for (gradients, dtype), group in itertools.groupby(keys, lambda key: (key.gradients, key.dtype)):
        send({"step": f"making {gradients} in {dtype}"})
        bench.load(gradients, dtype)
        for key in group:
            send({"start": str(key)})
            # a native may not end with an exception: then the process ends, and the parent starts another
            faulthandler.dump_traceback_later(options.patience, exit=True)
            send({"case": bench.run(key)})
            faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    with children.channel() as send_to_parent:
        main(Options(**json.loads(sys.argv[1])), send_to_parent)
