"""The folder of a cluster on one machine, and its brokers' processes: `kstore cluster` creates,
starts, finds and stops them here. The commands are in the room cluster.

    <folder>/coordination             the store that the brokers share
    <folder>/broker1/server.properties, data, log, pid
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kstore.broker_process import (
    BrokerEndedError,
    BrokerLateError,
    BrokerProcess,
    each_ready,
    end_of_file,
    serve_command,
)
from kstore.config import BrokerConfig
from kstore.private_files import make_private_folder, open_private

__all__ = ["BrokerFolder", "ClusterError", "ClusterFolder", "Started"]

PAUSE_S = 0.01


class ClusterError(Exception):
    """Why a `kstore cluster` command failed; the message says what to do."""


class Started(NamedTuple):
    """A broker that is ready."""

    node_id: int
    pid: int
    address: str
    ready_ms: int


class BrokerFolder:
    """The part of the folder that belongs to one broker, and its process."""

    def __init__(self, path: Path, node_id: int) -> None:
        self.path = path
        self.node_id = node_id
        self.properties = path / "server.properties"
        self.log = path / "log"
        self.pid_file = path / "pid"

    def config(self) -> BrokerConfig:
        """The settings in its file. Raises ConfigError."""
        return BrokerConfig.load(self.properties, environ={})

    def address(self) -> str:
        """host:port of its first listener."""
        first = self.config().advertised_listeners[0]
        host = f"[{first.host}]" if ":" in first.host else first.host
        return f"{host}:{first.port}"

    def pid(self) -> int | None:
        """The process that runs the broker, however it was started; None if none does."""
        lock = Path(self.config()["log.dirs"][0]) / ".lock"
        with contextlib.suppress(OSError, ValueError, IndexError):
            holder = int(lock.read_text().split()[1])  # "pid 123 (...)"
            if _is_alive(holder) and is_locked(lock):
                return holder
        with contextlib.suppress(OSError, ValueError):
            spawned = int(self.pid_file.read_text())  # it may not have locked its folder yet
            if str(self.properties) in Path(f"/proc/{spawned}/cmdline").read_text():
                return spawned
        return None

    def spawn(self) -> BrokerProcess:
        """Start its process, detached from this one."""
        name = f"broker {self.node_id}"
        process = BrokerProcess(serve_command(str(self.properties)), name=name, log=self.log)
        self.pid_file.write_text(f"{process.pid}\n")
        return process

    def end(self, number: signal.Signals) -> int | None:
        """Send a signal to the process; returns the process, or None if none runs."""
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)  # a stopped process exits now, not when it continues
        return pid

    def last_words(self) -> str:
        """The last line of its log."""
        lines = end_of_file(self.log).strip().splitlines()
        return lines[-1] if lines else ""


class ClusterFolder:
    """All brokers of one folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()

    def brokers(self) -> list[BrokerFolder]:
        """The brokers that have settings in the folder, by id."""
        found = []
        for properties in self.path.glob("broker*/server.properties"):
            name = properties.parent.name.removeprefix("broker")
            if name.isascii() and name.isdigit():
                found.append(BrokerFolder(properties.parent, int(name)))
        return sorted(found, key=lambda broker: broker.node_id)

    def existing(self) -> list[BrokerFolder]:
        """The same. Raises ClusterError if there are none."""
        found = self.brokers()
        if not found:
            raise ClusterError(
                f"{self.path} has no cluster: create one with "
                f"`kstore cluster start --dir {self.path}`"
            )
        return found

    def broker(self, node_id: int) -> BrokerFolder:
        """One broker. Raises ClusterError if it does not exist."""
        for broker in self.existing():
            if broker.node_id == node_id:
                return broker
        known = ", ".join(str(broker.node_id) for broker in self.existing())
        raise ClusterError(f"{self.path} has no broker {node_id}; it has {known}")

    def make(
        self, node_id: int, host: str, port: int, brokers: int, overrides: Mapping[str, str]
    ) -> BrokerFolder:
        """Write the settings of a new broker in a cluster of so many brokers on this machine. Other
        machines may have more brokers of the same ZooKeeper cluster; their number is not known.
        """
        broker = BrokerFolder(self.path / f"broker{node_id}", node_id)
        settings = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{host}:{port}",
            "log.dirs": str(broker.path / "data"),
        }
        if "zookeeper.connect" not in overrides:
            replicas = min(3, brokers)
            settings |= {
                "kstore.coordination.dir": str(self.path / "coordination"),
                "default.replication.factor": str(replicas),
                "offsets.topic.replication.factor": str(replicas),
                "transaction.state.log.replication.factor": str(replicas),
                "transaction.state.log.min.isr": str(min(2, replicas)),
            }
        settings |= overrides
        BrokerConfig.load(None, settings, {})  # report a mistake before anything is written
        make_private_folder(str(broker.path))  # its settings may hold passwords
        lines = [
            "# Written by `kstore cluster`. You can change it.",
            f"# To start only this broker: kstore serve {broker.properties}",
            *(f"{name}={_escaped(value)}" for name, value in settings.items()),
        ]
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(open_private(str(broker.properties), flags), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return broker


def start_all(
    brokers: Sequence[BrokerFolder], timeout_s: float, tell: Callable[[Started], None]
) -> list[Started]:
    """Start the brokers at the same time and wait until all are ready; ``tell`` is called for each.

    Raises ClusterError if one does not become ready; then all of them are stopped.
    """
    begun: dict[BrokerProcess, BrokerFolder] = {}
    try:
        for broker in brokers:
            begun[broker.spawn()] = broker
        return sorted(_await_ready(begun, time.monotonic() + timeout_s, tell))
    except BaseException:
        for process in begun:
            process.process.terminate()
        for process, broker in begun.items():
            process.process.wait()
            broker.pid_file.unlink(missing_ok=True)
        raise
    finally:
        for process in begun:
            process.release()


def _await_ready(
    begun: Mapping[BrokerProcess, BrokerFolder], deadline: float, tell: Callable[[Started], None]
) -> list[Started]:
    ready: list[Started] = []
    try:
        for process in each_ready(begun, deadline):
            line = process.ready
            ready.append(Started(begun[process].node_id, process.pid, line.address, line.ready_ms))
            tell(ready[-1])
    except BrokerEndedError as error:
        broker = begun[error.process]
        why = broker.last_words().removeprefix("kstore: ")
        raise ClusterError(f"broker {broker.node_id} cannot start: {why}") from None
    except BrokerLateError as error:
        found = [begun[process] for process in error.processes]
        late = ", ".join(str(broker.node_id) for broker in found)
        raise ClusterError(
            f"not ready in time: broker {late}; see the end of {found[0].log}"
        ) from None
    return ready


def wait_for_end(pids: Mapping[int, int], timeout_s: float) -> dict[int, int]:
    """Wait until the processes (broker to pid) have exited; returns those that still run at the
    timeout.
    """
    deadline = time.monotonic() + timeout_s
    left = dict(pids)
    while True:
        left = {node_id: pid for node_id, pid in left.items() if _is_alive(pid)}
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(PAUSE_S)


def memory_bytes(pid: int) -> int:
    """The process's own memory. Shared pages count by its share (PSS)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        if Path("/proc/self").exists():
            return False
    try:  # a system without /proc
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
