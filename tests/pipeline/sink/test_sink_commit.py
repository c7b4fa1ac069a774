"""The guarantees of the sink, without Spark. Tasks and drivers die at any point, come back, or run
twice at once: every row is in its topic once. Tasks and commits are called as Spark calls them.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kstore.clients import AdminClient, Producer
from kstore.clients.admin.topics import NewTopic
from kstore.clients.io.cluster import ClusterClient
from kstore.errors import ErrorCode, NetworkError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink import pieces, placing
from kstore.pipeline.sink import tasks as sink_tasks
from kstore.pipeline.sink.commit import commit, forget, prepare
from kstore.pipeline.sink.settings import SinkSettings
from kstore.pipeline.sink.staging import Plan, PlannedTarget, Run
from kstore.pipeline.sink.tasks import Task
from kstore.pipeline.sink.written import Written
from kstore.protocol.logs.copy_batches import CopyBatchesPartitionResult
from kstore.protocol.schema import Message
from kstore.testing.brokers import Broker, Cluster, Server
from kstore.types import TopicPartition
from tests.beside.topic_records import records_of, values_of
from tests.pipeline.topic_rows import expected


class _KilledError(BaseException):
    """The driver ends here."""


class Sink:
    """A sink with its own topic, and the calls that Spark makes."""

    def __init__(self, broker: Server, admin: AdminClient, topic: str) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.admin = admin
        self.topic = topic
        self.name = uuid.uuid4().hex[:12]
        clients = {"bootstrap.servers": self.bootstrap, "batch.size": "150"}
        self.settings = SinkSettings(clients, self.topic, exactly_once=True)

    def task(self, version: int, rows: range) -> Written:
        """One attempt at a task."""
        values = [b"%d" % row for row in rows]
        batch = pa.RecordBatch.from_pydict({"key": values, "value": values})
        return Task(self.settings, self.name, version).write([batch])

    def commit(self, *messages: Written) -> None:
        commit(self.settings, list(messages))

    def values(self) -> list[bytes]:
        """All records of the topic."""
        return values_of(self.bootstrap, self.topic)

    @property
    def own_topic(self) -> str:
        """The topic for staged records."""
        return f"__kstore_sink_{self.name}"


@pytest.fixture(autouse=True)
def pieces_of_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a few rows count as many pieces."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 200)


@pytest.fixture
def sink(broker: Broker, admin: AdminClient, make_topic: Callable[..., str]) -> Sink:
    return Sink(broker, admin, make_topic(2))


def test_rows_of_all_tasks_are_written_once_all_have_succeeded(sink: Sink) -> None:
    first, second = sink.task(0, range(100)), sink.task(0, range(100, 200))
    assert sink.values() == []
    sink.commit(first, second)
    assert sink.values() == expected(range(200))


def test_no_batch_passes_the_driver(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0
    ask = ClusterClient.ask

    async def counted(self: ClusterClient, node: int, request: Message, **options: Any) -> Message:
        nonlocal sent
        answer = await ask(self, node, request, **options)
        sent += len(request.encode(request.MAX_VERSION)) + len(answer.encode(answer.MAX_VERSION))
        return answer

    sink.settings = SinkSettings({"bootstrap.servers": sink.bootstrap}, sink.topic, True)
    rows = pa.RecordBatch.from_pydict({"value": [b"%09d" % row * 100 for row in range(5000)]})
    staged = [Task(sink.settings, sink.name, 0).write([rows]) for _ in range(2)]
    monkeypatch.setattr(ClusterClient, "ask", counted)
    sink.commit(*staged)
    assert len(sink.values()) == 10_000
    assert sent < 20_000, "of 9,000,000 bytes"


def test_batches_that_the_leader_has_not_are_moved(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = placing.copy

    async def elsewhere(*args: Any) -> Any:
        *rest, rows = args
        answer = await copied(*rest, rows[:1])
        answer.source_error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer

    monkeypatch.setattr(placing, "copy", elsewhere)
    sink.commit(sink.task(0, range(200)), sink.task(0, range(200, 300)))
    assert sink.values() == expected(range(300))
    records = records_of(sink.bootstrap, sink.topic)
    for partition in range(2):
        found = [int(r.value or b"") for r in records if r.partition == partition]
        assert found == sorted(found)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_piece_of_which_the_log_has_some_batches_is_completed(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    copy, produce, left = placing.copy, placing.produce, writes  # type: ignore[attr-defined]

    async def elsewhere(*args: Any) -> Any:
        return CopyBatchesPartitionResult(source_error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def counted(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise _KilledError("here it ended")
        return await produce(*args)

    staged = sink.task(0, range(200))
    monkeypatch.setattr(placing, "copy", elsewhere)
    monkeypatch.setattr(placing, "produce", counted)
    with pytest.raises(_KilledError):
        sink.commit(staged)
    monkeypatch.setattr(placing, "produce", produce)
    monkeypatch.setattr(placing, "copy", copy)
    assert 5 * writes < len(sink.values()) < 8 * writes, "a batch has 6 or 7 rows, a piece 2"
    sink.commit(staged)
    assert sink.values() == expected(range(200))


def test_staged_records_that_others_have_replaced_are_not_written(sink: Sink) -> None:
    staged = sink.task(0, range(50))
    staged.attempt = "00" * 16  # these offsets now have records of another attempt
    with pytest.raises(PipelineError, match="the staged rows are gone"):
        sink.commit(staged)
    assert sink.values() == []


def test_an_attempt_that_nobody_asks_for_leaves_nothing(sink: Sink) -> None:
    sink.task(0, range(50))  # it died, or was slower than its duplicate
    sink.commit(sink.task(0, range(50)))
    assert sink.values() == expected(range(50))


def test_a_repeated_batch_is_not_written_again(sink: Sink) -> None:
    sink.commit(sink.task(0, range(50)))
    sink.commit(sink.task(0, range(50)))
    sink.commit(sink.task(1, range(50, 60)))
    sink.commit(sink.task(0, range(50)))
    assert sink.values() == expected(range(60))


def test_a_repeated_task_of_a_planned_batch_stages_nothing(sink: Sink) -> None:
    sink.commit(sink.task(0, range(50)))
    assert sink.task(0, range(50)).attempt == ""


def test_a_task_that_outlives_its_job_creates_no_topic(sink: Sink) -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"a row"]})
    sink.settings = SinkSettings(
        sink.settings.clients | {"delivery.timeout.ms": "1000"}, sink.topic, exactly_once=True
    )
    prepare(sink.settings, sink.name)
    task = Task(sink.settings, sink.name, 0, creates=False)

    def end_the_job() -> Iterator[pa.RecordBatch]:
        yield rows
        forget(sink.settings, sink.name)

    with pytest.raises(PipelineError):
        task.write(end_the_job())  # the topic is deleted before its first batch is sent
    with pytest.raises(PipelineError):
        task.write([rows])
    assert sink.own_topic not in sink.admin.list_topics(internal=True)


def test_what_is_written_is_cleared_away(sink: Sink) -> None:
    for version in range(3):
        sink.commit(sink.task(version, range(10 * version, 10 * version + 10)))
    tps = [TopicPartition(sink.own_topic, index) for index in range(3)]
    starts = sink.admin.list_offsets(dict.fromkeys(tps, "earliest"))
    ends = sink.admin.list_offsets(dict.fromkeys(tps, "latest"))
    assert (starts[tps[0]].offset, ends[tps[0]].offset) == (4, 6)  # the last plan and its mark
    assert all(starts[tp].offset == ends[tp].offset for tp in tps[1:] if ends[tp].offset)


class Interruptions:
    """Ends the driver after this number of copies to target partitions, one batch each, before or
    after the broker has done the last one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = -1
        self._error: type[BaseException] = _KilledError
        self._is_lost = False
        self.hook: Callable[[], None] = lambda: None
        self._copy = placing.copy
        monkeypatch.setattr(placing, "copy", self._counted)
        monkeypatch.setattr(placing, "PIECES_AT_ONCE", 1)

    def after(self, writes: int, error: type[BaseException], *, is_lost: bool) -> None:
        """The write after this number of writes fails; is_lost: only its answer is lost."""
        self._left, self._error, self._is_lost = writes, error, is_lost

    async def _counted(self, *args: Any) -> Any:
        self.hook()
        self._left -= 1
        if self._left != -1:
            return await self._copy(*args)
        if self._is_lost:
            await self._copy(*args)
        raise self._error("here it ended")


