"""Unmodified clients and a topic that grows: none is disturbed, and with `kstore.ordered.expansion`
a consumer of the consumer protocol reads what was written before first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.beside.librdkafka import quick_member, write_all
from tests.beside.waiting import until
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_broker import QUICK_GROUPS, KstoreBroker

pytestmark = pytest.mark.slow

SETTINGS = QUICK_GROUPS


def producer(broker: KstoreBroker, **more: Any) -> Any:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": broker.bootstrap, "topic.metadata.refresh.interval.ms": 500}
    return Producer(settings | {"linger.ms": 0} | more)


def poll_until(reader: Any, seen: list[tuple[int, bytes]], done: Callable[[], bool]) -> None:
    """Let the consumer read until there is enough."""

    def enough() -> bool:
        message = reader.poll(0.05)
        if message is not None and message.error() is None:
            seen.append((message.partition(), message.value()))
        return done()

    until(enough, f"all is read, not only {len(seen)}", pause_s=0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_clients_go_on_while_a_topic_grows(files_kstore: KstoreBroker, protocol: str) -> None:
    """Leader epochs are begun for it; a producer with idempotence loses and doubles nothing."""
    topic = f"grows-{protocol}"
    client = TopicClient(files_kstore)
    client.create(topic, 2)
    made = producer(files_kstore, **{"enable.idempotence": True})
    reader = quick_member(
        files_kstore.bootstrap, topic, f"g-{topic}", **{"group.protocol": protocol}
    )
    seen: list[tuple[int, bytes]] = []
    wanted: list[str] = []
    try:
        for count in (3, 4, 6):
            values = [f"{count}-{number}" for number in range(200)]
            for value in values[:100]:
                made.produce(topic, value, key=value)
            client.grow(topic, count)
            for value in values[100:]:
                made.produce(topic, value, key=value)
            assert made.flush(60) == 0
            wanted.extend(values)
            poll_until(reader, seen, lambda: len(seen) >= len(wanted))
        until(lambda: len(made.list_topics(topic).topics[topic].partitions) == 6, "all are known")
        write_all(files_kstore.bootstrap, topic, ["last"] * 6, list(range(6)))
        poll_until(
            reader, seen, lambda: {part for part, v in seen if v == b"last"} == set(range(6))
        )
    finally:
        reader.close()
    assert sorted(v.decode() for _, v in seen if v != b"last") == sorted(wanted)


def test_an_unmodified_consumer_reads_in_order_across_an_expansion(
    files_kstore: KstoreBroker,
) -> None:
    topic = "ordered"
    client = TopicClient(files_kstore)
    client.create(topic, 2, kstore_ordered_expansion="true")
    made = producer(files_kstore)
    old = [f"old-{number}" for number in range(500)]
    write_all(files_kstore.bootstrap, topic, old, [0, 1])
    client.grow(topic, 4)
    until(lambda: len(made.list_topics(topic).topics[topic].partitions) == 4, "all are known")
    new = [f"new-{number}" for number in range(500)]
    write_all(files_kstore.bootstrap, topic, new, [2, 3])
    reader = quick_member(
        files_kstore.bootstrap, topic, f"g-{topic}", **{"group.protocol": "consumer"}
    )
    seen: list[tuple[int, bytes]] = []
    try:
        poll_until(reader, seen, lambda: len(seen) >= len(old) + len(new))
    finally:
        reader.close()
    parts = [part for part, _ in seen]
    assert sorted(value.decode() for _, value in seen) == sorted(old + new)
    assert set(parts[: len(old)]) == {0, 1}, "what was written before comes first"
    assert set(parts[len(old) :]) == {2, 3}
