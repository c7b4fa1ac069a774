"""The response to a refused batch: which error if several things are wrong, which records are to
blame (KIP-467), and who may write to internal topics. Kafka 4.3.1's responses are the
specification; tests/conformance/probes/malformed/structures.py sends the same to both brokers.
"""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from tests.broker.harness.plane_harness import NODE_ID, Plane
from tests.conformance.probes.batches import Flaws, batch
from tests.record_requests import only, produce_request

VERSION = 9
NOW = 1_700_000_000_000
DAY_MS = 86_400_000
GOOD = batch([b"x", b"y"])


def produce(plane: Plane, *batches: bytes, version: int = VERSION, client_id: str = "me") -> Any:
    """The answer for partition 0 of `t`, or for as many as there are batches."""
    client = plane.client()
    client.client_id = client_id
    response = client.call(version, produce_request("t", *batches))
    found = response.responses[0].partition_responses
    return found[0] if len(batches) == 1 else found


def configure(plane: Plane, **settings: Any) -> None:
    log = plane.partition().log
    log.configure(replace(log.config, **settings))


def blamed(answer: Any) -> list[int]:
    assert all(row.batch_index_error_message for row in answer.record_errors)
    assert (answer.error_message is None) == (not answer.record_errors)
    return [row.batch_index for row in answer.record_errors]


class TestRecordErrors:
    @pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
    @pytest.mark.parametrize("version", [7, 8, 9, 12])
    def test_records_without_a_key_are_named(
        self, plane: Plane, compression: int, version: int
    ) -> None:
        configure(plane, cleanup_policy=("compact",))
        records = [(b"k", b"0"), b"1", (b"", b"2"), b"3"]
        answer = produce(
            plane, build_batch(records, timestamp=NOW, compression=compression), version=version
        )
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert blamed(answer) == ([1, 3] if version >= 8 else [])
        assert plane.partition().log_end_offset == 0

    @pytest.mark.parametrize("compression", [0, 4])
    def test_records_of_the_wrong_time_are_named(self, plane: Plane, compression: int) -> None:
        now = int(time.time() * 1000)
        configure(plane, message_timestamp_before_max_ms=DAY_MS)
        times = [now - 2 * DAY_MS, now, now + 2 * DAY_MS]
        records = [(None, b"v", moment) for moment in times]
        answer = produce(plane, build_batch(records, compression=compression))
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert blamed(answer) == [0, 2]
        assert str(times[0]) in answer.record_errors[0].batch_index_error_message

    def test_a_wrong_time_is_told_before_a_missing_key(self, plane: Plane) -> None:
        """The key of each record is checked first; the error is that of any invalid time."""
        configure(plane, cleanup_policy=("compact",))
        later = int(time.time() * 1000) + 2 * DAY_MS
        answer = produce(plane, build_batch([(b"k", b"0", later), (None, b"1", later)]))
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert blamed(answer) == [0, 1]
        assert "key" in answer.record_errors[1].batch_index_error_message

    def test_what_is_no_fault_of_a_record_names_none(self, plane: Plane) -> None:
        configure(plane, cleanup_policy=("compact",))
        for flaws in (
            Flaws(crc_xor=1, key=None),
            Flaws(attributes=0x20, key=None),
            Flaws(first_delta=1, key=None),
        ):
            assert not produce(plane, batch([b"x"], flaws)).record_errors

    def test_an_answer_names_a_thousand_records_at_most(self, plane: Plane) -> None:
        configure(plane, cleanup_policy=("compact",))
        answer = produce(plane, build_batch([b"v"] * 3000, timestamp=NOW))
        assert blamed(answer) == list(range(1000))

    def test_other_partitions_of_the_request_are_appended(self, plane: Plane) -> None:
        configure(plane, cleanup_policy=("compact",))
        first, second = produce(plane, build_batch([b"v"], timestamp=NOW), GOOD)
        assert (blamed(first), blamed(second)) == ([0], [])
        assert (second.error_code, second.base_offset) == (0, 0)

    def test_requests_that_come_together_are_answered_alike(self, plane: Plane) -> None:
        configure(plane, cleanup_policy=("compact",))
        client = plane.client()
        bad = build_batch([b"v"], timestamp=NOW)
        frames = b""
        for data in (GOOD, bad, GOOD, bad):
            frames += client.frame(VERSION, produce_request("t", data))
        client.feed(frames)
        answers = [only(answer) for _, answer in client.answers()]
        assert [answer.base_offset for answer in answers] == [0, -1, 2, -1]
        assert [blamed(answer) for answer in answers] == [[], [0], [], [0]]