@pytest.fixture
def interruptions(monkeypatch: pytest.MonkeyPatch) -> Interruptions:
    return Interruptions(monkeypatch)


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("writes", range(0, 12, 2))
def test_a_driver_that_died_in_between_is_carried_on_by_the_next(
    sink: Sink, interruptions: Interruptions, writes: int, is_lost: bool
) -> None:
    staged = sink.task(0, range(200))
    interruptions.after(writes, _KilledError, is_lost=is_lost)
    with pytest.raises(_KilledError):
        sink.commit(staged)
    # The batch is computed again, with a different result.
    sink.commit(sink.task(0, range(1000, 1100)))
    assert sink.values() == expected(range(200))


def test_a_lost_answer_is_no_second_write(sink: Sink, interruptions: Interruptions) -> None:
    staged = sink.task(0, range(200))
    interruptions.after(3, NetworkError, is_lost=True)
    sink.commit(staged)
    assert sink.values() == expected(range(200))


def test_a_driver_does_not_give_up_while_late_answers_hide_its_progress(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, failures = placing.copy, list[int]()

    async def late(*args: Any) -> Any:
        await copied(*args)
        failures.append(args[2].failures)
        return CopyBatchesPartitionResult(error_code=ErrorCode.REQUEST_TIMED_OUT)

    monkeypatch.setattr(placing, "copy", late)
    monkeypatch.setattr(placing, "PIECES_AT_ONCE", 1)
    monkeypatch.setattr(placing, "FIRST_PAUSE_MS", 0)
    sink.commit(sink.task(0, range(200)))
    assert sink.values() == expected(range(200))
    assert len(failures) > 6
    assert set(failures) == {0}


def test_an_older_plan_is_carried_out_and_a_newer_one_is_not() -> None:
    plan = Plan(5, 7, [PlannedTarget("t", 0, 3, [Run("aa", 1, [4], [2])])])
    fields = json.loads(plan.encode())
    assert fields["format"] == 3  # versions that write 2 would place one batch of each record
    assert Plan.decode(json.dumps(fields | {"format": 2}).encode()) == plan
    with pytest.raises(PipelineError, match="another version"):
        Plan.decode(json.dumps(fields | {"format": 4}).encode())


def test_other_writers_come_in_between(sink: Sink, interruptions: Interruptions) -> None:
    with Producer(bootstrap_servers=sink.bootstrap, linger_ms=0) as other:

        def write() -> None:
            for partition in range(2):
                other.send(sink.topic, b"other", partition=partition).result()

        staged = sink.task(0, range(200))
        interruptions.hook = write
        interruptions.after(5, _KilledError, is_lost=True)
        with pytest.raises(_KilledError):
            sink.commit(staged)
        interruptions.hook = lambda: None
        write()
        sink.commit(sink.task(0, range(200)))
    assert [value for value in sink.values() if value != b"other"] == expected(range(200))


def test_the_rows_of_a_partition_keep_their_order(sink: Sink, interruptions: Interruptions) -> None:
    interruptions.after(4, _KilledError, is_lost=True)
    staged = sink.task(0, range(300))
    with pytest.raises(_KilledError):
        sink.commit(staged)
    sink.commit(staged)
    records = records_of(sink.bootstrap, sink.topic)
    for partition in range(2):
        found = [int(r.value or b"") for r in records if r.partition == partition]
        assert found == sorted(found)


def test_two_drivers_at_once_write_one_plan(sink: Sink) -> None:
    ours, theirs = sink.task(0, range(300)), sink.task(0, range(5000, 5300))
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(sink.commit, each) for each in (ours, theirs)]:
            done.result()
    assert sink.values() in (expected(range(300)), expected(range(5000, 5300)))


