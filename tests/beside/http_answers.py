"""An HTTP server in a thread that a test controls: it stands in for the HTTP servers of brokers and
clients.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple, Self


class HttpRequest(NamedTuple):
    """A request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """A response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class HttpAnswers:
    """Serves until the end of its `with`; a subclass gives the responses."""

    def __init__(self, path: str = "") -> None:
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                reply = answers.answer(HttpRequest(self.command, self.path, headers, body))
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = _reply  # noqa: N815 (as http.server calls them)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}{path}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))

    def answer(self, asked: HttpRequest) -> Reply:
        """The response; called in the connection's thread."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()
