"""Names the test in which the tests' process ends without a word, as a signal or ``os._exit`` ends it.

A second process hears of each test that begins, and of the end of all. It also writes the line beside the junit file, for CI.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LISTEN = """
import sys
name, file = sys.argv[1:]
last = ""
for line in sys.stdin:
    last = line.strip()
if last:
    said = f"{name}: the tests' process ended in {last}"
    print(said, file=sys.stderr, flush=True)
    if file:
        with open(file, "w", encoding="utf-8") as out:
            print(said, file=out)
"""


class Running:
    def __init__(self, name: str, junit: str | None) -> None:
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _LISTEN, name, f"{junit}.ended" if junit else ""]
        # in a session of its own: Ctrl-C ends the tests, which then say so themselves
        self._listener = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self._listener.stdin
        self._pipe = self._listener.stdin.fileno()
        os.register_at_fork(after_in_child=self._forget)  # a copy of this process lives on after its crash
        self._say("the collection")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self._say("")
        self._listener.communicate()
        self._pipe = -1

    def _say(self, text: str) -> None:
        os.write(self._pipe, f"{' '.join(text.split())}\n".encode(errors="replace"))

    def _forget(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
