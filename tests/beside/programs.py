"""Processes for tests: one that runs to its end, one that answers each line, and one whose lines
are read as they come.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self


def output_of(command: Sequence[object], *, timeout_s: float = 120, **options: Any) -> str:
    """What a command prints to stdout. It must end with exit code 0."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, check=False,
        **options,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout


class Dialogue:
    """Answers each line that it gets. It is killed at the end of its `with`."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **(pipes | options))

    def line(self) -> str:
        """The next line of its output."""
        return self.process.stdout.readline().strip()

    def tell(self, order: str) -> None:
        """Send a command; `line` reads its answer."""
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def does(self, order: str) -> str:
        """Send a command and return its answer."""
        self.tell(order)
        return self.line()

    def end(self) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Listened:
    """Each line of its output is given to ``take``. It is stopped at the end of its `with`."""

    def __init__(self, command: Sequence[str], take: Callable[[str], object]) -> None:
        self._take = take
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._take(line.rstrip("\n"))

    def stop(self) -> None:
        """Send SIGTERM and wait for the end of its output."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def memory_mb(pid: int, kind: str = "RssAnon") -> float:
    """A process's memory: its own, or with ``kind`` VmRSS including pages of files."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    [found] = [row.split()[1] for row in rows if row.startswith(f"{kind}:")]
    return int(found) / 1024
