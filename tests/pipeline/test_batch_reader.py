"""Batch reads from a real broker, without Spark: where they begin and end, what executors do if
records are deleted, and errors that say where the problem is and what to do.
"""

from __future__ import annotations

import gc
import json
import socket
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.clients.replicator.blocking_fetches import BlockingFetcher
from kstore.pipeline import fetching
from kstore.pipeline.batch_reader import BatchReader
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.ranges import OffsetRange
from kstore.pipeline.schema import Wanted, checked_columns, source_schema
from kstore.pipeline.source import KstoreDataSource
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.pipeline.reading import SCHEMA, batch_rows, values, write

QUICK = {"kafkaConsumer.pollTimeoutMs": "1500", "fetchOffset.retryIntervalMs": "10"}
MakeTopic = Callable[..., str]


def at(topic: str, **places: int) -> str:
    """{"topic": {"0": 3}} for p0=3."""
    return json.dumps({topic: {name[1:]: place for name, place in places.items()}})


def test_all_records_of_all_partitions_in_order(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    write(broker.bootstrap_servers, topic, range(500))
    write(broker.bootstrap_servers, topic, range(500, 600), partition=1)
    assert values(batch_rows(broker.bootstrap_servers, topic)) == list(range(600))
    rows = batch_rows(broker.bootstrap_servers, topic, minPartitions="7")
    assert values(rows) == list(range(600))
    assert {row["topic"] for row in rows} == {topic}


def test_offsets_by_partition_bound_it(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        write(broker.bootstrap_servers, topic, range(10), partition)
    rows = batch_rows(
        broker.bootstrap_servers,
        topic,
        startingOffsets=at(topic, p0=8, p1=-2),
        endingOffsets=at(topic, p0=-1, p1=3),
    )
    assert values(rows) == [8, 9, 0, 1, 2]


def test_timestamps_bound_it(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(2, **{"retention.ms": "-1"})
    servers = broker.bootstrap_servers
    with Producer(servers) as producer:
        for value in range(10):
            producer.send(topic, b"%d" % value, partition=0, timestamp=1000 + value)
        producer.send(topic, b"99", partition=1, timestamp=1000)
        producer.flush()
    options = {"startingOffsetsByTimestampStrategy": "latest", "endingTimestamp": "1007"}
    rows = batch_rows(servers, topic, startingTimestamp="1005", **options)
    assert values(rows) == [5, 6]
    with pytest.raises(PipelineError, match=rf"topic {topic}, partition 1: .*1005 or later"):
        batch_rows(servers, topic, startingTimestamp="1005")
    rows = batch_rows(servers, topic, startingOffsetsByTimestamp=at(topic, p0=1009, p1=0))
    assert values(rows) == [9, 99]


def test_a_limit_that_does_not_name_every_partition_is_refused(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    with pytest.raises(PipelineError, match=rf"topic {topic}, partition 1: .*does not name it"):
        batch_rows(broker.bootstrap_servers, topic, startingOffsets=at(topic, p0=0))
    options = {"startingOffsets": at(topic, p0=0, p1=0, p2=0)}
    with pytest.raises(PipelineError, match=rf"topic {topic}, partition 2: .*does not read it"):
        batch_rows(broker.bootstrap_servers, topic, **options)


def test_an_offset_out_of_range_is_told_before_anything_is_read(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    servers = broker.bootstrap_servers
    write(servers, topic, range(10))
    admin.delete_records({TopicPartition(topic, 0): 4})
    for option, offset in (("startingOffsets", 3), ("endingOffsets", 11)):
        message = (
            rf"topic {topic}, partition 0, offset {offset}: option {option} .*begins at offset 4"
            r" and ends before 10\. Give an offset from 4 to 10"
        )
        with pytest.raises(PipelineError, match=message):
            batch_rows(servers, topic, **{option: at(topic, p0=offset)})
    options = {"failOnDataLoss": "false", "startingOffsets": at(topic, p0=3)}
    assert values(batch_rows(servers, topic, **options)) == [4, 5, 6, 7, 8, 9]


def test_records_deleted_after_planning_fail_the_task_unless_they_may_be_lost(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    write(broker.bootstrap_servers, topic, range(10))
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic} | QUICK
    reader = BatchReader(SCHEMA, given)
    tasks = reader.partitions()
    admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(PipelineError, match=rf"topic {topic}, partition 0, offset 0: .*offsets 4"):
        list(reader.read(tasks[0]))
    lossy = BatchReader(SCHEMA, given | {"failOnDataLoss": "false"})
    assert sum(len(batch) for batch in lossy.read(tasks[0])) == 6


def test_a_range_beyond_the_end_of_the_log_is_an_error_after_a_while(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    write(broker.bootstrap_servers, topic, range(3))
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic} | QUICK
    found = BatchReader(SCHEMA, given).read(InputPartition(OffsetRange(topic, 0, 0, 5)))
    assert next(found).column("offset").to_pylist() == [0, 1, 2]
    with pytest.raises(PipelineError, match=rf"topic {topic}, partition 0, offset 3: .*ends at 3"):
        next(found)
    lossy = BatchReader(SCHEMA, given | {"failOnDataLoss": "false"})
    assert sum(len(batch) for batch in lossy.read(InputPartition(OffsetRange(topic, 0, 0, 5)))) == 3


def test_a_topic_made_anew_after_planning_is_not_read(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    write(broker.bootstrap_servers, topic, range(3))
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic} | QUICK
    reader = BatchReader(SCHEMA, given)
    tasks = reader.partitions()
    assert sum(len(batch) for batch in reader.read(tasks[0])) == 3
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    write(broker.bootstrap_servers, topic, range(3))
    message = rf"topic {topic}, partition 0, offset 0: .*created again"
    with pytest.raises(PipelineError, match=message):
        list(reader.read(tasks[0]))
    admin.delete_topics([topic])
    with pytest.raises(PipelineError, match=rf"topic {topic}, partition 0, offset 0: "):
        list(reader.read(reader_task(tasks[0])))


def reader_task(task: InputPartition) -> InputPartition:
    """The same range of the topic that now has the name."""
    wanted = task.value
    return InputPartition(OffsetRange(wanted.topic, wanted.partition, wanted.start, wanted.end))


def test_uncommitted_records_are_left_out_where_that_is_asked_for(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    servers = broker.bootstrap_servers
    with Producer({"bootstrap.servers": servers, "transactional.id": topic}) as producer:
        producer.init_transactions()
        for value, commits in ((0, True), (1, False), (2, True)):
            producer.begin_transaction()
            producer.send(topic, b"%d" % value)
            producer.flush()
            (producer.commit_transaction if commits else producer.abort_transaction)()
    assert values(batch_rows(servers, topic)) == [0, 1, 2]
    committed = {"kafka.isolation.level": "read_committed"}
    assert values(batch_rows(servers, topic, **committed)) == [0, 2]


def test_missing_topics_and_partitions_are_named(broker: Broker, make_topic: MakeTopic) -> None:
    servers = broker.bootstrap_servers
    with pytest.raises(PipelineError, match=r"topic no-such-topic: .*Create the topic"):
        batch_rows(servers, "no-such-topic")
    topic = make_topic()
    given = {"kafka.bootstrap.servers": servers, "assign": json.dumps({topic: [0, 3]})}
    with pytest.raises(PipelineError, match=rf"topic {topic}, partition 3: there is no such"):
        BatchReader(SCHEMA, given).partitions()


def test_an_unreachable_broker_is_named_soon() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"} | QUICK
    message = r"brokers at 127\.0\.0\.1:1 did not report .*Check kafka\.bootstrap\.servers"
    with pytest.raises(PipelineError, match=message):
        BatchReader(SCHEMA, given).partitions()


def test_nothing_matches_a_pattern_and_there_is_nothing_to_read(broker: Broker) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": "none.*"}
    reader = BatchReader(SCHEMA, given)
    assert [list(reader.read(task)) for task in reader.partitions()] == [[]]


def test_pushed_filters_choose_partitions_and_shorten_ranges(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        write(broker.bootstrap_servers, topic, range(10), partition)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    reader = BatchReader(SCHEMA, given)
    pushed = [EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 7)]
    assert list(reader.pushFilters(pushed)) == []
    tasks = reader.partitions()
    found = [(t.value.partition, t.value.start, t.value.end) for t in tasks]
    assert found == [(1, 7, 10)]


def test_a_filter_on_timestamps_moves_the_start(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(2, **{"retention.ms": "-1"})
    with Producer(broker.bootstrap_servers) as producer:
        for value in range(10):
            producer.send(topic, b"%d" % value, partition=0, timestamp=1000 + value)
        producer.send(topic, b"0", partition=1, timestamp=5)
        producer.flush()
    reader = BatchReader(
        SCHEMA, {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    )
    bound = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(1.006, UTC))
    assert list(reader.pushFilters([bound])) == []
    tasks = reader.partitions()
    found = [(t.value.partition, t.value.start, t.value.end) for t in tasks]
    assert found == [(0, 6, 10)]


def test_a_schema_may_choose_columns_but_not_change_them() -> None:
    whole = source_schema(include_headers=True)
    assert whole.names[-1] == "headers"
    some = StructType([whole["value"], whole["offset"]])
    assert checked_columns(some, include_headers=False) == Wanted(("value", "offset"))
    text = StructType([StructField("offset", LongType()), StructField("value", StringType())])
    asked = Wanted(("offset", "value"), frozenset({"value"}))
    assert checked_columns(text, include_headers=False) == asked
    number = StructType([StructField("value", LongType())])
    with pytest.raises(PipelineError, match="'value' as bigint, which is binary or string"):
        checked_columns(number, include_headers=False)
    offset = StructType([StructField("offset", StringType())])
    with pytest.raises(PipelineError, match="'offset' as string, which is bigint"):
        checked_columns(offset, include_headers=False)
    with pytest.raises(PipelineError, match=r"'headers', which records do not have .set includeH"):
        checked_columns(whole, include_headers=False)


def test_a_wrong_option_is_told_when_the_dataframe_is_made() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribes": "a"}
    with pytest.raises(PipelineError, match="'subscribes'; the nearest is subscribe"):
        KstoreDataSource(options).schema()


def test_a_pyspark_that_is_too_old_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.3")
    with pytest.raises(PipelineError, match=r"needs PySpark 4\.2 or newer, this is 4\.1\.3"):
        KstoreDataSource({"subscribe": "a"}).schema()


def test_segments_are_no_stream() -> None:
    with pytest.raises(PipelineError, match="option path is for batch reads"):
        KstoreDataSource({"path": "data", "subscribe": "a"}).streamReader(SCHEMA)


# ---- a range of several fetches ----

SMALL = {"kafka.max.partition.fetch.bytes": "2000"}
"""A few batches of `several` in each response."""


@pytest.fixture
def several(broker: Broker, make_topic: MakeTopic) -> str:
    """A topic of 40 batches."""
    topic = make_topic(1)
    with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for value in range(40):
            producer.send(topic, b"%200d" % value, partition=0)
            producer.flush()
    return topic


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the requests that go over a blocking socket."""
    offsets: list[int] = []
    ask = BlockingFetcher.ask

    def seen(self: BlockingFetcher, *args: Any, **named: Any) -> None:
        offsets.append(args[2])
        ask(self, *args, **named)

    monkeypatch.setattr(BlockingFetcher, "ask", seen)
    return offsets


def pieces(broker: Broker, topic: str, **options: str) -> Generator[list[int], None, None]:
    """The values of a batch read, as they arrive."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    reader = BatchReader(SCHEMA, given | SMALL | QUICK | options)
    for task in reader.partitions():
        for batch in reader.read(task):
            yield [int(value.as_py()) for value in batch["value"]]


def test_all_fetches_of_a_range_but_the_first_use_a_blocking_socket(
    broker: Broker, several: str, asked: list[int]
) -> None:
    found = list(pieces(broker, several))
    assert list(chain(*found)) == list(range(40))
    assert asked == [rows[0] for rows in found[1:]]


def test_a_range_of_a_leader_that_has_answered_uses_the_blocking_socket_at_once(
    broker: Broker, several: str, asked: list[int]
) -> None:
    list(pieces(broker, several))
    asked.clear()
    found = list(pieces(broker, several))
    assert list(chain(*found)) == list(range(40))
    assert asked == [rows[0] for rows in found]


def test_a_connection_that_was_lost_between_two_ranges_is_replaced_by_the_client(
    broker: Broker, several: str, asked: list[int]
) -> None:
    list(pieces(broker, several))
    for client in fetching._clients.values():
        for each in chain(*client._idle.values()):
            with suppress(OSError):  # of another test's broker
                each._socket.shutdown(socket.SHUT_RDWR)
    asked.clear()
    assert list(chain(*pieces(broker, several))) == list(range(40))
    assert asked[0] == 0, "on the lost connection"
    assert len(asked) > 2, "the leader is known again"


def test_a_plan_of_a_topic_that_was_made_anew_is_not_read_by_a_known_leader(
    broker: Broker, admin: AdminClient, several: str, asked: list[int]
) -> None:
    list(pieces(broker, several))
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": several}
    reader = BatchReader(SCHEMA, given | SMALL | QUICK)
    (task,) = reader.partitions()
    admin.delete_topics([several])
    admin.create_topics([NewTopic(several, 1)])
    write(broker.bootstrap_servers, several, range(100, 140))
    asked.clear()
    with pytest.raises(PipelineError, match="deleted and created again"):
        list(reader.read(task))
    assert asked == [0]
    assert list(chain(*pieces(broker, several))) == list(range(100, 140))


def test_a_lost_connection_is_replaced_by_the_client(
    broker: Broker, several: str, asked: list[int]
) -> None:
    rows = pieces(broker, several)
    found = next(rows) + next(rows)
    for each in gc.get_objects():
        if isinstance(each, BlockingFetcher) and each.is_waiting:
            each._socket.shutdown(socket.SHUT_RDWR)
    assert found + list(chain(*rows)) == list(range(40))
    assert len(asked) < 4


def test_a_reader_that_stopped_leaves_no_response_to_the_next_one(
    broker: Broker, several: str, asked: list[int]
) -> None:
    rows = pieces(broker, several)
    next(rows), next(rows)
    rows.close()
    assert list(chain(*pieces(broker, several))) == list(range(40))
    assert len(asked) > 2


def test_a_topic_made_anew_between_two_fetches_is_not_read(
    broker: Broker, admin: AdminClient, several: str, asked: list[int]
) -> None:
    rows = pieces(broker, several)
    next(rows), next(rows)
    admin.delete_topics([several])
    admin.create_topics([NewTopic(several, 1)])
    write(broker.bootstrap_servers, several, range(100, 140))
    with pytest.raises(PipelineError, match="deleted and created again"):
        list(rows)
    assert asked


def test_a_throttled_connection_is_not_used_again(
    broker: Broker, several: str, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = BlockingFetcher.answer

    def throttled(self: BlockingFetcher) -> Any:
        found = answer(self)
        self.is_throttled = True
        return found

    monkeypatch.setattr(BlockingFetcher, "answer", throttled)
    assert list(chain(*pieces(broker, several))) == list(range(40))
    assert len(asked) == 1


def test_aborted_transactions_are_skipped_in_every_fetch(
    broker: Broker, make_topic: MakeTopic, asked: list[int]
) -> None:
    topic = make_topic(1)
    with Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for value in range(20):
            producer.begin_transaction()
            producer.send(topic, b"%200d" % value, partition=0)
            if value % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    found = pieces(broker, topic, **{"kafka.isolation.level": "read_committed"})
    assert list(chain(*found)) == list(range(0, 20, 2))
    assert asked


def test_a_task_that_reads_keeps_its_memory(
    broker: Broker, several: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    keep = "kstore.pipeline.batch_reader.keep_memory"
    monkeypatch.setattr(keep, lambda: called.append("batch"))
    next(pieces(broker, several))
    assert called == ["batch"]
