"""Runs kstore commands as a user's shell does. A command that runs to its end runs in this process,
with its own standard streams, because starting a process costs more than most commands do. `popen`
starts a process.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, chdir
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from kstore.__main__ import main


class Done(NamedTuple):
    """The end of a command, and its output."""

    code: int
    output: bytes
    errors: bytes


def run_here(
    *arguments: str,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Done:
    """Run one command in this process. Processes that it starts would be children of this one, so a
    command that starts brokers needs its own process. So does completion, which leaves a thread
    behind and turns logging off.
    """
    with ExitStack() as until_done:
        until_done.enter_context(patch("kstore.cli.serve.run_broker", no_broker))
        files = [until_done.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        given, written, told = (TextIOWrapper(file, "utf-8") for file in files)
        variables = os.environ if environment is None else environment
        until_done.enter_context(patch.dict(os.environ, dict(variables), clear=True))
        if folder is not None:
            until_done.enter_context(chdir(folder))
        until_done.enter_context(patch.multiple(sys, stdin=given, stdout=written, stderr=told))
        # pytest's handlers would keep warnings and errors of the log away from stderr.
        until_done.enter_context(patch.object(logging.root, "handlers", []))
        done = Done(main(arguments), contents(written), contents(told))
        assert b"Traceback" not in done.errors, done.errors.decode()
        return done


def no_broker(*_: Any, **__: Any) -> int:
    """Instead of `kstore serve`'s broker."""
    raise AssertionError("a broker runs in a process of its own")


def contents(stream: TextIOWrapper) -> bytes:
    """Everything that was written to a stream on a file."""
    stream.flush()
    stream.buffer.seek(0)
    return stream.buffer.read()


class Shell:
    """Runs kstore commands against the broker."""

    def __init__(self, bootstrap: str = "localhost:1", **environment: str) -> None:
        self.environment = os.environ | {"KSTORE_BOOTSTRAP_SERVER": bootstrap} | environment
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
        """Stop what a failed test has left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> bytes:
        """Run a command to its end, expect its exit code, and return its output (its errors if it
        failed).
        """
        done = run_here(*arguments, stdin=stdin, environment=self.environment)
        assert done.code == code, done.errors.decode()
        return done.errors if code else done.output

    def text(self, *arguments: str, **more: Any) -> str:
        """The same as text."""
        return self(*arguments, **more).decode()

    def json(self, *arguments: str) -> list[Any]:
        """The JSON objects that a command prints."""
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]
