"""Real Apache Kafka brokers as one KRaft cluster, each broker and controller in one JVM, with the
methods of `KstoreCluster` that a comparison needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conformance.broker_process import BrokerProcesses
from tests.conformance.kafka_broker import TEST_FLAGS, KafkaBroker


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
        self.brokers = {
            number: KafkaBroker(Path(folder) / f"broker{number}", overrides=overrides, jvm=jvm)
            for number in range(1, size + 1)
        }
        voters = [f"{i}@{each.host}:{each.controller_port}" for i, each in self.brokers.items()]
        for number, broker in self.brokers.items():
            own = {"node.id": str(number), "controller.quorum.voters": ",".join(voters)}
            broker.overrides = own | broker.overrides
            broker.cluster_id = self.brokers[1].cluster_id
