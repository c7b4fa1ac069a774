"""Kafka's Java tools for the tests, in one JVM for all of pytest's workers (java/ToolServer.java).

The worker that needs a tool first starts the JVM; the others find its port in a file of the run. It
ends when the last worker has gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.conformance.kafka_jars import classpath, java_program

SOURCE = Path(__file__).parent / "java" / "ToolServer.java"
FLAGS = ["-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]


class Ended(NamedTuple):
    """A tool's exit code and output."""

    status: int
    output: bytes
    errors: bytes


class _Connections:
    """Connections to the server that no tool uses now."""

    def __init__(self) -> None:
        self.free: list[socket.socket] = []


_connections = _Connections()


def run_in_server(main: str, args: Sequence[str], data: bytes, timeout_s: float) -> Ended:
    """Run a main class to its end. Raises subprocess.TimeoutExpired, or OSError if the JVM ends."""
    connection = _connections.free.pop() if _connections.free else _connect()
    connection.settimeout(timeout_s)
    words = [word.encode() for word in (main, *args)]
    request = [struct.pack(">i", len(words)), *map(_counted, words), _counted(data)]
    try:
        connection.sendall(b"".join(request))
        with connection.makefile("rb") as answer:
            [status] = struct.unpack(">i", _read(answer, 4))
            ended = Ended(status, _block(answer), _block(answer))
    except TimeoutError:
        connection.close()
        raise subprocess.TimeoutExpired([main, *args], timeout_s) from None
    _connections.free.append(connection)
    return ended


def _counted(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _block(answer: IO[bytes]) -> bytes:
    [size] = struct.unpack(">i", _read(answer, 4))
    return _read(answer, size)


def _read(answer: IO[bytes], size: int) -> bytes:
    found = answer.read(size)
    if len(found) < size:
        raise ConnectionError("the JVM of Kafka's tools has ended: a tool called System.exit")
    return found


def _connect() -> socket.socket:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")
    port_file = Path(tempfile.gettempdir(), f"kstore-tools-{run}")
    with open(port_file, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        with contextlib.suppress(ValueError, OSError):  # it was not started, or it has ended
            return socket.create_connection(("127.0.0.1", int(file.read())))
        port = _start(port_file)
        file.truncate(0)
        file.write(str(port))
        file.flush()
        return socket.create_connection(("127.0.0.1", port))


def _start(port_file: Path) -> int:
    started = subprocess.Popen(
        [java_program(), *FLAGS, "-cp", classpath(), str(SOURCE), str(port_file)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    said = started.stdout.readline()
    if not said.strip():
        raise ConnectionError(f"{SOURCE.name} has not started: exit code {started.wait()}")
    return int(said)
