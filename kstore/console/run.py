"""The console as a process: listens on an address, or on a socket file for its broker.

A broker starts `python -m kstore.console.run`. It reads its settings as one line of JSON from
standard input, so that no secret is in its arguments, and stops when standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from kstore.config.properties import parse_properties
from kstore.console.app import console_app
from kstore.console.cluster.settings import ConsoleSettings

__all__ = ["child", "serve"]

GRACE_S = 2


async def serve(
    settings: ConsoleSettings, bound: socket.socket, on_ready: Callable[[], None] | None = None,
    *, until: asyncio.Event | None = None,
) -> None:  # fmt: skip
    """Serve on a bound socket until SIGINT, SIGTERM or the event."""
    config = uvicorn.Config(
        console_app(settings), log_level="warning", access_log=False, server_header=False,
        lifespan="on", timeout_graceful_shutdown=GRACE_S, ws="none", proxy_headers=True,
        forwarded_allow_ips="*" if bound.family == socket.AF_UNIX else "127.0.0.1,::1",
    )  # fmt: skip
    server = uvicorn.Server(config)
    watching = asyncio.create_task(_watch(server, on_ready, until))
    try:
        await server.serve([bound])
    finally:
        watching.cancel()


async def _watch(
    server: uvicorn.Server, on_ready: Callable[[], None] | None, until: asyncio.Event | None
) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    if on_ready is not None:
        on_ready()
    if until is not None:
        await until.wait()
        server.should_exit = True


def child() -> None:
    """The entry point for brokers: reads settings, prints "ready"."""
    given: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s console: %(message)s")
    client = dict(given["client"])
    if given["client_config"]:
        path = Path(given["client_config"])
        rows = parse_properties(path.read_text(encoding="utf-8"), str(path))
        client |= {row.key: row.value for row in rows}
    settings = ConsoleSettings(
        client, given["read_only"], given["registry"], given["token"], tuple(given["mechanisms"]),
        given["proxy_key"],
    )  # fmt: skip
    bound = socket.socket(fileno=given["socket"])
    asyncio.run(_child(settings, bound))


async def _child(settings: ConsoleSettings, bound: socket.socket) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), _at_end, loop, ended)
    await serve(settings, bound, lambda: print("ready", flush=True), until=ended)


def _at_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        ended.set()


if __name__ == "__main__":
    child()
