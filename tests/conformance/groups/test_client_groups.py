"""kstore's consumers in one group with others: with Java's against a real Kafka, with librdkafka's
against kstore; with each protocol, as the first member (the leader) and as the second.
"""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from kstore.clients import AIOAdminClient, NewTopic
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.beside.waiting import reached
from tests.beside.worker import Worker
from tests.clients.io.group_driver import Poller
from tests.clients.io.test_groups import PROTOCOLS, SETTINGS
from tests.conformance.java.test_java_verifiable import ASSIGNORS, Consumer
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = pytest.mark.slow

PARTITIONS = 4
BROKER = {
    name: value
    for name, value in SETTINGS.items()
    if name != "group.consumer.assignment.interval.ms"
}
LIBRDKAFKA = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
JAVA = {
    "range": ["--assignment-strategy", ASSIGNORS["eager"]],
    "cooperative": ["--assignment-strategy", ASSIGNORS["cooperative"]],
    "consumer": ["--group-protocol", "consumer"],
}
_names = itertools.count(1)


class ConfluentMember(Worker):
    """A consumer of librdkafka that polls in a thread."""

    def __init__(self, bootstrap: str, topic: str, protocol: str) -> None:
        super().__init__("librdkafka")
        settings = {"bootstrap.servers": bootstrap, "group.id": f"g-{topic}"} | LIBRDKAFKA[protocol]
        if protocol != "consumer":
            settings |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "300"}
        self._consumer = confluent_kafka.Consumer(settings)
        self._held: set[int] = set()
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Any, partitions: Any) -> None:
        self._held |= {row.partition for row in partitions}

    def _revoked(self, _: Any, partitions: Any) -> None:
        self._held -= {row.partition for row in partitions}

    def work(self) -> None:
        while not self.stopping.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()

    def held(self) -> set[int]:
        return set(self._held)


async def share(bootstrap: str, protocol: str, start_other: Any, *, ours_first: bool) -> None:
    """Both have half of the partitions, then ours has all, with the offsets that were committed."""
    name = f"mixed{next(_names)}"
    group_id = f"g-{name}"
    async with AIOAdminClient(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS)])
    everything = set(range(PARTITIONS))
    async with Poller(bootstrap, group_id, **PROTOCOLS[protocol]) as ours:

        def held() -> set[int]:
            return {tp.partition for tp in ours.owned}

        if ours_first:
            await ours.subscribe(name)
            await reached(lambda: held() == everything)
            half = [TopicPartition(name, index) for index in range(PARTITIONS)]
            await ours.group.commit({tp: OffsetAndMetadata(5, "note", 0) for tp in half})
        with await asyncio.to_thread(start_other, bootstrap, name, protocol) as other:
            await reached(lambda: other.held() == (everything - held()))
            await ours.subscribe(name)
            await reached(lambda: len(held()) == 2 and other.held() == everything - held())
            assert not ours.errors
        await reached(lambda: held() == everything)
        if ours_first:
            found = await ours.group.committed(half)
            assert {row.metadata for row in found.values() if row} == {"note"}
            assert None not in found.values()


def start_java(bootstrap: str, topic: str, protocol: str) -> Consumer:
    return Consumer(SimpleNamespace(bootstrap=bootstrap), topic, *JAVA[protocol])


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_with_librdkafka_against_kstore(
    files_kstore: KstoreBroker, protocol: str, ours_first: bool
) -> None:
    scene = share(files_kstore.bootstrap, protocol, ConfluentMember, ours_first=ours_first)
    asyncio.run(asyncio.wait_for(scene, 180))


@pytest.mark.thorough
@pytest.mark.java
@pytest.mark.parametrize(
    ("protocol", "ours_first"), [("range", True), ("cooperative", False), ("consumer", True)]
)
def test_with_java_against_kafka(files_kafka: KafkaBroker, protocol: str, ours_first: bool) -> None:
    scene = share(files_kafka.bootstrap, protocol, start_java, ours_first=ours_first)
    asyncio.run(asyncio.wait_for(scene, 180))
