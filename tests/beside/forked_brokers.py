"""Brokers that are forked from a process that has imported kstore already. The start and the end of
Python, and its imports, cost 0.3 CPU seconds a broker; a fork costs 0.05.

`make check` and `make test` do that (tests/conftest.py). A broker is a `python -m kstore serve` in
`make test-all`, in a run of single files, in tests that are marked `own_python`, and if its test
gives it an unusual environment or command.

The process with the imports has one thread and no event loop. It forks when it is asked to over a
socket. It is the parent, so it writes a broker's exit code into a pipe.

    python -m tests.beside.forked_brokers FD [MODULE...]

is that process. FD is its end of the socket. The modules are what it imports, instead of what
brokers need: then it forks other commands of `kstore`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any, NoReturn

from kstore import broker_process

ROOT = Path(__file__).parents[2]
IS_WANTED = False
"""Whether brokers are forked: conftest sets it before each test."""
MAX_REQUEST = 1 << 18
ROOMS = (
    "kstore.broker.api", "kstore.broker.compose", "kstore.broker.coordination",
    "kstore.broker.runtime", "kstore.broker.state", "kstore._fast.broker", "kstore._fast.network",
)  # fmt: skip
"""What brokers import sooner or later."""
NOT_NOW = ("zookeeper", "request_spans")
"""Modules with these words in their names import what most brokers do not use."""


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that another one has forked. Its exit code comes through a pipe."""

    def __init__(self, command: Sequence[str], pid: int, stdout: int, exit_code: int) -> None:
        self.args, self.pid, self.returncode = command, pid, None
        self.stdin = self.stderr = None
        self.stdout = open(stdout, "rb")  # noqa: SIM115
        self._exit_code = exit_code
        self._child_created = False  # the garbage collector need not wait for it
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, if it has exited."""
        return self._wait_ms(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has exited."""
        code = self._wait_ms(None if timeout is None else max(0, timeout * 1000))
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _wait_ms(self, timeout_ms: float | None) -> int | None:
        with self._reading:
            if self.returncode is None:
                asked = select.poll()
                asked.register(self._exit_code, select.POLLIN)
                if asked.poll(timeout_ms):
                    said = os.read(self._exit_code, 16)
                    os.close(self._exit_code)
                    self.returncode = int(said or -signal.SIGKILL)
            return self.returncode


class Nursery:
    """The process that forks brokers, as this process sees it. Threads may share it."""

    def __init__(self, *modules: str) -> None:
        self._asking = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno()), *modules],
                cwd=ROOT, pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        stderr: int,
        folder: Path = ROOT,
    ) -> ForkedProcess:
        """A forked `kstore` with these arguments, in this folder."""
        given = {"arguments": arguments, "environment": dict(environment), "folder": str(folder)}
        asked = json.dumps(given).encode()
        assert len(asked) < MAX_REQUEST
        stdout, writes_stdout = os.pipe()
        exit_code, writes_exit_code = os.pipe()
        try:
            with self._asking:
                socket.send_fds(self._socket, [asked], [writes_stdout, stderr, writes_exit_code])
                pid = int(self._socket.recv(16) or 0)
        finally:
            os.close(writes_stdout)
            os.close(writes_exit_code)
        assert pid, "the process that forks brokers has ended"
        return ForkedProcess(["kstore", *arguments], pid, stdout, exit_code)

    def close(self) -> None:
        """End the process, when what it has forked has exited."""
        self._socket.close()
        self._process.wait()


class ForkedBroker(broker_process.BrokerProcess):
    """A broker that is forked. Its command is `python -m kstore serve` with arguments."""

    def _popen(
        self, command: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes], **how: Any
    ) -> ForkedProcess:
        assert list(command[:3]) == [sys.executable, "-m", "kstore"], command
        assert Path(how["cwd"]) == ROOT
        return nursery().start(command[3:], environment=env, stderr=stderr.fileno())


_nursery: Nursery | None = None
_starting = threading.Lock()


def nursery() -> Nursery:
    """The one of this process; the first call starts it."""
    global _nursery
    with _starting:
        _nursery = _nursery or Nursery()
        return _nursery


# ---- the process that forks ----


class Forker:
    """Forks brokers, and reports how they have exited."""

    def __init__(self, asked: socket.socket) -> None:
        self._socket = asked
        self._poll = select.poll()  # has no file descriptor, which a fork would inherit
        self._poll.register(asked, select.POLLIN)
        self._running: dict[int, tuple[int, int]] = {}  # by pidfd: pid, and the exit code's pipe

    def serve(self) -> tuple[dict[str, Any], list[int]] | None:
        """Fork until nobody asks any more (None). In a fork: what was asked."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._running:
                    self._report(descriptor)
                elif descriptor == self._socket.fileno():
                    said, given, _, _ = socket.recv_fds(self._socket, MAX_REQUEST, 3)
                    if not said:
                        return None
                    if self._fork(given):
                        return json.loads(said), given

    def _fork(self, given: list[int]) -> bool:
        """Whether this is the fork."""
        pid = os.fork()
        if not pid:
            self._socket.close()
            for pidfd, (_, exit_code) in self._running.items():
                os.close(pidfd)
                os.close(exit_code)
            return True
        stdout, stderr, exit_code = given
        os.close(stdout)
        os.close(stderr)
        pidfd = os.pidfd_open(pid)
        self._running[pidfd] = pid, exit_code
        self._poll.register(pidfd, select.POLLIN)
        self._socket.send(str(pid).encode())
        return False

    def _report(self, pidfd: int) -> None:
        pid, exit_code = self._running.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(BrokenPipeError):  # the process that asked has ended
            os.write(exit_code, str(code).encode())
        os.close(exit_code)


def import_all() -> None:
    """Import what a broker needs."""
    for name in ("kstore.cli.serve", "kstore.cli.process_list", "kstore.broker.app", "uvloop"):
        import_module(name)
    for room in ROOMS:
        for module in walk_packages(import_module(room).__path__, f"{room}."):
            if not any(word in module.name for word in NOT_NOW):
                import_module(module.name)


def run(asked: dict[str, Any], given: list[int]) -> NoReturn:
    """In a fork: be the command that was asked for."""
    os.dup2(given[0], 1)
    os.dup2(given[1], 2)
    for descriptor in given:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = [str(ROOT / "kstore" / "__main__.py"), *asked["arguments"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from kstore.__main__ import main

    code = main()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Python would first free every object, and so copy most pages of the parent


def serve(descriptor: int, *modules: str) -> None:
    """Import kstore, or these modules, and fork until the other end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    for name in modules:
        import_module(name)
    if not modules:
        import_all()
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()
    forked = Forker(socket.socket(fileno=descriptor)).serve()
    if forked is not None:
        run(*forked)


if __name__ == "__main__":
    serve(int(sys.argv[1]), *sys.argv[2:])