class TestWhichErrorWins:
    @pytest.mark.parametrize(
        ("data", "error"),
        [
            # after the first batch: invalid bytes, another batch, the start of one
            (GOOD + b"\0" * 12, ErrorCode.CORRUPT_MESSAGE),
            (GOOD + b"\xff" * 30, ErrorCode.CORRUPT_MESSAGE),
            (GOOD + b"\0" * 8 + struct.pack(">i", 60) + b"\0\0\0\0\3", ErrorCode.CORRUPT_MESSAGE),
            (batch([b"x"], Flaws(crc_xor=1)) + GOOD, ErrorCode.INVALID_RECORD),
            (GOOD + batch([b"x"], Flaws(crc_xor=1)), ErrorCode.INVALID_RECORD),
            (GOOD + b"\0" * 9, ErrorCode.INVALID_RECORD),
            (GOOD + GOOD[:-1], ErrorCode.INVALID_RECORD),
            (batch([b"x", b"y"], Flaws(length_plus=-3)), ErrorCode.CORRUPT_MESSAGE),
            # a transaction without its id is reported before all of them
            (batch([b"x"], Flaws(attributes=0x10)) + GOOD, 53),
            (batch([b"x"], Flaws(attributes=0x10, base_offset=3)), 53),
            (batch([b"x"], Flaws(attributes=0x10, cut_bytes=1)), ErrorCode.INVALID_RECORD),
            # bits that mean nothing are no flaw
            (batch([b"x"], Flaws(attributes=0x4080)), ErrorCode.NONE),
        ],
    )
    def test_the_first_in_kafkas_order(self, plane: Plane, data: bytes, error: int) -> None:
        assert produce(plane, data).error_code == error

    def test_zstd_before_version_7_comes_before_a_second_batch(self, plane: Plane) -> None:
        packed = build_batch([b"x" * 100], timestamp=NOW, compression=4)
        answer = produce(plane, packed + GOOD, version=6)
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def test_the_size_is_looked_at_before_the_checksum(self, plane: Plane) -> None:
        configure(plane, max_message_bytes=80)
        for flaws in (Flaws(), Flaws(crc_xor=1), Flaws(count_plus=1), Flaws(attributes=7)):
            large = produce(plane, batch([b"x" * 100], flaws))
            assert large.error_code == ErrorCode.MESSAGE_TOO_LARGE
        small = produce(plane, batch([b"x"], Flaws(crc_xor=1)))
        assert small.error_code == ErrorCode.CORRUPT_MESSAGE

    def test_a_transaction_without_its_id_bars_the_whole_request(self, plane: Plane) -> None:
        wrong = batch([b"x"], Flaws(attributes=0x10, producer_id=5, producer_epoch=0))
        answers = produce(plane, GOOD, wrong)
        assert [answer.error_code for answer in answers] == [53, 53]
        assert plane.partition().log_end_offset == 0

    def test_acks_are_looked_at_behind_the_records(self, plane: Plane) -> None:
        for data, error in ((b"", ErrorCode.INVALID_RECORD), (GOOD, 21)):
            response = plane.client().call(VERSION, produce_request("t", data, acks=5))
            assert only(response).error_code == error


def test_a_duplicate_has_the_append_time_of_the_original(plane: Plane) -> None:
    configure(plane, message_timestamp_type="LogAppendTime")
    one, two = (
        batch([b"x", b"y"], Flaws(producer_id=1, producer_epoch=0, base_sequence=sequence))
        for sequence in (0, 2)
    )
    first, later = produce(plane, one), produce(plane, two)
    assert first.log_append_time_ms > NOW
    again = produce(plane, one)
    assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)
    again = produce(plane, two)
    assert (again.base_offset, again.log_append_time_ms) == (2, later.log_append_time_ms)


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_a_duplicate_that_would_be_too_large_by_now_is_a_duplicate(
    plane: Plane, compression: int, time: str
) -> None:
    """Its producer would split a refused batch, and the log would have its records twice."""
    configure(plane, message_timestamp_type=time)
    one, two = (
        build_batch(
            [b"%d" % number * 300 for number in range(9)], timestamp=NOW, compression=compression,
            producer_id=1, producer_epoch=0, base_sequence=sequence,
        )
        for sequence in (0, 9)
    )  # fmt: skip
    first = produce(plane, one)
    assert first.error_code == 0
    configure(plane, max_message_bytes=80)
    again = produce(plane, one)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert again.log_append_time_ms == first.log_append_time_ms
    assert produce(plane, two).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert plane.partition().log_end_offset == 9
    configure(plane, max_message_bytes=1 << 20)
    assert produce(plane, two).base_offset == 9


class TestInternalTopics:
    """Clients that could write to them could change what groups and transactions have stored."""

    @pytest.fixture
    def internal(self, plane: Plane) -> Plane:
        topic_id = UUID(int=9)
        entry = TopicEntry(b"__consumer_offsets", topic_id.bytes, internal=True)
        plane.table.add_topic(entry)
        log = plane.dir.log("__consumer_offsets", 0, topic_id=topic_id)
        plane.table.add_partition(Partition(entry, 0, log, leader_id=NODE_ID, leader_epoch=3))
        return plane

    @pytest.mark.parametrize("version", [3, 9, 13])
    @pytest.mark.parametrize(
        ("client_id", "error"),
        [
            ("me", 17),
            ("", 17),
            ("__admin_clien", 17),
            ("__admin_client2", 17),
            ("__admin_client", 0),
        ],
    )
    def test_only_kafkas_admin_client_writes(
        self, internal: Plane, version: int, client_id: str, error: int
    ) -> None:
        for count in (1, 3):  # one by one, and as a run
            client = internal.client()
            client.client_id = client_id
            wanted = produce_request(UUID(int=9) if version >= 13 else "__consumer_offsets", GOOD)
            client.feed(b"".join(client.frame(version, wanted) for _ in range(count)))
            codes = [only(answer).error_code for _, answer in client.answers()]
            assert codes == [error] * count
        end = internal.partition(topic="__consumer_offsets").log_end_offset
        assert end == (0 if error else 8)

    def test_what_is_wrong_with_the_records_is_told_first(self, internal: Plane) -> None:
        client = internal.client()
        answer = client.call(9, produce_request("__consumer_offsets", b""))
        assert only(answer).error_code == ErrorCode.INVALID_RECORD
