"""A topic that is maintained as a table: every committed record is one row, whatever happens to the
table, the topic and the commits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.tables.iceberg import Catalog, Table
from kstore.pipeline.jobs.tables.keep import TableOptions, keep_table, table_name, target
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.beside.topic_records import transaction
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.conftest import records_of
from tests.pipeline.jobs.tables.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.java]

DAY_MS = 86_400_000
MakeTopic = Callable[..., str]
START_MS = 1_600_000_000_000


def produce(broker: Broker, topic: str, count: int, *, aborted: bool = False) -> None:
    """Records of two partitions over three days, in a transaction."""
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=f"{topic}-writer"
    ) as producer:
        producer.init_transactions()
        with transaction(producer, commits=not aborted):
            for n in range(count):
                producer.send(
                    topic, None if n % 9 == 8 else b"v%d" % n,
                    None if n % 7 == 6 else b"k%d" % (n % 5),
                    partition=n % 2, headers=[("n", b"%d" % n)] if n % 3 == 0 else [],
                    timestamp=START_MS + n * 3 * DAY_MS // count,
                )  # fmt: skip


def check(lake: Lake, broker: Broker, topic: str) -> int:
    """Check that the rows are the records of the topic; returns their number."""
    rows = [
        (
            row["partition"], row["offset"], round(row["timestamp"].timestamp() * 1000),
            row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"]],
        )
        for row in lake.rows(topic)
    ]  # fmt: skip
    expected = [
        (partition, *record)
        for partition, records in sorted(records_of(broker, topic).items())
        for record in records
    ]
    assert rows == expected
    return len(rows)


def test_the_names_of_a_target() -> None:
    assert target("iceberg:lake/a/b") == ("lake", "a.b")
    assert table_name("orders.v1-x") == "orders_v1_x"
    with pytest.raises(ValueError, match="iceberg:CATALOG/NAMESPACE"):
        target("lake.a")


def test_each_record_is_one_row_whatever_others_do_to_the_table(
    lake: Lake, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, **KEEP)
    produce(broker, topic, 40)
    produce(broker, topic, 10, aborted=True)
    first = lake.keep(broker, topic)
    assert (first.records, first.lost, first.behind) == (40, 0, 0)
    assert first.offsets == 54  # 40, 10 aborted, and two markers in each of two partitions
    assert check(lake, broker, topic) == 40
    table = lake.java_table(topic)
    assert table.spec().toString().count("day(") == 1
    assert lake.keep(broker, topic).snapshot == first.snapshot  # nothing new: no commit

    # Another writer commits; then the table is rolled back to before the second round.
    table.newAppend().commit()
    produce(broker, topic, 20)
    assert lake.keep(broker, topic).records == 20
    assert check(lake, broker, topic) == 60
    table.refresh()
    table.manageSnapshots().rollbackTo(first.snapshot).commit()
    assert len(lake.rows(topic)) == 40
    assert lake.keep(broker, topic).records == 20
    assert check(lake, broker, topic) == 60


@pytest.mark.thorough
def test_a_commit_whose_answer_is_lost_counts_once(
    lake: Lake, broker: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.protocol import Py4JNetworkError

    topic = make_topic(2, **KEEP)
    produce(broker, topic, 20)
    lake.keep(broker, topic)
    swap = Table._swap
    happened = []

    def lose_the_answer(self: Table, base: Any, made: Any) -> None:
        if happened:
            swap(self, base, made)
        happened.append(True)
        raise Py4JNetworkError("the connection was closed")

    monkeypatch.setattr(Table, "_swap", lose_the_answer)
    produce(broker, topic, 10)
    with pytest.raises(JobError, match="The table does not have it"):
        lake.keep(broker, topic)  # the request did not arrive
    assert len(lake.rows(topic)) == 20
    assert lake.keep(broker, topic).records == 10  # it arrived, and the answer was lost
    monkeypatch.undo()
    assert lake.keep(broker, topic).records == 0
    assert check(lake, broker, topic) == 30


@pytest.mark.thorough
def test_two_jobs_at_once_write_each_record_once(
    lake: Lake, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, **KEEP)
    produce(broker, topic, 60)
    lake.keep(broker, topic, max_offsets=1)

    def work(_: int) -> None:
        while (kept := lake.keep(broker, topic, max_offsets=7)).behind:
            assert kept.offsets

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert check(lake, broker, topic) == 60


@pytest.mark.thorough
def test_records_that_were_deleted_before_they_were_rows(
    lake: Lake, broker: Broker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, **KEEP)
    produce(broker, topic, 20)
    catalog = Catalog(lake.spark, lake.name)
    assert catalog.load("shop", topic) is None
    lake.keep(broker, topic, max_offsets=4)
    admin.delete_records({TopicPartition(topic, 0): 6, TopicPartition(topic, 1): 2})
    with pytest.raises(JobError, match="offsets 4 to 5 were deleted before the table had them"):
        lake.keep(broker, topic)
    assert len(lake.rows(topic)) == 4
    kept = lake.keep(broker, topic, on_loss="skip")
    assert (kept.lost, kept.records) == (4, 12)
    assert len(lake.rows(topic)) == 16


@pytest.mark.thorough
def test_a_topic_made_again_and_a_table_without_notes_are_resynced(
    lake: Lake, broker: Broker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(2, **KEEP)
    produce(broker, topic, 20)
    lake.keep(broker, topic)
    table = lake.java_table(topic)
    for _ in range(2):  # the progress is only on an ancestor that expires
        table.newAppend().commit()
    table.manageSnapshots().removeTag("kstore_progress").commit()
    current = table.currentSnapshot()
    expire = table.expireSnapshots().expireOlderThan(current.timestampMillis() + 1).retainLast(1)
    expire.commit()
    with pytest.raises(JobError, match=r"none of the snapshots .* says how far"):
        lake.keep(broker, topic)
    assert lake.keep(broker, topic, resync=True).records == 20
    assert check(lake, broker, topic) == 20

    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 2, configs=KEEP)])
    produce(broker, topic, 30)
    with pytest.raises(JobError, match="deleted and created again"):
        lake.keep(broker, topic)
    assert lake.keep(broker, topic, resync=True).records == 30
    assert check(lake, broker, topic) == 30


@pytest.mark.thorough
def test_what_cannot_be_a_table_of_the_topic_is_an_error(
    lake: Lake, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    one, two = make_topic(2, **KEEP), make_topic(2, **KEEP)
    lake.keep(broker, one)
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    with pytest.raises(JobError, match=f"has topic {one}, not {two}"):
        keep_table(lake.spark, TableOptions(settings, two, lake.name, "shop", one), print)
    with pytest.raises(JobError, match=r"Spark has no catalog nowhere: .*--conf"):
        keep_table(lake.spark, TableOptions(settings, two, "nowhere", "shop", two), print)
    with pytest.raises(JobError, match="no topic three"):
        lake.keep(broker, "three")
