"""Real Apache Kafka brokers as one KRaft cluster, each broker and controller in one JVM, with the
handles of `KstoreCluster` that a comparison needs.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conformance.broker_process import BrokerProcesses
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


class KafkaCluster(BrokerProcesses):
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

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers of the brokers that run."""
        return ",".join(b.bootstrap for i, b in self.brokers.items() if self.runs(i))
