"""What the brokers of the tests have in common as processes: their own port, start, stop, kill,
restart on the same data and port, and a certain end. The subclasses say which program runs, and
with what settings (kafka_broker.py, kstore_broker.py).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from kstore import broker_process
from tests.conformance import wire

# Below the ports that the kernel gives to outgoing connections: a client's own port cannot be the
# same.
_PORTS = range(12_000, 32_000)
_LOCKS = Path("/tmp/kstore-test-ports")
"""The same folder for all test runs of a machine, whatever their TMPDIR and their user is."""
# The lock files of this process's ports stay open, and so locked, as long as it lives.
_held_ports: dict[int, int] = {}


class BrokerDiedError(RuntimeError):
    """A broker ended or stayed silent before it was ready; the message has its output."""


def free_port() -> int:
    """A TCP port on 127.0.0.1 on which no process listens and that no other test run was given."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of this number of consecutive ports."""
    for _ in range(1000):
        first = random.choice(_PORTS)
        if all(_take(port) for port in range(first, first + count)):
            return first
    raise RuntimeError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def _take(port: int) -> bool:
    """Lock a port for this process, unless it is locked or used."""
    if port in _held_ports:
        return False
    _LOCKS.mkdir(exist_ok=True)
    with suppress(PermissionError):  # another user's
        _LOCKS.chmod(0o777)
    # Read access is enough to lock a file, so every user can do it.
    lock = os.open(_LOCKS / str(port), os.O_CREAT | os.O_RDONLY, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        os.close(lock)
        return False
    _held_ports[port] = lock
    return True


# Every running process; those that a test leaves behind are ended when Python ends.
_running: set[broker_process.BrokerProcess] = set()


@atexit.register
def _kill_what_is_left() -> None:
    for running in list(_running):
        running.process.kill()


class BrokerProcess(ABC):
    """One broker below `folder`; start() may follow stop() or kill(), on the same data and port.
    Leaving its `with` stops it, and kills it if that takes too long.
    """

    LOG_FOLDER = "logs"
    OUTPUT = "broker.out"
    HAS_READY_LINE = False
    """Whether its stdout is a line that says that it is ready, and not a part of its output."""
    WORKING_FOLDER: Path | None = None
    """Where it runs, if not in its folder."""

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``environment``: changes of this process's environment."""
        self._environment = dict(environment or {})
        self.folder = Path(folder)
        self.log_dir = self.folder / self.LOG_FOLDER
        self.host = "127.0.0.1"
        self.port = free_port()
        self.launched: broker_process.BrokerProcess | None = None
        self.started_in_s = 0.0
        self.overrides = dict(overrides or {})

    @property
    def bootstrap(self) -> str:
        """host:port for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process that was started, and not yet stopped or killed."""
        return None if self.launched is None else self.launched.process

    @property
    def pid(self) -> int:
        """The process id; only while it runs."""
        assert self.process is not None, "the broker was not started"
        return self.process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """The command line."""

    def prepare(self) -> None:  # noqa: B027 (a subclass may need nothing)
        """What the first start needs; called before each, outside of the measured time."""

    def launcher(self) -> type[broker_process.BrokerProcess]:
        return broker_process.BrokerProcess

    def after_start(self, timeout_s: float) -> None:  # noqa: B027
        """What is still to be read once the broker has answered."""

    def start(self, *, timeout_s: float = 120) -> float:
        """Starts the broker and waits for its first answer; returns the seconds from exec to it."""
        assert self.process is None, "the broker runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        begin = time.monotonic()
        self.launched = self.launcher()(
            self.command(),
            name=type(self).__name__,
            log=self.folder / self.OUTPUT,
            environment=os.environ | self._environment,
            folder=self.WORKING_FOLDER or self.folder,
            stdin=None,
            has_ready_line=self.HAS_READY_LINE,
            new_session=False,
        )
        _running.add(self.launched)
        try:
            answered = self._first_answer(begin + timeout_s)
            self.after_start(timeout_s)
        except BaseException as error:
            self.kill()
            if isinstance(error, (wire.WireError, BrokerDiedError)):
                raise BrokerDiedError(f"{error}\n{self.error_output()}") from None
            if isinstance(error, broker_process.BrokerProcessError):
                raise BrokerDiedError(str(error)) from None
            raise
        self.started_in_s = answered - begin
        return self.started_in_s

    def _first_answer(self, deadline: float) -> float:
        assert self.process is not None
        while True:
            if self.process.poll() is not None:
                raise BrokerDiedError(f"{type(self).__name__} exited {self.process.returncode}")
            try:
                # In short spells, so that a broker that died at once is noticed at once.
                spell = min(deadline, time.monotonic() + 0.5)
                return wire.wait_for_answer(self.host, self.port, spell, pause_s=0.01)
            except wire.WireError:
                if time.monotonic() > deadline:
                    raise

    def error_output(self) -> str:
        """The end of what the broker wrote, over all its starts."""
        return broker_process.end_of_file(self.folder / self.OUTPUT)

    def stop(self, *, timeout_s: float = 60) -> int:
        """A clean stop: SIGTERM, then wait, SIGKILL if it does not end in time; the exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """kill -9, as in a crash."""
        self._end(signal.SIGKILL, 30)

    def _end(self, signal_number: signal.Signals, timeout_s: float) -> int:
        launched, self.launched = self.launched, None
        if launched is None:
            return 0
        try:
            return launched.end(signal_number, timeout_s).exit_code
        finally:
            _running.discard(launched)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class BrokerProcesses:
    """Brokers by their numbers, started and stopped at one time."""

    brokers: dict[int, Any]

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers of the brokers that run."""
        return ",".join(b.bootstrap for i, b in self.brokers.items() if self.runs(i))

    def runs(self, node_id: int) -> bool:
        """Whether the broker was started and not ended by us."""
        return self.brokers[node_id].process is not None

    def start(self, *node_ids: int, timeout_s: float = 120) -> float:
        """Start the brokers named, or all that don't run; the seconds until each has answered its
        first request.
        """
        starting = [self.brokers[i] for i in node_ids or self.brokers if not self.runs(i)]
        for broker in starting:
            broker.prepare()
        begin = time.monotonic()
        with ThreadPoolExecutor(max(1, len(starting))) as threads:
            list(threads.map(lambda broker: broker.start(timeout_s=timeout_s), starting))
        return time.monotonic() - begin

    def stop(self, *node_ids: int) -> list[int]:
        """Stop the brokers named, or all, cleanly; their exit codes."""
        stopping = [self.brokers[i] for i in node_ids or self.brokers if self.runs(i)]
        with ThreadPoolExecutor(max(1, len(stopping))) as threads:
            return list(threads.map(lambda broker: broker.stop(), stopping))

    def kill(self, node_id: int) -> None:
        self.brokers[node_id].kill()
