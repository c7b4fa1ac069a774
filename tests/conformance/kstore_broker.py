"""Runs `kstore serve` as a process of its own, with the same handles as `KafkaBroker`: start,
stop, kill, pid, bootstrap, log_dir. Conformance tests and benchmarks use it; it imports nothing
of kstore.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.conformance import wire
from tests.conformance.kafka_broker import free_port

__all__ = ["BrokerDiedError", "KstoreBroker"]

ROOT = Path(__file__).parents[2]


class BrokerDiedError(RuntimeError):
    """`kstore serve` ended, or said nothing, before it was ready; the message holds its output."""


class KstoreBroker:
    """One `kstore serve` below `folder`; start() may follow stop() or kill(), on the same data."""

    def __init__(
        self,
        folder: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.log_dir = self.folder / "kstore-logs"
        self.host = "127.0.0.1"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_in_s = 0.0
        self.ready_line = ""
        self._overrides = dict(overrides or {})
        self._environment = dict(environment or {})

    @property
    def bootstrap(self) -> str:
        """host:port for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process id; only while it runs."""
        assert self.process is not None, "the broker was not started"
        return self.process.pid

    def command(self) -> list[str]:
        """The command line, as a user would type it."""
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
        } | self._overrides
        flags = [f"--override={name}={value}" for name, value in settings.items()]
        return [sys.executable, "-m", "kstore", "serve", *flags]

    def start(self, *, timeout_s: float = 60) -> float:
        """Starts the broker and waits for its first answer; returns the seconds from exec to it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        errors = open(self.folder / "kstore.err", "ab")  # noqa: SIM115 (handed to the process)
        begin = time.monotonic()
        self.process = subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env=os.environ | self._environment,
        )
        errors.close()
        try:
            answered = self._first_answer(begin + timeout_s)
        except (wire.WireError, BrokerDiedError) as error:
            self.kill()
            raise BrokerDiedError(f"{error}\n{self.error_output()}") from None
        self.ready_line = self._read_ready_line(timeout_s)
        self.started_in_s = answered - begin
        return self.started_in_s

    def _first_answer(self, deadline: float) -> float:
        assert self.process is not None
        while True:
            if self.process.poll() is not None:
                raise BrokerDiedError(f"`kstore serve` ended with {self.process.returncode}")
            try:
                # In short spells, so that a broker that died at once is noticed at once.
                spell = min(deadline, time.monotonic() + 0.5)
                return wire.wait_for_answer(self.host, self.port, spell)
            except wire.WireError:
                if time.monotonic() > deadline:
                    raise

    def _read_ready_line(self, timeout_s: float) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            return ""
        return self.process.stdout.readline().decode().strip()

    def error_output(self) -> str:
        """The end of what the broker wrote to stderr, over all its starts."""
        path = self.folder / "kstore.err"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def stop(self, *, timeout_s: float = 30) -> int:
        """A clean stop: SIGTERM, then wait; returns the exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """kill -9, as in a crash."""
        self._end(signal.SIGKILL, 30)

    def _end(self, signal_number: int, timeout_s: float) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            os.kill(process.pid, signal_number)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code

    def __enter__(self) -> KstoreBroker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