def test_a_version_left_half_done_is_finished_before_the_next(
    sink: Sink, interruptions: Interruptions
) -> None:
    staged = sink.task(3, range(100))
    interruptions.after(1, _KilledError, is_lost=False)
    with pytest.raises(_KilledError):
        sink.commit(staged)
    sink.commit(sink.task(9, range(100, 120)))
    assert sink.values() == expected(range(120))


def test_a_batch_that_is_too_large_for_the_topic_is_halved(sink: Sink) -> None:
    small = f"{sink.topic}-small"
    sink.admin.create_topics([NewTopic(small, 1, configs={"max.message.bytes": "500"})])
    clients = {"bootstrap.servers": sink.bootstrap, "batch.size": "20000"}
    sink.settings = SinkSettings(clients, small, exactly_once=True)
    sink.commit(sink.task(0, range(400)))
    assert values_of(sink.bootstrap, small) == expected(range(400))


def test_a_plan_is_known_again_in_a_topic_that_changes_batches(
    sink: Sink, interruptions: Interruptions
) -> None:
    changing = f"{sink.topic}-changing"
    configs = {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}
    sink.admin.create_topics([NewTopic(changing, 1, configs=configs)])
    sink.settings = SinkSettings(sink.settings.clients, changing, exactly_once=True)
    staged = sink.task(0, range(200))
    interruptions.after(5, _KilledError, is_lost=True)
    with pytest.raises(_KilledError):
        sink.commit(staged)
    sink.commit(staged)
    assert values_of(sink.bootstrap, changing) == expected(range(200))


