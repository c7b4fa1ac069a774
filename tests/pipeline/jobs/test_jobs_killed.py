"""The real commands, each with its JVM and workers, are killed (kill -9) at random moments and run
again. Afterwards no record is lost, duplicated or in another place.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.beside.topic_records import transaction
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.conftest import archived as archive_topics
from tests.pipeline.jobs.conftest import records_of
from tests.pipeline.jobs.killed_jobs import Jobs

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough, pytest.mark.timeout(400)]

TOPIC, PARTITIONS = "orders", 8
TRANSACTIONS, RECORDS = 150, 160
"""How many there are, and of how many records each."""
DAY_MS, START_MS = 86_400_000, 1_600_000_000_000


@pytest.fixture(scope="module")
def source(broker: Broker) -> Broker:
    """A broker with a transactional topic: markers and aborted records leave gaps between its
    records, so a job writes many small pieces.
    """
    where = broker.bootstrap_servers
    with AdminClient(bootstrap_servers=where) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, configs=KEEP)])
        with Producer(bootstrap_servers=where, transactional_id="orders") as producer:
            producer.init_transactions()
            for number in range(TRANSACTIONS):
                with transaction(producer, commits=number % 10 != 3):
                    for n in range(number * RECORDS, (number + 1) * RECORDS):
                        producer.send(
                            TOPIC, b"v%d " % n * (n % 20), b"k%d" % (n % 999),
                            partition=n % PARTITIONS,
                            headers=[("n", b"%d" % n)] if n % 5 == 0 else [],
                            timestamp=START_MS + n * 3 * DAY_MS // (TRANSACTIONS * RECORDS),
                        )  # fmt: skip
        admin.alter_group_offsets("order-readers", {TopicPartition(TOPIC, 0): 1000})
    return broker


@pytest.fixture
def ends(target: Broker) -> Iterator[Callable[[str], int]]:
    """The sum of the end offsets of a topic in the target; 0 while the topic does not exist."""
    with AdminClient(bootstrap_servers=target.bootstrap_servers) as admin:

        def total(topic: str) -> int:
            if topic not in admin.list_topics():
                return 0
            tps = [TopicPartition(topic, index) for index in range(PARTITIONS)]
            found = admin.list_offsets(dict.fromkeys(tps, "latest"))
            return sum(row.offset for row in found.values())

        yield total


def files(folder: Path) -> list[str]:
    """All Parquet files below the folder, including those of unfinished tasks."""
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".parquet")]


def archived(folder: Path) -> dict[int, list[tuple[Any, ...]]]:
    """The records of finished runs in an archive, in the form of `records_of`."""
    import pyarrow.dataset as ds

    slices = ds.dataset(folder / "slices", partitioning="hive").to_table().to_pylist()
    assert sum(each["records"] + each["missing"] for each in slices) == sum(
        each["end"] - each["start"] for each in slices
    )
    found: dict[int, list[tuple[Any, ...]]] = {index: [] for index in range(PARTITIONS)}
    for run in {each["run"] for each in slices}:
        data = ds.dataset(folder / f"data/run={run}/entry=record", partitioning="hive")
        for row in data.to_table().to_pylist():
            headers = [(pair["key"], pair["value"]) for pair in row["headers"] or ()]
            key, value = row["key"], row["value"]
            found[row["partition"]].append(
                (row["offset"], row["timestampMillis"], key, value, headers)
            )
    return {partition: sorted(rows) for partition, rows in found.items()}


def test_an_archive_is_killed(source: Broker, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    folder = jobs.folder / "archive"
    archive = "archive", TOPIC, "--archive", str(folder), "-b", source.bootstrap_servers
    # In a quarter of the cases, kill it while it finishes the run.
    count = random.randint(1, 36)
    committing = count > 27
    print(f"archive: killed {'while it commits' if committing else f'at {count} files'}")
    jobs.kill_when(
        (folder / "slices").exists if committing else lambda: len(files(folder)) >= count, *archive
    )
    jobs.finish(*archive)
    expected = records_of(source, TOPIC)
    assert sum(len(rows) for rows in expected.values()) == TRANSACTIONS * RECORDS * 9 // 10
    assert archived(folder) == expected


def test_a_restore_is_killed(
    source: Broker, target: Broker, ends: Callable[[str], int], tmp_path: Path
) -> None:
    """Of an archive made without Spark, which is the same (test_local_archive.py)."""
    jobs = Jobs(tmp_path)
    folder = jobs.folder / "archive"
    slices = archive_topics(None, source, folder, TOPIC)
    assert sum(each.records for each in slices) == TRANSACTIONS * RECORDS * 9 // 10
    restore = (
        "restore", TOPIC, "--archive", str(folder), "-b", target.bootstrap_servers,
        "--rename", f"{TOPIC}=restored",
    )  # fmt: skip
    offset = random.randint(1, TRANSACTIONS * RECORDS * 6 // 10)
    jobs.kill_when(lambda: ends("restored") >= offset, *restore)
    print(f"restore: killed at {ends('restored')} offsets, wanted {offset}")
    jobs.finish(*restore)
    assert records_of(target, "restored") == records_of(source, TOPIC)


def test_a_replication_is_killed(
    source: Broker, target: Broker, ends: Callable[[str], int], tmp_path: Path
) -> None:
    jobs = Jobs(tmp_path)
    replicate = (
        "replicate", TOPIC, "--from", source.bootstrap_servers, "--to", target.bootstrap_servers,
    )  # fmt: skip
    offset = random.randint(1, TRANSACTIONS * RECORDS * 6 // 10)
    # Slow enough to be observed at work.
    jobs.kill_when(lambda: ends(TOPIC) >= offset, *replicate, "--rate-limit", "512KB")
    print(f"replicate: killed at {ends(TOPIC)} offsets, wanted {offset}")
    jobs.finish(*replicate)
    assert records_of(target, TOPIC) == records_of(source, TOPIC)
    with AdminClient(bootstrap_servers=target.bootstrap_servers) as admin:
        committed = admin.list_group_offsets("order-readers")
    assert committed[TopicPartition(TOPIC, 0)].offset == 1000
