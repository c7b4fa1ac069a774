"""A compacted topic as a table of the latest value for each key, compared with a slow model."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kstore.clients import Producer
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.tables import keep as keeping
from kstore.pipeline.jobs.tables.keep import keep_table
from kstore.testing.brokers import Broker
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.conftest import records_of
from tests.pipeline.jobs.tables.lake import Lake
from tests.pipeline.jobs.tables.readers import metadata_of, read

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.thorough]

MakeTopic = Callable[..., str]
COMPACT = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
START_MS = 1_600_000_000_000


def produce(broker: Broker, topic: str, count: int, seed: int) -> None:
    """Updates and tombstones of a few keys, some of them in both partitions. Timestamps do not
    increase monotonically.
    """
    rng = random.Random(seed)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(count):
            key = rng.randrange(12)
            partition = key % 2 if key < 8 else rng.randrange(2)
            producer.send(
                topic, None if rng.random() < 0.25 else b"%d-%d" % (seed, n), b"k%d" % key,
                partition=partition, timestamp=START_MS + seed * 1000 + rng.randrange(1000),
            )  # fmt: skip


def model(broker: Broker, topic: str) -> dict[bytes, tuple[int, int, bytes]]:
    """Key to partition, offset and value of its last record, if that has a value."""
    last: dict[bytes, tuple[Any, ...]] = {}
    for partition, records in records_of(broker, topic).items():
        newest = {key: (time, partition, offset, value) for offset, time, key, value, _ in records}
        for key, record in newest.items():
            last[key] = max(last.get(key, record), record, key=lambda each: each[:2])
    return {key: (p, offset, value) for key, (_, p, offset, value) in last.items() if value}


def found(lake: Lake, topic: str) -> dict[bytes, tuple[int, int, bytes]]:
    rows = lake.rows(topic)
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: (row["partition"], row["offset"], row["value"]) for row in rows}


def test_the_table_is_what_compaction_leaves(
    lake: Lake, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, **COMPACT)
    snapshots = []
    for seed in range(1, 5):
        produce(broker, topic, 40, seed)
        snapshots.append(lake.keep(broker, topic).snapshot)
        assert found(lake, topic) == model(broker, topic)
    assert lake.java_table(topic).currentSnapshot().operation() == "overwrite"

    table = lake.java_table(topic)
    table.manageSnapshots().rollbackTo(snapshots[1]).commit()
    produce(broker, topic, 10, 5)
    lake.keep(broker, topic)
    expected = model(broker, topic)
    assert found(lake, topic) == expected
    by_others = read(metadata_of(lake.file))
    wanted = sorted([str(p), repr(key), repr(value)] for key, (p, _, value) in expected.items())
    for reader in ("pyiceberg", "polars", "duckdb"):
        assert sorted([row[0], row[2], row[3]] for row in by_others[reader]) == wanted, reader


def test_after_a_pause_in_which_tombstones_may_have_gone_all_is_read_again(
    lake: Lake, broker: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = make_topic(2, **COMPACT)
    expiring = make_topic(2, **COMPACT | KEEP | {"cleanup.policy": "compact,delete"})
    for topic in (paused, expiring):
        produce(broker, topic, 30, 1)
        lake.keep(broker, topic, rows="latest")
    later = time.time() + 86_500
    monkeypatch.setattr(keeping.time, "time", lambda: later)
    produce(broker, paused, 30, 2)
    said: list[str] = []
    options = lake.options(broker.bootstrap_servers, paused)
    keep_table(lake.spark, options, said.append)
    assert any("all of the topic is read again" in each for each in said)
    assert found(lake, paused) == model(broker, paused)
    with pytest.raises(JobError, match=r"keys that expired .*--resync"):
        lake.keep(broker, expiring)


def test_a_record_without_a_key_is_an_error_or_left_out(
    lake: Lake, broker: Broker, make_topic: MakeTopic
) -> None:
    keyless = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key in (b"a", None, b"a", None):
            producer.send(keyless, b"v", key, partition=0)
    options = lake.options(broker.bootstrap_servers, keyless, rows="latest")
    with pytest.raises(JobError, match=r"partition 0: the record at offset [13] has no key"):
        keep_table(lake.spark, options, print)
    keep_table(lake.spark, replace(options, null_keys="skip"), print)
    assert found(lake, keyless) == {b"a": (0, 2, b"v")}
    with pytest.raises(JobError, match=r"has rows=latest, not all"):
        keep_table(lake.spark, replace(options, rows="all"), print)
