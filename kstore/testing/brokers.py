"""Brokers for tests, each in its own process: a single broker, or a cluster in one folder.

A broker exits when the process that started it ends, however it ends: it reads a pipe whose other
end then closes. It does not shut down cleanly, because its data is only for tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kstore.broker_process import (
    BrokerEndedError,
    BrokerLateError,
    BrokerProcess,
    BrokerProcessError,
    end_of_file,
    serve_command,
)

__all__ = ["RUNNING", "Broker", "BrokerError", "Cluster", "Server"]

START_TIMEOUT_S = 60.0
RUNNING: dict[int, Broker] = {}
"""The running brokers that this process has started, by process id."""

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""With Kafka's defaults, tests would wait, or create 100 logs that they do not need."""
OWN = {
    "kstore.http.listener": "http://127.0.0.1:0",
    "kstore.fault.injection.enable": "true",
    "kstore.stop.with.stdin": "true",
}


class BrokerError(RuntimeError):
    """A broker did not start. The message ends with the broker's output."""


class Server:
    """A broker or a cluster, for tests that work with either. As a context manager it is started at
    the beginning of the block, and killed at the end.
    """

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's bootstrap.servers: host:port, or several separated by commas."""
        raise NotImplementedError("a broker or a cluster says it")

    @property
    def http_urls(self) -> dict[int, str]:
        """The URLs of the running brokers' HTTP APIs, by broker id."""
        raise NotImplementedError("a broker or a cluster says it")

    @property
    def members(self) -> Sequence[Broker]:
        """The brokers. A single broker contains only itself."""
        raise NotImplementedError("a broker or a cluster says it")

    def stop(self) -> None:
        """Kill all processes, without a clean shutdown."""
        raise NotImplementedError("a broker or a cluster does it")

    def start(self) -> Self:
        """Start the brokers that are not running, and wait until they answer clients."""
        raise NotImplementedError("a broker or a cluster does it")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.bootstrap_servers


class Broker(Server):
    """A `kstore serve` process whose data is below ``folder``. ``settings`` are broker settings;
    they override those that make tests quick. Example: ``with Broker(tmp_path) as broker:
    Producer(broker.bootstrap_servers)``.
    """

    def __init__(
        self, folder: str | os.PathLike[str], settings: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = Path(folder)
        self.log_path = self.folder / "log"
        """The broker's log."""
        base = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.folder / "data"),
        }
        given = {name: _text(value) for name, value in (settings or {}).items()}
        self.settings = base | QUICK | given | OWN
        self.address = ""
        """host:port; the same after a restart."""
        self.http_url = ""
        self.ready_ms = 0
        """The time from the start of its process to its ready line."""
        self._process: BrokerProcess | None = None

    @property
    def node_id(self) -> int:
        """The broker's id."""
        return int(self.settings.get("node.id", "1"))

    @property
    def bootstrap_servers(self) -> str:
        """The broker's host:port."""
        return self.address

    @property
    def http_urls(self) -> dict[int, str]:
        """The URL of the broker's HTTP API, by its id. Empty while the broker is not running."""
        return {self.node_id: self.http_url} if self.pid is not None else {}

    @property
    def members(self) -> Sequence[Broker]:
        """The broker itself."""
        return [self]

    @property
    def pid(self) -> int | None:
        """The process id; None if the broker is not running."""
        process = self._process
        return process.pid if process is not None and process.is_running else None

    def start(self) -> Self:
        """Start the broker and wait until it answers clients. A broker that ran before gets the
        same address again. Raises BrokerError.
        """
        if self.pid is None:
            self.spawn()
            self.wait_ready(time.monotonic() + START_TIMEOUT_S)
        return self

    def spawn(self) -> None:
        """Start the process in a session of its own, so that Ctrl-C does not reach it."""
        self.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.settings
        if self.address:
            first, *others = settings["listeners"].split(",")
            name = first.partition("://")[0]
            settings = settings | {"listeners": ",".join([f"{name}://{self.address}", *others])}
        flags = [f"--override={name}={value}" for name, value in settings.items()]
        try:
            self._process = BrokerProcess(
                serve_command(*flags),
                name=f"broker {self.node_id}",
                log=self.log_path,
                stdin=subprocess.PIPE,
            )
        except BrokerProcessError as error:
            raise BrokerError(str(error)) from error
        RUNNING[self._process.pid] = self

    def wait_ready(self, deadline: float) -> None:
        """Wait for the broker's ready line until ``deadline``, a time of time.monotonic(). Raises
        BrokerError.
        """
        process = self._process
        assert process is not None
        try:
            process.wait_ready(deadline)
        except (BrokerEndedError, BrokerLateError) as error:
            is_late = isinstance(error, BrokerLateError)
            words = "was not ready in time" if is_late else "exited before it was ready"
            self.stop()
            raise BrokerError(f"broker {self.node_id} {words}:\n{self.output()}") from None
        self.address, self.ready_ms, self.http_url = process.ready

    def stop(self) -> None:
        """Kill the process, like kill -9. The data stays in the folder."""
        self._end(signal.SIGKILL)

    kill = stop

    def shut_down(self) -> None:
        """Shut the broker down cleanly: it hands over its leaderships and closes everything."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Suspend the process with SIGSTOP. Its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the suspended process."""
        self._signal(signal.SIGCONT)

    def log_size(self) -> int:
        """The size of the broker's output in bytes."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def output(self, start: int = 0) -> str:
        """The end of the broker's output, starting at byte ``start`` of its log file."""
        return end_of_file(self.log_path, start)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None:
            raise BrokerError(f"broker {self.node_id} is not running")
        os.kill(self.pid, number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.end(number)
        finally:
            RUNNING.pop(process.pid, None)


class Cluster(Server):
    """Brokers 1 to ``size`` that share a folder. By default topics have three replicas, or one for
    each broker if there are fewer. ``cluster[2]`` is broker 2.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        size: int = 3,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        replicas = min(3, size)
        base = {
            "kstore.coordination.dir": Path(folder) / "coordination",
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": min(2, replicas),
        } | dict(settings or {})
        self.brokers: dict[int, Broker] = {
            number: Broker(Path(folder) / f"broker{number}", base | {"node.id": number})
            for number in range(1, size + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """The host:port of all brokers, separated by commas."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def http_urls(self) -> dict[int, str]:
        """The URLs of the running brokers' HTTP APIs, by broker id."""
        return {n: url for b in self.brokers.values() for n, url in b.http_urls.items()}

    @property
    def members(self) -> Sequence[Broker]:
        """All brokers, sorted by id."""
        return list(self.brokers.values())

    def start(self) -> Self:
        """Start all brokers that are not running, at the same time. If this raises BrokerError, no
        broker is running.
        """
        waiting = [broker for broker in self.brokers.values() if broker.pid is None]
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            for broker in waiting:
                broker.spawn()
            for broker in waiting:
                broker.wait_ready(deadline)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all brokers at once."""
        for broker in self.brokers.values():
            broker.stop()

    def __getitem__(self, node_id: int) -> Broker:
        return self.brokers[node_id]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.brokers.values())


def _text(value: Any) -> str:
    """A setting in the format of a file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
