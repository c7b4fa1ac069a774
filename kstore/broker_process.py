"""A broker as a separate process: starts it, waits until it is ready, and stops it. `make run`,
`kstore cluster`, kstore.testing and kstore's own tests use this module.

It knows nothing about settings and folders, and does not restart a broker that has exited.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple

__all__ = [
    "BrokerEndedError",
    "BrokerLateError",
    "BrokerProcess",
    "BrokerProcessError",
    "Ended",
    "Ready",
    "each_ready",
    "end_of_file",
    "serve_command",
]

STOP_TIMEOUT_S = 30.0
TAIL_BYTES = 4000
FOR_TESTS = frozenset({"KSTORE_CHECK_INVARIANTS", "KSTORE_LONG_HOLDS_FILE"})
"""Settings that all brokers get from the environment, because tests set them there."""


class BrokerProcessError(RuntimeError):
    """A process did not start, or did not become ready; the message says why."""


class BrokerEndedError(BrokerProcessError):
    """The process exited before it was ready."""

    def __init__(self, process: BrokerProcess, exit_code: int) -> None:
        self.process = process
        self.exit_code = exit_code
        super().__init__(
            f"{process.name} exited before it was ready (exit code {exit_code})"
            f"{_and_output(process)}"
        )


class BrokerLateError(BrokerProcessError):
    """Some processes run, but are not ready in time."""

    def __init__(self, processes: Sequence[BrokerProcess]) -> None:
        self.processes = processes
        names = ", ".join(process.name for process in processes)
        super().__init__(f"not ready in time: {names}{_and_output(processes[0])}")


class Ready(NamedTuple):
    """The line that `kstore serve --json` prints when the broker is ready for clients."""

    address: str
    """host:port of its first listener."""
    ready_ms: int
    """From the start of its process."""
    http: str
    """The URL of its HTTP API; empty if it has none."""


class Ended(NamedTuple):
    """How a process exited. ``was_killed``: it took too long and was sent SIGKILL."""

    exit_code: int
    was_killed: bool


def serve_command(*arguments: str, isolated: bool = True) -> list[str]:
    """The command `kstore serve --json` of this Python. ``isolated``: do not import from the
    working directory.
    """
    flags = ["-P"] if isolated else []
    return [sys.executable, *flags, "-m", "kstore", "serve", "--json", *arguments]


class BrokerProcess:
    """A running command. The constructor starts it in a session of its own, so Ctrl-C does not
    reach it.

    Its log (what it writes to stderr) is appended to ``log``; without one, stderr is that of this
    process. The environment is that of this process, without broker settings, which would be the
    same for all brokers (FOR_TESTS are kept). Raises BrokerProcessError.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "the broker",
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        stdin: int | None = subprocess.DEVNULL,
        has_ready_line: bool = True,
        new_session: bool = True,
    ) -> None:
        """``has_ready_line``: a line on stdout reports that it is ready. Otherwise stdout is part
        of the log.
        """
        self.name = name
        self.log = log
        self.ready_line = ""
        """The ready line; empty until it is ready."""
        if environment is None:
            environment = {
                name: value
                for name, value in os.environ.items()
                if not name.startswith("KSTORE_") or name in FOR_TESTS
            }
        try:
            with nullcontext() if log is None else open(log, "ab") as errors:
                self.process = self._popen(
                    command,
                    env=environment,
                    cwd=folder,
                    stdin=stdin,
                    stdout=subprocess.PIPE if has_ready_line else errors,
                    stderr=errors,
                    start_new_session=new_session,
                )
        except OSError as error:
            raise BrokerProcessError(f"{name} can't be started: {error}") from error

    def _popen(self, command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
        """Start it."""
        return subprocess.Popen(command, **how)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it is still running."""
        return self.process.poll() is None

    @property
    def ready(self) -> Ready:
        """The ready line of `serve --json`."""
        response = json.loads(self.ready_line)
        return Ready(response["address"], response["ready_ms"], response.get("http", ""))

    def wait_ready(self, deadline_s: float) -> None:
        """Return when the process is ready. Raises BrokerEndedError, or BrokerLateError at
        ``deadline_s`` (of time.monotonic()). The process still runs then: call `end`.
        """
        for _ in each_ready([self], deadline_s):
            pass

    def end(
        self, number: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S
    ) -> Ended:
        """Send a signal and wait until the process has exited. Sends SIGKILL if that takes too
        long, or if the wait is interrupted.
        """
        if self.is_running:
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)  # a stopped process must continue to exit
        was_killed = False
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            was_killed = True
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.release()
        return Ended(self.process.returncode, was_killed)

    def release(self) -> None:
        """Close the pipes to the process, and leave it running."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def output(self) -> str:
        """The end of its log; empty if it has none."""
        return "" if self.log is None else end_of_file(self.log)


def each_ready(starting: Collection[BrokerProcess], deadline_s: float) -> Iterator[BrokerProcess]:
    """Yield each process as soon as it is ready. Raises BrokerEndedError for the first process that
    exits, and BrokerLateError for processes that are not ready at ``deadline_s`` (of
    time.monotonic()).
    """
    waiting = {_stdout(process): process for process in starting}
    while waiting:
        left_s = max(0.0, deadline_s - time.monotonic())
        pipes, _, _ = select.select(list(waiting), [], [], left_s)
        if not pipes:
            raise BrokerLateError(list(waiting.values()))
        for pipe in pipes:
            process = waiting.pop(pipe)
            process.ready_line = pipe.readline().decode().strip()
            if not process.ready_line:
                raise BrokerEndedError(process, process.end().exit_code)
            yield process


def _stdout(process: BrokerProcess) -> IO[bytes]:
    if process.process.stdout is None:
        raise ValueError(f"{process.name} was started without a ready line to wait for")
    return process.process.stdout


def end_of_file(path: Path, start: int = 0) -> str:
    """The last 4,000 bytes of a log file as text, from an offset on; empty if there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _and_output(process: BrokerProcess) -> str:
    """The end of its log, for a message."""
    return f":\n{process.output()}" if process.output() else ""