def test_a_log_that_was_cut_meanwhile_is_named(sink: Sink, interruptions: Interruptions) -> None:
    staged = sink.task(0, range(50))
    interruptions.after(2, _KilledError, is_lost=False)
    with pytest.raises(_KilledError):
        sink.commit(staged)
    with Producer(bootstrap_servers=sink.bootstrap) as other:
        for partition in range(2):
            other.send(sink.topic, b"other", partition=partition)
    sink.admin.delete_records({TopicPartition(sink.topic, index): -1 for index in range(2)})
    with pytest.raises(PipelineError, match=f"topic {sink.topic}, partition .*deleted"):
        sink.commit(staged)


def test_other_brokers_are_named_with_the_way_out(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_tasks, "NEEDED", ("kstore.nosuch",))
    with pytest.raises(PipelineError, match=r"kstore\.delivery to at-least-once"):
        sink.task(0, range(5))
    assert sink.own_topic not in sink.admin.list_topics(internal=True)


def test_at_least_once_writes_at_once_and_has_nothing_to_commit(sink: Sink) -> None:
    sink.settings = SinkSettings(sink.settings.clients, sink.topic, exactly_once=False)
    written = sink.task(0, range(100))
    assert sink.values() == expected(range(100))
    sink.commit(written)
    assert sink.own_topic not in sink.admin.list_topics(internal=True)


@pytest.mark.slow
def test_leaders_that_die_while_a_plan_is_carried_out(
    tmp_path: Path, interruptions: Interruptions
) -> None:
    with (
        Cluster(tmp_path / "cluster", 3) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic("target", num_partitions=2)])
        sink = Sink(cluster, admin, "target")
        staged = [sink.task(0, range(start, start + 200)) for start in (0, 200)]
        writes = itertools.count()

        def kill_a_leader() -> None:
            if next(writes) == 6:
                leader = admin.describe_topics([sink.topic])[0].partitions[0].leader
                cluster[leader].kill()

        interruptions.hook = kill_a_leader
        sink.commit(*staged)
        assert next(writes) > 6
        assert sink.values() == expected(range(400))
