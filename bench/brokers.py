"""The two brokers: `kstore serve` and a real Kafka 4.3.1, with the same settings and topics.
Without Java there is no peer, and its columns are empty.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import frames
from bench.measure import Settings, progress
from tests.conformance.kafka_broker import SERVER_FLAGS, KafkaBroker
from tests.conformance.kafka_jars import KafkaUnavailableError, fetch_jars, java_program
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.wire import exchange

__all__ = [
    "KAFKA",
    "KSTORE",
    "Broker",
    "alter_topic",
    "create_topic",
    "delete_topic",
    "exchange_once",
    "make",
]

KSTORE = "kstore"
KAFKA = "Kafka 4.3.1"
CREATED_WITHIN_S = 60.0
Broker = KstoreBroker | KafkaBroker

# The same for both if it matters. Everything else is each broker's default.
SAME = {
    "num.partitions": "1",
    "log.segment.bytes": str(1 << 30),
    "log.retention.hours": "168",
    "group.initial.rebalance.delay.ms": "0",
    # By default, changes of a group are collected for a second before partitions are assigned
    # again.
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
SHOWN = (
    "log.segment.bytes",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "kstore.flush.policy",
    "num.partitions",
    "compression.type",
)
"""What the report says about both brokers, as they describe themselves."""


def kstore_broker(folder: Path) -> KstoreBroker:
    """kstore's broker below a folder, not started, for groups that do not measure Kafka. It runs
    like a user's broker: with byte code from earlier starts, and without the checks of tests.
    """
    environment = {"PYTHONDONTWRITEBYTECODE": "", "KSTORE_CHECK_INVARIANTS": "false"}
    return KstoreBroker(folder, overrides=SAME, environment=environment)


def make(folder: Path, settings: Settings) -> dict[str, Broker]:
    """Both brokers below the folder, not started. Only kstore if there is no Java (this is reported
    on stderr), or if that was requested.
    """
    # Like a user's Python, the first start writes byte code for the next ones.
    environment = {"PYTHONDONTWRITEBYTECODE": ""}
    ours = KstoreBroker(folder / "kstore", overrides=SAME, environment=environment)
    brokers: dict[str, Broker] = {KSTORE: ours}
    if settings.alone:
        return brokers
    try:
        java_program()
        fetch_jars()
    except KafkaUnavailableError as error:
        progress(f"no Kafka to compare with: {error}")
        return brokers
    brokers[KAFKA] = KafkaBroker(folder / "kafka", overrides=SAME, jvm=SERVER_FLAGS)
    return brokers


def exchange_once(broker: Broker, frame: bytes, *, timeout_s: float = 30) -> bytes:
    """Send one request on a separate connection. Returns the response without its length."""
    address = (broker.host, broker.port)
    with socket.create_connection(address, timeout=timeout_s) as connection:
        return exchange(connection, frame)


def served(broker: Broker) -> dict[int, tuple[int, int]]:
    """API key to the versions that the broker advertises."""
    return frames.api_versions_answer(exchange_once(broker, frames.api_versions()))


def _admin(broker: Broker) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def create_topic(
    broker: Broker, topic: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic and wait until every partition answers."""
    from confluent_kafka.admin import NewTopic

    admin = _admin(broker)  # referenced until the result has arrived
    made = NewTopic(topic, partitions, 1, config=dict(configs or {}))
    admin.create_topics([made])[topic].result(30)
    frame = frames.latest_offsets(topic, range(partitions))
    until = time.monotonic() + CREATED_WITHIN_S
    while True:
        found = frames.latest_offsets_answer(exchange_once(broker, frame))
        lacking = [partition for partition, (code, _) in found.items() if code]
        if not lacking:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"{topic} was created, but partitions {lacking[:9]} do not answer")
        time.sleep(0.01)


def delete_topic(broker: Broker, topic: str) -> None:
    """Delete a topic, so that its files do not fill the disk."""
    admin = _admin(broker)
    admin.delete_topics([topic])[topic].result(30)


def alter_topic(broker: Broker, topic: str, configs: Mapping[str, str]) -> None:
    """Set configs of a topic."""
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = _admin(broker)
    admin.incremental_alter_configs([resource])[resource].result(30)


def describe(broker: Broker) -> str:
    """The settings of `SHOWN`, as the running broker describes them. Settings that it does not have
    are omitted.
    """
    from confluent_kafka.admin import ConfigResource, ResourceType

    admin = _admin(broker)
    (node_id,) = admin.list_topics(timeout=30).brokers
    resource = ConfigResource(ResourceType.BROKER, str(node_id))
    found = admin.describe_configs([resource])[resource].result(30)
    return ", ".join(f"{name}={found[name].value}" for name in SHOWN if name in found)
