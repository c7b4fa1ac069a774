"""A program of the tests with all processes that it starts (JVMs, executors, Python workers). Tests
can kill one of them or all. An environment variable marks them, so that no process of another test
or user is killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class OwnProcesses:
    """A command that runs in the folder of the checkout; its output goes to the file `log`."""

    def __init__(
        self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        name, value = "KSTORE_TEST_APPLICATION", uuid.uuid4().hex
        self._mark = f"{name}={value}".encode()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, cwd=ROOT,
                env=os.environ | (env or {}) | {name: value},
            )  # fmt: skip

    def pids(self, what: str) -> list[int]:
        """Its processes with this text in their command line."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    mine = self._mark in (folder / "environ").read_bytes()
                    if mine and what.encode() in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
                except OSError:  # it has ended
                    continue
        return found

    def kill(self, what: str) -> int:
        """Kill any one of these processes, if there is one, and return its id, or 0."""
        pids = self.pids(what)
        if not pids:
            return 0
        pid = random.choice(pids)
        _kill(pid)
        return pid

    def end(self) -> int:
        """Kill all of them, repeatedly if necessary; returns the exit code of the first one."""
        while pids := self.pids(""):
            for pid in pids:
                _kill(pid)
            self.process.poll()
            time.sleep(0.02)
        return self.process.wait()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
