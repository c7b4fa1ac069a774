"""Streaming reads from a real broker, called as Spark calls them: rate limits, new partitions,
restarts, recreated topics, deleted records, ordered expansion.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kstore.clients import AdminClient, NewTopic
from kstore.clients.io.list_offsets import EpochEnd, FoundOffset
from kstore.errors import KafkaError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.positions import Position, Positions
from kstore.pipeline.ranges import OffsetRange
from kstore.pipeline.read_options import LATEST
from kstore.pipeline.stream_reader import StreamReader
from kstore.pipeline.topic_client import Life
from kstore.testing.brokers import Broker, Cluster
from kstore.types import TopicPartition
from tests.pipeline.reading import SCHEMA, Query, values, write

MakeTopic = Callable[[int], str]


@pytest.fixture
def start(broker: Broker) -> Iterator[Callable[..., Query]]:
    queries: list[Query] = []

    def begin(topic: str, **options: object) -> Query:
        servers = broker.bootstrap_servers
        quick = {"fetchOffset.retryIntervalMs": "10"}
        queries.append(Query(servers, topic, **(quick | options)))  # type: ignore[arg-type]
        return queries[-1]

    yield begin
    for query in queries:
        query.close()


Start = Callable[..., Query]


def test_each_micro_batch_goes_on_where_the_last_one_ended(
    broker: Broker, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    query = start(topic)
    assert query.step() is None
    write(broker.bootstrap_servers, topic, range(5))
    assert values(query.step()) == [0, 1, 2, 3, 4]
    assert query.step() is None
    write(broker.bootstrap_servers, topic, range(5, 8))
    assert values(query.step()) == [5, 6, 7]


def test_a_task_of_a_micro_batch_keeps_its_memory(
    broker: Broker, make_topic: MakeTopic, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(5))
    called: list[int] = []
    keep = "kstore.pipeline.stream_reader.keep_memory"
    monkeypatch.setattr(keep, lambda: called.append(1))
    assert values(start(topic).step()) == [0, 1, 2, 3, 4]
    assert called == [1]


def test_a_query_starts_at_the_latest_offset_unless_told(
    broker: Broker, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(5))
    query = start(topic, startingOffsets="latest")
    write(broker.bootstrap_servers, topic, [5])
    assert values(query.step()) == [5]


def test_the_first_batch_run_again_reads_the_same_though_the_latest_offset_has_moved(
    broker: Broker, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    query = start(topic, startingOffsets="latest")
    write(broker.bootstrap_servers, topic, range(3))
    first = values(query.step())
    write(broker.bootstrap_servers, topic, range(3, 6))
    assert values(query.again()) == first == [0, 1, 2]


def test_maxoffsetspertrigger_bounds_a_batch_and_all_available_ignores_it(
    broker: Broker, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(2)
    write(broker.bootstrap_servers, topic, range(90))
    write(broker.bootstrap_servers, topic, range(90, 100), partition=1)
    query = start(topic, maxOffsetsPerTrigger="20")
    rows = query.step()
    assert rows is not None
    assert sorted(row["partition"] for row in rows) == [0] * 18 + [1] * 2
    assert len(values(query.step(all_available=True))) == 80


def test_minoffsetspertrigger_waits_for_more_until_the_delay_is_over(
    broker: Broker, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    servers = broker.bootstrap_servers
    write(servers, topic, [0])
    query = start(topic, minOffsetsPerTrigger="3")
    assert values(query.step()) == [0], "the first batch never waits"
    write(servers, topic, [1, 2])
    assert query.step() is None
    write(servers, topic, [3])
    assert values(query.step()) == [1, 2, 3]
    impatient = start(topic, minOffsetsPerTrigger="3", maxTriggerDelay="0ms", log=query.log)
    write(servers, topic, [4])
    assert values(impatient.step()) == [4]


def test_available_now_ends_at_what_was_there_at_the_beginning_in_batches_of_the_limit(
    broker: Broker, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(10))
    query = start(topic, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4")
    query.reader.prepareForTriggerAvailableNow()
    found = values(query.step())
    write(broker.bootstrap_servers, topic, [10])
    while (rows := query.step()) is not None:
        found += values(rows)
    assert found == list(range(10))


def test_new_partitions_and_new_topics_of_a_pattern_are_read_from_their_beginning(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic, start: Start
) -> None:
    servers = broker.bootstrap_servers
    topic = make_topic(1)
    write(servers, topic, [0])
    options = {"subscribePattern": f"{topic}(-more)?", "kstore.orderedExpansion": "false"}
    query = start("", **options)
    assert values(query.step()) == [0]
    admin.create_partitions({topic: 2})
    admin.create_topics([NewTopic(f"{topic}-more", 1)])
    write(servers, topic, [1], partition=1)
    write(servers, f"{topic}-more", [2])
    assert sorted(values(query.step())) == [1, 2]
    restarted = start("", log=query.log, **options)
    write(servers, topic, [3], partition=1)
    assert values(restarted.step()) == [3]


def test_a_topic_made_anew_is_refused_and_the_way_out_reads_it_from_its_beginning(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic, start: Start
) -> None:
    servers = broker.bootstrap_servers
    topic = make_topic(1)
    write(servers, topic, range(3))
    query = start(topic)
    assert values(query.step()) == [0, 1, 2]
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    write(servers, topic, range(10, 16))
    refused = rf"topic {topic}, partition 0, offset 3: .*created again.*new checkpointLocation"
    with pytest.raises(PipelineError, match=refused):
        query.step()
    with pytest.raises(PipelineError, match=refused):
        start(topic, log=query.log, failOnDataLoss="false").step()
    query = start(topic, log=query.log, **{"kstore.recreatedTopics": "restart"})
    assert values(query.step()) == [10, 11, 12, 13, 14, 15]
    assert values(query.again()) == [10, 11, 12, 13, 14, 15]
    assert query.step() is None
    write(servers, topic, [16])
    assert values(start(topic, log=query.log).step()) == [16], "the checkpoint is the new one's"


def test_a_batch_saved_before_the_topic_was_made_anew_is_not_run_on_the_new_one(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(3))
    query = start(topic)
    query.step()
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    write(broker.bootstrap_servers, topic, range(10, 16))
    restarted = start(topic, log=query.log)
    with pytest.raises(PipelineError, match="created again"):
        restarted.again()


def test_records_that_are_gone_are_an_error_unless_they_may_be_lost(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(3))
    query = start(topic)
    query.step()
    write(broker.bootstrap_servers, topic, range(3, 10))
    admin.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(PipelineError, match=f"topic {topic}, partition 0, offset 3: .*failOnData"):
        query.step()
    log = query.log[:-1]
    assert values(start(topic, log=log, failOnDataLoss="false").step()) == [7, 8, 9]


def test_a_partition_that_is_gone_is_an_error_unless_data_may_be_lost(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic, start: Start
) -> None:
    one, other = make_topic(1), make_topic(1)
    for topic in (one, other):
        write(broker.bootstrap_servers, topic, [1])
    options = {"subscribePattern": f"{one}|{other}"}
    query = start("", **options)
    assert values(query.step()) == [1, 1]
    admin.delete_topics([other])
    with pytest.raises(PipelineError, match=f"topic {other}, partition 0, .*was it deleted"):
        query.step()
    write(broker.bootstrap_servers, one, [2])
    assert values(start("", log=query.log, failOnDataLoss="false", **options).step()) == [2]


def test_a_new_partition_comes_after_what_was_there_when_it_was_added(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic, start: Start
) -> None:
    servers = broker.bootstrap_servers
    topic = make_topic(1)
    write(servers, topic, range(10))
    query = start(topic, maxOffsetsPerTrigger="4")
    assert values(query.step()) == [0, 1, 2, 3]
    admin.create_partitions({topic: 2})
    write(servers, topic, [100, 101], partition=1)
    write(servers, topic, [10])
    log = list(query.log)
    assert values(query.step()) == [4, 5, 6, 7]
    restarted = start(topic, log=query.log)
    assert values(restarted.step()) == [8, 9, 10]
    assert values(restarted.step()) == [100, 101]
    assert restarted.step() is None
    both = start(topic, log=log, **{"kstore.orderedExpansion": "false"})
    assert sorted(values(both.step())) == [4, 5, 6, 7, 8, 9, 10, 100, 101]


def test_a_query_that_begins_with_a_grown_topic_keeps_the_order_too(
    broker: Broker, admin: AdminClient, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    servers = broker.bootstrap_servers
    write(servers, topic, range(3))
    admin.create_partitions({topic: 2})
    write(servers, topic, [50], partition=1)
    admin.create_partitions({topic: 3})
    write(servers, topic, [60], partition=2)
    query = start(topic)
    query.reader.prepareForTriggerAvailableNow()
    assert values(query.step()) == [0, 1, 2]
    assert values(query.step()) == [50]
    assert values(query.step()) == [60]
    assert query.step() is None
    ahead = start(topic, startingOffsets=f'{{"{topic}": {{"0": 3, "1": 0, "2": 1}}}}')
    assert values(ahead.step()) == [50], "of the third partition something was read before"


def test_progress_reports_where_the_partitions_end(
    broker: Broker, make_topic: MakeTopic, start: Start
) -> None:
    topic = make_topic(1)
    write(broker.bootstrap_servers, topic, range(10))
    query = start(topic, maxOffsetsPerTrigger="4")
    query.step()
    told = query.reader.reportLatestOffset()
    assert told is not None
    assert told["topics"][topic]["partitions"]["0"]["offset"] == 10


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern"])
def test_ends_are_requested_with_the_metadata_while_it_stays_the_same(
    broker: Broker,
    admin: AdminClient,
    make_topic: MakeTopic,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
) -> None:
    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    client = start(topic, **{option: topic}).reader._client
    write(broker.bootstrap_servers, topic, range(3))
    first, ends = client.partitions_with_ends()
    assert ends == {}, "it did not know the partitions"
    lives, ends = client.partitions_with_ends()
    assert lives == first == client.partitions()
    assert ends == client.offsets({tp: LATEST})
    assert ends[tp].offset == 3

    async def before_the_deletion(*given: Any) -> dict[TopicPartition, KafkaError]:
        given[2].update(ends)
        return {}

    monkeypatch.setattr("kstore.pipeline.topic_client.list_offsets_once", before_the_deletion)
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1)])
    lives, found = client.partitions_with_ends()
    assert lives[tp].is_another(first[tp])
    assert found == {}, "they are those of the deleted topic"


@pytest.mark.slow
def test_a_query_waits_for_a_broker_that_is_restarted(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Broker(tmp_path_factory.mktemp("restarted")) as other:
        with AdminClient(bootstrap_servers=other.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        write(other.bootstrap_servers, "t", range(3))
        options = {"kafka.bootstrap.servers": other.bootstrap_servers}
        query = start("t", maxOffsetsPerTrigger="2", **options)
        assert values(query.step()) == [0, 1]
        other.kill()
        starting = threading.Thread(target=other.start)
        starting.start()
        assert values(query.step()) == [2]
        starting.join()


class PartedLog:
    """A client of a cluster whose only log ends at 20, in leader epoch 5. Epoch 3 ends at ``cut``
    there, because a replica that had not copied more was elected (KIP-320).
    """

    def __init__(self, cut: int) -> None:
        self._cut = cut

    def partitions_with_ends(
        self,
    ) -> tuple[dict[TopicPartition, Life], dict[TopicPartition, FoundOffset]]:
        return {CUT: Life(1, 5, "")}, {}

    def offsets(self, asked: dict[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        return {tp: FoundOffset(20 if at == LATEST else 0, -1, 5, 1) for tp, at in asked.items()}

    def epoch_ends(self, epochs: dict[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return dict.fromkeys(epochs, EpochEnd(3, self._cut))


CUT = TopicPartition("cut", 0)
BEFORE = Positions({CUT: Position(10, Life(1, 3, ""))}).to_json()


def reader_of(client: PartedLog, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "cut", **options}
    reader = StreamReader(SCHEMA, given | {"fetchOffset.retryIntervalMs": "0"})
    reader._client = client  # type: ignore[assignment]
    return reader


def test_a_log_that_has_parted_from_what_was_read_is_found_though_it_is_longer() -> None:
    message = "topic cut, partition 0, offset 10: .*the log ends at 7 now"
    with pytest.raises(PipelineError, match=message):
        reader_of(PartedLog(7)).latestOffset(BEFORE, ReadAllAvailable())
    lossy = reader_of(PartedLog(7), failOnDataLoss="false")
    end = lossy.latestOffset(BEFORE, ReadAllAvailable())
    (task,) = lossy.partitions(BEFORE, end)
    assert isinstance(task.value, OffsetRange)
    assert (task.value.start, task.value.end) == (7, 20), (
        "what the new leader wrote there was not read yet"
    )


def test_a_log_that_still_holds_what_was_read_is_gone_on_with_after_an_election() -> None:
    reader = reader_of(PartedLog(10))
    end = reader.latestOffset(BEFORE, ReadAllAvailable())
    (task,) = reader.partitions(BEFORE, end)
    assert isinstance(task.value, OffsetRange)
    assert (task.value.start, task.value.end) == (10, 20)
    assert Positions.from_json(end)[CUT].life.leader_epoch == 5


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_leaders_die(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Cluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        servers = cluster.bootstrap_servers
        with AdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("t", 3, 3)])
        options = {"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": "20"}
        query = start("t", **options)
        found: list[int] = []
        for victim in cluster.members:
            for partition in range(3):
                first = len(cluster.members) * 100 * victim.node_id + 100 * partition
                write(servers, "t", range(first, first + 20), partition)
            found += values(query.step())
            victim.kill()
            while (rows := query.step()) is not None:
                found += values(rows)
            cluster.start()
        assert len(found) == len(set(found)) == 180
