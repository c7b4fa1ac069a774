"""Runs kstore commands as a user's shell does, beside a broker."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["Shell"]


class Shell:
    """Runs kstore commands against the broker."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = os.environ | {"KSTORE_BOOTSTRAP_SERVER": bootstrap}
        self._started: list[subprocess.Popen[bytes]] = []

    def popen(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command with all its streams piped."""
        process = subprocess.Popen(
            [sys.executable, "-m", "kstore", *arguments], env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._started.append(process)
        return process

    def kill_rest(self) -> None:
        """End what a test that failed has left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> bytes:
        """Run a command to its end, expect its exit code, and return what it wrote (errors if it
        failed).
        """
        process = self.popen(*arguments)
        output, errors = process.communicate(stdin, timeout=60)
        assert process.returncode == code, errors.decode()
        assert b"Traceback" not in errors
        return errors if code else output
