"""What the tests of jobs share: a second cluster, records, and a function that reads topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kstore.clients import Consumer, Producer
from kstore.pipeline.jobs.archive import ArchiveOptions, archive
from kstore.pipeline.jobs.layout import Slice
from kstore.pipeline.jobs.restore import Restored, RestoreOptions, restore
from kstore.testing.brokers import Broker
from tests.beside import topic_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Records = dict[int, list[tuple[Any, ...]]]


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A second kstore broker, for copies."""
    with Broker(tmp_path_factory.mktemp("target")) as started:
        yield started


def silent(_: object) -> None:
    """Ignores progress."""


def settings(broker: Broker) -> dict[str, Any]:
    """The settings of a client."""
    return {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": 20_000}


def write_all_kinds(broker: Broker, topic: str, numbers: range, **options: Any) -> None:
    """Null keys and values, headers and old timestamps, in three partitions."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
        for n in numbers:
            producer.send(
                topic,
                None if n % 7 == 3 else b"v%d" % n * (n % 5),
                None if n % 5 == 4 else b"k%d" % (n % 9),
                headers=[("h", None), ("h", b"%d" % n)] if n % 3 == 0 else [],
                timestamp=1_600_000_000_000 + n * 3_600_000,
                partition=n % 3,
            )


def options(broker: Broker, folder: Path, topics: str, **more: Any) -> ArchiveOptions:
    """Of an archive of a broker's topics."""
    return ArchiveOptions(settings(broker), str(folder), re.compile(topics), **more)


def archived(
    spark: SparkSession | None, broker: Broker, folder: Path, topics: str, **more: Any
) -> list[Slice]:
    """Run the job in this process, without Spark."""
    return archive(spark, options(broker, folder, topics, **more), silent)


def restored(
    spark: SparkSession | None, folder: Path, broker: Broker, **more: Any
) -> list[Restored]:
    """Run the job in this process, without Spark."""
    more.setdefault("topics", re.compile(".*"))
    return restore(spark, RestoreOptions(str(folder), settings(broker), **more), silent)


def records_of(broker: Broker, topic: str) -> Records:
    """The committed records of a topic by partition: offset, timestamp, key, value, headers."""
    with Consumer(broker.bootstrap_servers) as consumer:
        found: Records = {index: [] for index in range(len(consumer.partitions_for(topic)))}
    committed = {"isolation_level": "read_committed"}
    for r in topic_records.records_of(broker.bootstrap_servers, topic, **committed):
        headers = [tuple(header) for header in r.headers]
        found[r.partition].append((r.offset, r.timestamp, r.key, r.value, headers))
    return found
