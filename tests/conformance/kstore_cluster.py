"""A cluster of `kstore serve` processes in one folder, on free ports: start, stop, kill, pause,
resume and restart its brokers one by one, and wait for what the cluster is to become.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.beside.waiting import TIMEOUT_S, until
from tests.conformance.broker_process import BrokerProcesses
from tests.conformance.kstore_broker import KstoreBroker

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import TopicDescription

PARTITIONS = 3
THREE_REPLICAS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "3000",
}
"""Settings of a cluster that goes on while one of three brokers is away."""


class KstoreCluster(BrokerProcesses):
    """Brokers 1 to ``size``, in ``folder``/brokerN, with one coordination folder beside them.

    ``overrides`` are for all of them; ``zookeeper`` is a zookeeper.connect to use instead of the
    folder. Leaving its `with` stops everything that runs, paused brokers too.
    """

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        overrides: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder)
        store = "kstore.coordination.dir", str(self.folder / "coordination")
        if zookeeper is not None:
            store = "zookeeper.connect", zookeeper
        self._overrides = dict([store]) | dict(overrides or {})
        self._environment = environment
        self._paused: set[int] = set()
        self.brokers: dict[int, KstoreBroker] = {}
        for node_id in range(1, size + 1):
            self.add(node_id)

    # ---- brokers ----

    def add(self, node_id: int, overrides: Mapping[str, str] | None = None) -> KstoreBroker:
        """Give the cluster another broker, which `start` starts."""
        given = self._overrides | {"node.id": str(node_id)} | dict(overrides or {})
        broker = KstoreBroker(
            self.folder / f"broker{node_id}", overrides=given, environment=self._environment
        )
        self.brokers[node_id] = broker
        return broker

    def stop(self, *node_ids: int) -> list[int]:
        """Those that are paused, too."""
        self.resume(*node_ids)
        return super().stop(*node_ids)

    def kill(self, node_id: int) -> None:
        super().kill(node_id)
        self._paused.discard(node_id)

    def restart(self, node_id: int, *, kill: bool = False) -> None:
        """Stop (or kill) a broker and start it again, on the same data and port."""
        if kill:
            self.kill(node_id)
        else:
            self.stop(node_id)
        self.start(node_id)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: the process stops, and its connections stay open."""
        os.kill(self.brokers[node_id].pid, signal.SIGSTOP)
        self._paused.add(node_id)

    def resume(self, *node_ids: int) -> None:
        """SIGCONT to the brokers named, or to all."""
        for node_id in node_ids or tuple(self.brokers):
            if node_id in self._paused and self.runs(node_id):
                os.kill(self.brokers[node_id].pid, signal.SIGCONT)
            self._paused.discard(node_id)

    def fault(self, node_id: int, kind: str, seconds: float) -> None:
        """Kill, stop or pause a broker, for so long: nothing is awaited."""
        {"kill": self.kill, "stop": self.stop, "pause": self.pause}[kind](node_id)
        time.sleep(seconds)
        if kind == "pause":
            self.resume(node_id)
        else:
            self.start(node_id)

    def was_killed(self, node_id: int) -> bool:
        """Whether another process has ended the broker: others do if it is stopped while it holds
        the lock of the shared store. Waits a moment for a process that is ending.
        """
        process = self.brokers[node_id].process
        if process is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        return process.returncode is not None

    # ---- what clients see ----

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers of the brokers that run."""
        running = [b for i, b in self.brokers.items() if self.runs(i) and i not in self._paused]
        return ",".join(broker.bootstrap for broker in running)

    def admin(self, node_id: int | None = None, timeout_ms: int = 30_000) -> AdminClient:
        """A client of kstore's own; it begins with the broker named, or with any."""
        from kstore.clients import AdminClient

        bootstrap = self.bootstrap if node_id is None else self.brokers[node_id].bootstrap
        return AdminClient(bootstrap, default_api_timeout_ms=timeout_ms)

    def controller_id(self, node_id: int | None = None) -> int:
        """Who the controller is, by what the broker named (or any) says; -1 if it knows none."""
        with self.admin(node_id) as admin:
            return admin.describe_cluster().controller_id

    def broker_ids(self, node_id: int | None = None) -> set[int]:
        """The brokers that are alive, by what the broker named (or any) says."""
        with self.admin(node_id) as admin:
            return {broker.node_id for broker in admin.describe_cluster().brokers}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 3,
        configs: Mapping[str, str] | None = None,
        *,
        replicas: Mapping[int, Collection[int]] | None = None,
    ) -> None:
        """Make a topic; ``replicas`` (partition to broker ids) places them by hand."""
        from kstore.clients import NewTopic

        by_hand = {index: tuple(ids) for index, ids in (replicas or {}).items()}
        counts = (-1, -1) if by_hand else (partitions, replication_factor)
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, *counts, dict(configs or {}), by_hand)])

    def topic(self, name: str, node_id: int | None = None) -> TopicDescription:
        """Leaders, epochs, replicas and ISR of a topic, by what the broker named (or any) says."""
        with self.admin(node_id) as admin:
            (found,) = admin.describe_topics([name])
            return found

    def leader(self, topic: str, partition: int = 0, node_id: int | None = None) -> int:
        """The leader's id, -1 if there is none."""
        return self._partition(topic, partition, node_id).leader

    def isr(self, topic: str, partition: int = 0, node_id: int | None = None) -> set[int]:
        return set(self._partition(topic, partition, node_id).isr)

    def _partition(self, topic: str, partition: int, node_id: int | None) -> Any:
        rows = self.topic(topic, node_id).partitions
        return next(row for row in rows if row.partition == partition)

    def all_in_sync(self, topic: str, partitions: int = PARTITIONS) -> bool:
        """Whether three replicas of each partition are, and each has a leader."""
        rows = self.topic(topic).partitions
        return len(rows) == partitions and all(
            len(row.isr) == 3 and row.leader >= 0 for row in rows
        )

    # ---- waiting ----

    def wait_for_isr(
        self, topic: str, isr: Iterable[int], partition: int = 0, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Until exactly these brokers are in sync."""
        wanted = set(isr)
        until(
            lambda: self.isr(topic, partition) == wanted,
            f"{topic}-{partition} has the ISR {sorted(wanted)}",
            timeout_s,
        )

    def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        not_: int = -1,
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        """Until there is a leader other than the one named; its id."""
        until(
            lambda: self.leader(topic, partition) not in (-1, not_),
            f"{topic}-{partition} has a leader other than {not_}",
            timeout_s,
        )
        return self.leader(topic, partition)

    def wait_for_controller(self, *, not_: int = -1, timeout_s: float = TIMEOUT_S) -> int:
        """Until all brokers that run name one controller, other than the one named; its id."""

        def one() -> bool:
            running = [i for i in self.brokers if self.runs(i) and i not in self._paused]
            named = {self.controller_id(i) for i in running}
            return len(named) == 1 and not named & {-1, not_}

        until(one, f"all know one controller, and not {not_}", timeout_s)
        return self.controller_id()

    def output(self) -> str:
        """The end of what each broker has logged, for a message."""
        return "\n".join(f"--- broker {i}\n{b.error_output()}" for i, b in self.brokers.items())

    # ---- context ----

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.output())
        self.stop()
