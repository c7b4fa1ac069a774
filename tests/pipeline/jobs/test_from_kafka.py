"""The jobs on a real Kafka: topics with transactions and committed offsets are replicated, archived
and verified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.clients.replicator import ReplicationOptions
from kstore.pipeline.jobs.archive import ArchiveOptions, archive
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.replicate import ReplicateOptions, replicate
from kstore.pipeline.jobs.restore import RestoreOptions, restore
from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide
from kstore.pipeline.jobs.verification.verify import VerifyOptions, verify
from kstore.testing.brokers import Broker
from tests.beside.librdkafka import commits, consumer_of, make_topics
from tests.beside.waiting import until
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.live_kafka import LIVE_KAFKA
from tests.pipeline.jobs.conftest import settings, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = LIVE_KAFKA
TOPICS = re.compile("from-kafka-.*")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Kafka 4.3.1 with two topics. One was written in transactions, one of which was aborted."""
    from confluent_kafka import Producer, TopicPartition

    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        names = ("from-kafka-a", "from-kafka-b")
        make_topics(running.bootstrap, *names, partitions=2, retention_ms="-1")
        plain = Producer({"bootstrap.servers": running.bootstrap, "compression.type": "zstd"})
        for n in range(300):
            plain.produce(
                "from-kafka-a", b"a%d" % n, b"k%d" % (n % 5), n % 2, headers=[("n", b"1")]
            )
        plain.flush(60)
        writer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "w"})
        writer.init_transactions(60)
        for number in range(3):
            writer.begin_transaction()
            for n in range(20):
                writer.produce("from-kafka-b", b"%d-%d" % (number, n), b"k", n % 2)
            writer.flush(60)
            (writer.abort_transaction if number == 1 else writer.commit_transaction)(60)
        with closing(consumer_of(running.bootstrap, "readers")) as consumer:
            offsets = [TopicPartition("from-kafka-a", 1, 77)]
            until(lambda: commits(consumer, offsets), "the coordinator has loaded")
        yield running


def test_a_kafka_s_topics_are_copied_archived_and_verified(
    spark: SparkSession, kafka: KafkaBroker, target: Broker, tmp_path: Path
) -> None:
    there = settings(target)
    source = there | {"bootstrap.servers": kafka.bootstrap}
    copying = ReplicationOptions(TOPICS, groups=re.compile("readers"))
    done = replicate(spark, ReplicateOptions(source, there, copying), silent, silent)
    assert (done.records, done.problems, done.group_offsets) == (340, [], 1)
    left, right = ClusterSide(source), ClusterSide(there)
    found = verify(spark, VerifyOptions(TOPICS, left, right), silent)
    assert found.findings == []
    assert [(s.topic, s.left_records, s.right_records) for s in found.summaries] == [
        ("from-kafka-a", 150, 150), ("from-kafka-a", 150, 150),
        ("from-kafka-b", 20, 20), ("from-kafka-b", 20, 20),
    ]  # fmt: skip

    slices = archive(spark, ArchiveOptions(source, str(tmp_path), TOPICS, tasks=1), silent)
    assert [(s.topic, s.records, s.missing) for s in slices] == [
        ("from-kafka-a", 150, 0), ("from-kafka-a", 150, 0),
        ("from-kafka-b", 20, 13), ("from-kafka-b", 20, 13),
    ]  # fmt: skip
    side = ArchiveSide(str(tmp_path))
    assert verify(spark, VerifyOptions(TOPICS, left, side), silent).findings == []
    # A copy has its own epochs and topic ids; the records are equal.
    assert verify(spark, VerifyOptions(TOPICS, right, side), silent).findings == []
    with pytest.raises((JobError, Exception), match="does not accept records at given offsets"):
        restore(spark, RestoreOptions(str(tmp_path), source, TOPICS), silent)
