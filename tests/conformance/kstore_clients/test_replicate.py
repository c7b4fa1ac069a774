"""`kstore replicate` from a real Kafka: compacted and transactional topics keep their offsets, and
a consumer group continues at the right record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.beside.librdkafka import make_topics
from tests.beside.programs import output_of
from tests.beside.waiting import until
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kstore_broker import ROOT, KstoreBroker
from tests.conformance.live_kafka import LIVE_KAFKA
from tests.documents.readers import everything

pytestmark = LIVE_KAFKA

KAFKA = {
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), overrides=KAFKA) as broker:
        yield broker


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    with KstoreBroker(tmp_path_factory.mktemp("kstore")) as broker:
        yield broker


def producer(source: KafkaBroker, **more: Any) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 2} | more)


def replicate(source: KafkaBroker, target: KstoreBroker, *more: str) -> str:
    command = [
        sys.executable, "-m", "kstore", "replicate", "--from", source.bootstrap, "--to",
        target.bootstrap, "--until-caught-up", *more,
    ]  # fmt: skip
    return output_of(command, cwd=ROOT)


def test_a_compacted_topic_keeps_its_offsets(source: KafkaBroker, target: KstoreBroker) -> None:
    make_topics(
        source.bootstrap, "compacted", cleanup_policy="compact", segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01", segment_ms="300",
    )  # fmt: skip
    made = producer(source)
    for number in range(2000):
        made.produce("compacted", f"{number}" * 3, f"{number % 40}", headers=[("h", b"x")])
        if number % 100 == 0:
            made.flush(60)
    assert made.flush(60) == 0

    def is_cleaned() -> bool:
        made.produce("compacted", "new", "last")  # so that a new segment begins
        made.flush(60)
        return len(everything(source.bootstrap, "compacted", 1)[0]) < 1000

    until(is_cleaned, "the log is cleaned", pause_s=0.3)
    replicate(source, target, "compacted")
    (wanted,) = everything(source.bootstrap, "compacted", 1)
    (found,) = everything(target.bootstrap, "compacted", 1)
    # It may be cleaned further meanwhile, on either side: the last of each key is on both.
    assert set(found) & set(wanted)
    assert {row.key: row for row in found} == {row.key: row for row in wanted}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_and_a_group_that_moves(
    source: KafkaBroker, target: KstoreBroker, isolation: str
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic, group = f"txn-{isolation}", f"g-{isolation}"
    make_topics(source.bootstrap, topic, partitions=2, compression_type="zstd")
    made = producer(source, **{"transactional.id": topic})
    made.init_transactions(60)
    for number in range(12):
        made.begin_transaction()
        for part in range(10):
            made.produce(topic, f"{number}-{part}", partition=part % 2)
        made.flush(60)
        if number % 3 == 1:
            made.abort_transaction(60)
        else:
            made.commit_transaction(60)
    reader = Consumer({"bootstrap.servers": source.bootstrap, "group.id": group})
    reader.commit(
        offsets=[TopicPartition(topic, 0, 7), TopicPartition(topic, 1, 72)], asynchronous=False
    )
    reader.close()
    said = replicate(source, target, topic, "--isolation-level", isolation, "--groups", group)
    assert "2 group offsets" in said
    wanted = everything(source.bootstrap, topic, 2, isolation)
    assert everything(target.bootstrap, topic, 2) == wanted
    moved = Consumer({"bootstrap.servers": target.bootstrap, "group.id": group})
    try:
        found = moved.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 60)
    finally:
        moved.close()
    last = wanted[1][-1].offset
    assert [row.offset for row in found] == [7, last + 1], "at the end: not behind it"
