"""A local server for the built site that can fail or wait."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SITE = Path(__file__).parents[2] / ".tox" / "site" / "html"


class Server(ThreadingHTTPServer):
    """Serves the site; ``address`` ends in a slash."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(SITE)))
        self.address = f"http://127.0.0.1:{self.server_port}/"
        self.missing = ""  #: the path that is answered with 404
        self.may_go_on = threading.Event()  #: gradclip's wheel is sent after this event
        self.may_go_on.set()


class _Handler(SimpleHTTPRequestHandler):
    server: Server

    def send_head(self) -> Any:
        """Answer GET and HEAD."""
        if self.server.missing and self.path.endswith(self.server.missing):
            self.send_error(404)
            return None
        if self.path.endswith("gradclip.whl"):
            self.server.may_go_on.wait()
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a test with a missing file must not find it in the cache
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing: the tests ask the page."""


@contextmanager
def served() -> Iterator[Server]:
    """Serve the site while the block runs."""
    assert (SITE / "play.html").is_file(), "the site is not built: mkdocs build --strict"
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
