"""The consumer against a scripted broker: positions, gaps, bad offsets, lost connections."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest

from kstore.clients import AIOConsumer, Consumer, LostRecords
from kstore.clients.consumer import CorruptRecordError, LogTruncationError
from kstore.errors import (
    ClusterAuthorizationFailedError,
    ErrorCode,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kstore.protocol.logs.fetch import AbortedTransaction, FetchRequest
from kstore.protocol.logs.list_offsets import OffsetForLeaderEpochRequest
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kstore.record import ControlType, EndTransactionMarker, control_batch
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.beside.waiting import until
from tests.clients.scripted_log import BY_NAME, FAST, TP, Log, batch
from tests.clients.scripted_log import broker as broker  # a fixture
from tests.plain_messages import Answer
from tests.reference.fake_broker import HANG_UP, SILENCE, FakeBroker


def consumer(broker: FakeBroker, log: Log, **options: Any) -> Consumer:
    """A consumer of partition 0. By default it starts at the earliest offset."""
    log.serve(broker)
    options = {"auto_offset_reset": "earliest", **FAST, **options}
    made = Consumer(bootstrap_servers=broker.address, **options)
    made.assign([TP])
    return made


def test_records_come_once_and_in_order_across_gaps(broker: FakeBroker) -> None:
    log = Log(batch(0, b"a", b"b"), batch(10, b"c"))
    with consumer(broker, log) as reader:
        assert [(r.offset, r.value) for r in reader.poll(5000)] == [
            (0, b"a"),
            (1, b"b"),
            (10, b"c"),
        ]
        assert reader.poll(5) == []
        assert reader.position(TP) == 11


def test_a_seek_into_a_batch_begins_at_the_offset(broker: FakeBroker) -> None:
    with consumer(broker, Log(batch(0, b"a", b"b", b"c"))) as reader:
        reader.seek(TP, 1)
        assert [r.offset for r in reader.poll(5000)] == [1, 2]


def test_max_records_leaves_the_rest_for_the_next_poll(broker: FakeBroker) -> None:
    log = Log(batch(0, b"a", b"b", b"c"))
    with consumer(broker, log) as reader:
        assert [r.offset for r in reader.poll(5000, max_records=2)] == [0, 1]
        assert reader.position(TP) == 2
        assert [r.offset for r in reader.poll(5000, max_records=2)] == [2]
        assert log.asked.count(0) == 1


def test_latest_begins_at_the_end_and_earliest_at_the_start(broker: FakeBroker) -> None:
    log = Log(batch(5, b"a"), start=5)
    with consumer(broker, log) as reader:
        assert reader.position(TP) == 5
    with consumer(broker, log, auto_offset_reset="latest") as reader:
        assert reader.position(TP) == 6


def test_a_seek_in_the_turn_in_which_a_position_was_found_is_carried_out(
    broker: FakeBroker,
) -> None:
    log = Log(batch(0, b"a", b"b"))
    log.serve(broker)

    async def read() -> list[int]:
        settings = FAST | {"auto_offset_reset": "latest"}
        async with AIOConsumer(bootstrap_servers=broker.address, **settings) as reader:
            reader.assign([TP])
            assert await reader.position(TP) == 2
            reader.seek_to_beginning()
            return [record.offset for record in await reader.poll(5000)]

    assert asyncio.run(read()) == [0, 1]


def test_an_offset_outside_the_log_is_reset_or_raised(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(batch(5, b"a"), start=5)
    with consumer(broker, log) as reader:
        reader.seek(TP, 2)
        assert [r.offset for r in reader.poll(5000)] == [5]
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "partition t-0: offset 2 is outside the log, which begins at 5; "
        "it continues by auto.offset.reset=earliest"
    ]
    with consumer(broker, log, auto_offset_reset="none") as reader:
        with pytest.raises(OffsetOutOfRangeError, match="no position for t-0"):
            reader.poll(5000)
        reader.seek(TP, 2)
        with pytest.raises(
            OffsetOutOfRangeError, match="offset 2 is outside the log, which begins at 5"
        ):
            reader.poll(5000)


def test_a_fetch_may_wait_longer_than_other_requests(broker: FakeBroker) -> None:
    log = Log(batch(0, b"a"))
    with consumer(broker, log, request_timeout_ms=500, fetch_max_wait_ms=60_000) as reader:

        def fetch(request: FetchRequest) -> Any:
            if log.asked:
                return SILENCE
            time.sleep(0.7)
            return log.fetch(request)

        broker.handlers[FetchRequest] = fetch
        reader.seek(TP, 0)
        assert [r.offset for r in reader.poll(5000)] == [0]


def test_an_error_that_comes_again_while_nobody_polls_is_raised_once(broker: FakeBroker) -> None:
    log = Log(batch(0, b"a"))
    refused: list[Any] = []
    polled = threading.Event()
    with consumer(broker, log) as reader:

        def fetch(request: FetchRequest) -> Any:
            polled.wait()
            if len(refused) < 5:
                refused.append(request)
                return Answer.Fetch(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return log.fetch(request)

        broker.handlers[FetchRequest] = fetch
        reader.seek(TP, 0)
        assert reader.poll(0) == []
        polled.set()
        until(lambda: len(log.asked) > 1, "it goes on behind the first records")
        with pytest.raises(ClusterAuthorizationFailedError):
            reader.poll(5000)
        assert [r.offset for r in reader.poll(5000)] == [0]


@pytest.mark.parametrize("trouble", [HANG_UP, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_what_can_be_retried_is_retried(broker: FakeBroker, trouble: Any) -> None:
    log = Log(batch(0, b"a"), script=(trouble, trouble))
    with consumer(broker, log) as reader:
        assert [r.value for r in reader.poll(5000)] == [b"a"]


def test_what_cannot_be_retried_is_raised_with_the_partition(broker: FakeBroker) -> None:
    log = Log(batch(0, b"a"), script=(ErrorCode.TOPIC_AUTHORIZATION_FAILED,))
    with (
        consumer(broker, log) as reader,
        pytest.raises(TopicAuthorizationFailedError, match="partition t-0"),
    ):
        reader.poll(5000)


def test_read_committed_leaves_aborted_records_out_and_markers_always(broker: FakeBroker) -> None:
    marker = EndTransactionMarker(ControlType.ABORT, 0)
    abort = control_batch(marker, producer_id=9, producer_epoch=0, timestamp=0, base_offset=2)
    log = Log(batch(0, b"gone", b"gone too", producer_id=9), abort, batch(3, b"stays"))
    log.aborted = [AbortedTransaction(producer_id=9, first_offset=0)]
    with consumer(broker, log, isolation_level="read_committed") as reader:
        assert [r.value for r in reader.poll(5000)] == [b"stays"]
    with consumer(broker, log) as reader:
        assert [r.value for r in reader.poll(5000)] == [b"gone", b"gone too", b"stays"]
        assert reader.position(TP) == 4


def test_a_log_that_ends_with_a_marker_is_read_to_its_end(broker: FakeBroker) -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    commit = control_batch(marker, producer_id=9, producer_epoch=0, timestamp=0, base_offset=1)
    with consumer(broker, Log(batch(0, b"a", producer_id=9), commit)) as reader:
        assert [r.value for r in reader.poll(5000)] == [b"a"]
        assert reader.poll(5) == []
        assert reader.position(TP) == 2


def test_a_damaged_batch_is_raised_and_nothing_is_skipped(broker: FakeBroker) -> None:
    damaged = bytearray(batch(1, b"b"))
    damaged[-1] ^= 0xFF
    log = Log(batch(0, b"a"), bytes(damaged))
    with consumer(broker, log) as reader:
        assert [r.value for r in reader.poll(5000)] == [b"a"]
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="partition t-0, offset 1: ") as caught:
                reader.poll(5000)
        assert (caught.value.partition, caught.value.offset) == (TP, 1)
        assert reader.position(TP) == 1


def test_a_damaged_batch_can_be_sought_past(broker: FakeBroker) -> None:
    damaged = bytearray(batch(1, b"b", b"c"))
    damaged[-1] ^= 0xFF
    log = Log(batch(0, b"a"), bytes(damaged), batch(3, b"d"))
    with consumer(broker, log) as reader:
        assert [r.value for r in reader.poll(5000)] == [b"a"]
        with pytest.raises(CorruptRecordError) as caught:
            reader.poll(5000)
        assert caught.value.next_offset == 3
        reader.seek(TP, caught.value.next_offset)
        assert [r.value for r in reader.poll(5000)] == [b"d"]


class Elections:
    """Metadata whose leader epoch changes after the first fetch, and the end of epoch 0."""

    def __init__(self, broker: FakeBroker, end_offset: int) -> None:
        self.epoch = 0
        self.end_offset = end_offset
        self._metadata = broker.handlers[MetadataRequest]
        broker.handlers[MetadataRequest] = self.metadata
        broker.handlers[OffsetForLeaderEpochRequest] = self.epoch_end

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """The usual answer, in the current epoch."""
        answer: MetadataResponse = self._metadata(request)
        for row in (row for topic in answer.topics for row in topic.partitions):
            row.leader_epoch = self.epoch
        return answer

    def epoch_end(self, request: OffsetForLeaderEpochRequest) -> Any:
        """Where epoch 0 ended."""
        end = {"partition": 0, "leader_epoch": 0, "end_offset": self.end_offset}
        rows = [{"topic": "t", "partitions": [end]}]
        return Answer.OffsetForLeaderEpoch(topics=rows)


WITH_EPOCHS = BY_NAME | {23: (3, 4)}


@pytest.mark.parametrize("end_offset", [2, 3])
def test_a_new_leader_is_asked_whether_the_log_still_has_what_was_read(end_offset: int) -> None:
    log = Log(batch(0, b"a", b"b", b"c"), batch(3, b"d"))
    with FakeBroker(versions=WITH_EPOCHS) as broker:
        elections = Elections(broker, end_offset)
        with consumer(broker, log, metadata_max_age_ms=50) as reader:
            assert len(reader.poll(5000, max_records=3)) == 3
            elections.epoch = 1
            log.batches = (batch(0, b"a", b"b"), batch(2, b"C"), batch(3, b"D"))
            found = [(r.offset, r.value) for r in reader.poll(5000)]
            while found[-1][1] != b"D":
                found += [(r.offset, r.value) for r in reader.poll(5000)]
            # Records that were fetched before the client learned of the election may be returned.
            new = [row for row in found if row != (3, b"d")]
            assert new == ([(2, b"C")] if end_offset == 2 else []) + [(3, b"D")]


def test_a_log_that_was_cut_is_told_without_a_reset_policy() -> None:
    log = Log(batch(0, b"a", b"b", b"c"))
    with FakeBroker(versions=WITH_EPOCHS) as broker:
        elections = Elections(broker, 2)
        with consumer(broker, log, metadata_max_age_ms=50, auto_offset_reset="none") as reader:
            reader.seek(TP, 0)
            assert len(reader.poll(5000)) == 3
            elections.epoch = 1
            with pytest.raises(LogTruncationError, match="3: the log was truncated") as caught:
                reader.poll(5000)
            divergent = caught.value.divergent_offsets[TP]
            assert (caught.value.positions, divergent.offset) == ({TP: 3}, 2)
            reader.seek(TP, divergent)
            assert [r.offset for r in reader.poll(5000)] == [2]


def lost(first: int, last: int, epoch: int) -> LostRecords:
    """The records of partition 0 that were lost when the leader of epoch 1 was elected."""
    return LostRecords("t", 0, first, last, epoch, 0, -1, 1, is_exact=True)


def test_lost_records_are_told_before_the_records_in_their_place() -> None:
    log = Log(batch(0, b"a", b"b", b"c"))
    seen: list[Any] = []
    with FakeBroker(versions=WITH_EPOCHS) as broker:
        elections = Elections(broker, 1)
        with consumer(broker, log, metadata_max_age_ms=50, on_truncation=seen.append) as reader:
            seen += [r.value for r in reader.poll(5000)]
            log.batches = (batch(0, b"a"), batch(1, b"B", b"C"))
            elections.epoch = 1
            while seen[-1] != b"C":
                seen += [r.value for r in reader.poll(5000)]
    assert seen == [b"a", b"b", b"c", lost(1, 2, 0), b"B", b"C"]


def test_a_group_is_told_what_of_its_committed_records_is_lost() -> None:
    """The position has another source: nothing was fetched in its leader epoch."""
    seen: list[Any] = []
    with FakeBroker(versions=WITH_EPOCHS) as broker:
        Elections(broker, 1).epoch = 1
        log = Log(batch(0, b"a"), batch(1, b"B"))
        with consumer(broker, log, on_truncation=seen.append) as reader:
            reader.seek(TP, OffsetAndMetadata(3, "", 0))
            while not seen or seen[-1] != b"B":
                seen += [r.value for r in reader.poll(5000)]
    assert seen == [lost(1, 2, -1), b"B"]


def test_without_a_reset_policy_losses_are_told_once_and_the_error_each_time() -> None:
    seen: list[Any] = []
    with FakeBroker(versions=WITH_EPOCHS) as broker:
        Elections(broker, 1).epoch = 1
        log = Log(batch(0, b"a"), batch(1, b"B"))
        options = {"auto_offset_reset": "none", "on_truncation": seen.append}
        with consumer(broker, log, **options) as reader:
            reader.seek(TP, OffsetAndMetadata(3, "", 0))
            for _ in range(3):
                with pytest.raises(LogTruncationError):
                    reader.poll(5000)
            assert seen == [lost(1, 2, -1)]
            reader.seek(TP, 1)
            assert [r.value for r in reader.poll(5000)] == [b"B"]


def test_lost_records_are_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker(versions=WITH_EPOCHS) as broker:
        Elections(broker, 1).epoch = 1
        with consumer(broker, Log(batch(0, b"a"), batch(1, b"B"))) as reader:
            reader.seek(TP, OffsetAndMetadata(3, "", 0))
            assert [r.value for r in reader.poll(5000)] == [b"B"]
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert told == [str(lost(1, 2, -1))]


def test_what_on_truncation_raises_is_raised_by_poll() -> None:
    def refuse(event: LostRecords) -> None:
        raise RuntimeError(f"lost {event.first_offset}")

    with FakeBroker(versions=WITH_EPOCHS) as broker:
        Elections(broker, 1).epoch = 1
        log = Log(batch(0, b"a"), batch(1, b"B"))
        with consumer(broker, log, on_truncation=refuse) as reader:
            reader.seek(TP, OffsetAndMetadata(3, "", 0))
            with pytest.raises(RuntimeError, match="lost 1"):
                reader.poll(5000)
            assert [r.value for r in reader.poll(5000)] == [b"B"]


def test_a_loss_that_no_poll_has_told_is_told_by_close() -> None:
    seen: list[Any] = []
    with FakeBroker(versions=WITH_EPOCHS) as broker:
        elections = Elections(broker, 1)
        log = Log(batch(0, b"a", b"b", b"c"))
        with consumer(broker, log, metadata_max_age_ms=20, on_truncation=seen.append) as reader:
            assert len(reader.poll(5000)) == 3
            log.batches = (batch(0, b"a"), batch(1, b"B", b"C"))
            elections.epoch = 1
            while 1 not in log.asked:  # it has gone back
                time.sleep(0.01)
            assert seen == []
    assert seen == [lost(1, 2, 0)]


def test_an_aio_consumer_tells_lost_records_too() -> None:
    seen: list[Any] = []

    async def read(broker: FakeBroker) -> None:
        options = {"auto_offset_reset": "earliest", **FAST}
        async with AIOConsumer(
            bootstrap_servers=broker.address, on_truncation=seen.append, **options
        ) as reader:
            reader.assign([TP])
            reader.seek(TP, OffsetAndMetadata(3, "", 0))
            seen.extend(r.value for r in await reader.poll(5000))

    with FakeBroker(versions=WITH_EPOCHS) as broker:
        Elections(broker, 1).epoch = 1
        log = Log(batch(0, b"a"), batch(1, b"B"))
        log.serve(broker)
        asyncio.run(read(broker))
    assert seen == [lost(1, 2, -1), b"B"]


def test_whole_record_sets_are_fetched(broker: FakeBroker) -> None:
    with consumer(broker, Log(batch(0, b"a", b"b"))) as reader:
        found = reader.fetch(5000)
        assert found[TP].values() == [b"a", b"b"]
        assert reader.position(TP) == 2


def test_wrong_use_is_told(broker: FakeBroker) -> None:
    with consumer(broker, Log()) as reader:
        with pytest.raises(ValueError, match="u-1 is not assigned"):
            reader.seek(TopicPartition("u", 1), 0)
        with pytest.raises(ValueError, match="offset -4 is negative"):
            reader.seek(TP, -4)
        with pytest.raises(TypeError, match="pass a list"):
            reader.subscribe("t")
    with pytest.raises(ValueError, match=r"auto_offset_reset.*first"):
        Consumer(bootstrap_servers=broker.address, auto_offset_reset="first")
    with pytest.raises(UnknownTopicOrPartitionError, match="'missing'"):
        Consumer("missing", bootstrap_servers=broker.address, default_api_timeout_ms=300, **FAST)


def test_ctrl_c_ends_a_poll_and_the_consumer_goes_on(broker: FakeBroker) -> None:
    with consumer(broker, log := Log()) as reader:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            reader.poll(60_000)
        timer.join()
        log.batches = (batch(0, b"a"),)
        assert [record.value for record in reader.poll(60_000)] == [b"a"]


def test_two_threads_can_not_poll_at_once(broker: FakeBroker) -> None:
    with consumer(broker, Log()) as reader:
        reader.poll(0)
        begun = threading.Event()
        problems: list[str] = []

        def poll() -> None:
            begun.set()
            while not problems:
                try:
                    reader.poll(20)
                except RuntimeError as error:
                    problems.append(str(error))

        other = threading.Thread(target=poll)
        other.start()
        begun.wait()
        while not problems:
            try:
                reader.poll(20)
            except RuntimeError as error:
                problems.append(str(error))
        other.join()
        assert problems[0] == "poll() is already running: only one thread may use a consumer"


def test_a_closed_consumer_says_so(broker: FakeBroker) -> None:
    reader = consumer(broker, Log())
    assert reader.poll(0) == []
    reader.close()
    reader.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        reader.poll(10)


def test_without_records_an_arrow_batch_is_empty(broker: FakeBroker) -> None:
    with consumer(broker, Log(batch(0, b"a"))) as reader:
        while not (full := reader.poll_arrow(1000, headers=True)).num_rows:
            pass
        empty = reader.poll_arrow(10, headers=True)
        assert (empty.num_rows, empty.schema) == (0, full.schema)
