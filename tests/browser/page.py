"""A page in headless Chromium, driven by the DevTools protocol over two pipes: no port, no other library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from conformance.chromium import installed

_FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
_PIPES = """
import os, sys
ends = [os.dup(int(fd)) for fd in sys.argv[1:3]]
for fd, end in zip((3, 4), ends):
    os.dup2(end, fd)
    os.set_inheritable(fd, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
SECONDS = 120.0  #: the time limit for a page


class Page:
    """One page. As a context manager it ends Chromium."""

    def __init__(self, folder: Path, *flags: str) -> None:
        (there_read, self._to), (self._from, there_write) = os.pipe(), os.pipe()
        command = [installed(), *_FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, "about:blank"]
        launch = [sys.executable, "-c", _PIPES, str(there_read), str(there_write), *command]
        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(launch, pass_fds=(there_read, there_write), stdout=log, stderr=log)
        os.close(there_read)
        os.close(there_write)
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        page = next(one for one in self("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def __call__(self, method: str, **parameters: Any) -> Any:
        """Send a command of the protocol and return its result; keep the events that come first."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters} | session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self.events.append(said)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 20)
            assert read, "Chromium ended"
            self._rest += read
        said, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(said)
        return found

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until a JavaScript expression is true, and return its value."""
        end = time.monotonic() + SECONDS
        while not (found := self.value(expression)):
            assert time.monotonic() < end, f"{expression} is not true; the page says: {self.value('document.body.innerText')}"
            time.sleep(0.05)
        return found

    def open(self, address: str) -> None:
        """Go to an address."""
        self("Page.navigate", url=address)
        self.wait(f"location.href.startsWith({json.dumps(address.partition('?')[0])}) && document.readyState === 'complete'")
