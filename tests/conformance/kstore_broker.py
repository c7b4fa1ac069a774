"""Runs `kstore serve` as a process of its own, with the same handles as `KafkaBroker`: start,
stop, kill, pid, bootstrap, log_dir. Conformance tests and benchmarks use it; it imports nothing
of kstore.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.broker_process import BrokerDiedError, BrokerProcess

__all__ = ["BrokerDiedError", "KstoreBroker"]

ROOT = Path(__file__).parents[2]


class KstoreBroker(BrokerProcess):
    """One `kstore serve` below `folder`."""

    LOG_FOLDER = "kstore-logs"
    OUTPUT = "kstore.err"

    def __init__(
        self,
        folder: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, overrides)
        self.ready_line = ""
        self._environment = dict(environment or {})

    def command(self) -> list[str]:
        """The command line, as a user would type it."""
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
        } | self.overrides
        flags = [f"--override={name}={value}" for name, value in settings.items()]
        return [sys.executable, "-m", "kstore", "serve", *flags]

    def spawn(self, output: int) -> subprocess.Popen[bytes]:
        """Starts the process with a pipe for its ready line; the log is stderr."""
        return subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=ROOT,
            env=os.environ | self._environment,
        )

    def after_start(self, timeout_s: float) -> None:
        """Reads the ready line."""
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            self.ready_line = ""
            return
        self.ready_line = self.process.stdout.readline().decode().strip()
