"""The two brokers side by side: `kstore serve` and a real Kafka 4.3.1, with the same topics, for
the groups that compare them. Without Java the peer is absent and its columns stay empty.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kafka_jars import KafkaUnavailableError, fetch_jars, java_program
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.python_clients import ConfluentClient

__all__ = ["KAFKA", "KSTORE", "Broker", "both", "create_topic", "kafka_or_none"]

KSTORE = "kstore"
KAFKA = "Kafka 4.3.1"
Broker = KstoreBroker | KafkaBroker


def kafka_or_none(folder: Path) -> KafkaBroker | None:
    """A Kafka not yet started; None, with a word on stderr, where there is no Java."""
    try:
        java_program()
        fetch_jars()
    except KafkaUnavailableError as error:
        print(f"no Kafka to compare with: {error}", file=sys.stderr)
        return None
    return KafkaBroker(folder)


@contextmanager
def both(scratch: Path) -> Iterator[dict[str, Broker]]:
    """Both brokers, running; stopped at the end."""
    with ExitStack() as stack:
        running: dict[str, Broker] = {KSTORE: stack.enter_context(KstoreBroker(scratch / "kstore"))}
        peer = kafka_or_none(scratch / "kafka")
        if peer is not None:
            running[KAFKA] = stack.enter_context(peer)
        yield running


def create_topic(broker: Broker, topic: str, partitions: int) -> None:
    """Creates a topic and waits until it can be produced to."""
    ConfluentClient(broker.bootstrap).create_topic(topic, partitions)
