"""Real Apache Kafka brokers as one KRaft cluster, each broker and controller in one JVM, with the
handles of `KstoreCluster` that a comparison needs.
"""

from __future__ import annotations

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.kafka_broker import TEST_FLAGS, KafkaBroker


class _Node(KafkaBroker):
    """One broker and voter; `voters` is filled once all have their ports."""

    def __init__(
        self, folder: Path, number: int, overrides: Mapping[str, str], jvm: Sequence[str]
    ) -> None:
        super().__init__(folder, overrides=overrides, jvm=jvm)
        self.number = number
        self.cluster_id = ""
        self.voters = ""

    def settings(self) -> dict[str, str]:
        return super().settings() | {
            "node.id": str(self.number),
            "controller.quorum.voters": self.voters,
            **self.overrides,
        }

    def new_cluster_id(self) -> str:
        """See KafkaBroker: the same for all."""
        return self.cluster_id


class KafkaCluster:
    """Brokers 1 to ``size`` below a folder, on free ports."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        overrides: Mapping[str, str] | None = None,
        jvm: Sequence[str] = TEST_FLAGS,
    ) -> None:
        numbers = range(1, size + 1)
        given = dict(overrides or {})
        folders = {number: Path(folder) / f"broker{number}" for number in numbers}
        nodes = [_Node(folders[number], number, given, jvm) for number in numbers]
        voters = ",".join(f"{node.number}@{node.host}:{node.controller_port}" for node in nodes)
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        for node in nodes:
            node.voters, node.cluster_id = voters, cluster_id
        self.brokers = {node.number: node for node in nodes}

    def runs(self, node_id: int) -> bool:
        """Whether the broker was started and not ended by us."""
        return self.brokers[node_id].process is not None

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers of the brokers that run."""
        return ",".join(b.bootstrap for i, b in self.brokers.items() if self.runs(i))

    def start(self, *node_ids: int, timeout_s: float = 120) -> float:
        """Start the brokers named, or all that don't run, at one time, formatted before; the
        seconds until each has answered its first request.
        """
        starting = [self.brokers[i] for i in node_ids or self.brokers if not self.runs(i)]
        for broker in starting:
            broker.prepare()
        begin = time.monotonic()
        with ThreadPoolExecutor(max(1, len(starting))) as threads:
            for started in [threads.submit(b.start, timeout_s=timeout_s) for b in starting]:
                started.result()
        return time.monotonic() - begin

    def kill(self, node_id: int) -> None:
        """kill -9, as in a crash."""
        self.brokers[node_id].kill()

    def stop(self) -> None:
        """All at one time."""
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            list(threads.map(lambda broker: broker.stop(), self.brokers.values()))
