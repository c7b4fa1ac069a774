"""CopyBatches on a real socket: batches in records become batches of another partition."""

from __future__ import annotations

from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore._fast.record.crc32c import checksum
from kstore.errors import ErrorCode
from kstore.record import batches, decode
from tests.broker.requests.test_extensions import TIME, Topic, configured, topic
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import fetch_request, only

__all__ = ["topic"]

KEY = b"these"
PRODUCER = 4711


def stage(topic: Topic, *values: bytes, key: bytes = KEY) -> None:
    """Records with these values, in partition 1, one batch for all."""
    made = build_batch([(key, value) for value in values], timestamp=TIME)
    assert topic.produce(made, index=1).error_code == ErrorCode.NONE


def inner(*values: bytes, **fields: Any) -> bytes:
    """A batch as the value of a record."""
    return build_batch(list(values), timestamp=TIME, **fields)


def copy(topic: Topic, *offsets: int, **fields: Any) -> Any:
    """Copy from partition 1 to partition 0."""
    named = {"topic": fields.pop("source", topic.name), "key": fields.pop("key", KEY)}
    source = {"partition": 1, "offsets": list(offsets)} | named
    who = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0}
    row = who | fields | {"sources": [source]}
    asked = {"name": topic.name, "topic_id": topic.topic_id, "partitions": [row]}
    answer = topic.wire.call(Ask.CopyBatches(timeout_ms=5000, topics=[asked]), 0)
    return answer.topics[0].partitions[0]


def outcome(result: Any) -> tuple[int, int, int, int]:
    return result.copied, result.error_code, result.source_error_code, result.log_end_offset


def records(topic: Topic) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in decode(fetched(topic))]


def fetched(topic: Topic) -> bytes:
    request = fetch_request(topic.topic_id, 0, min_bytes=0, max_bytes=1 << 20)
    return bytes(only(topic.wire.call(request, 13)).records or b"")


def test_batches_are_appended_in_the_order_that_is_asked_for(topic: Topic) -> None:
    stage(topic, inner(b"a", b"b"), inner(b"c"), inner(b"d"))
    assert outcome(copy(topic, 2, 0, base_offset=10)) == (2, 0, 0, 13)
    assert records(topic) == [(10, b"d"), (11, b"a"), (12, b"b")]
    signed = [(b.producer_id, b.base_sequence) for b in batches(fetched(topic), verify=True)]
    assert signed == [(PRODUCER, 0), (PRODUCER, 1)]


def test_all_batches_of_a_record_are_appended(topic: Topic) -> None:
    stage(topic, inner(b"a", b"b") + inner(b"c"), inner(b"d"))
    assert outcome(copy(topic, 0, 1, base_offset=10)) == (2, 0, 0, 14)
    assert records(topic) == [(10, b"a"), (11, b"b"), (12, b"c"), (13, b"d")]
    signed = [(b.producer_id, b.base_sequence) for b in batches(fetched(topic), verify=True)]
    assert signed == [(PRODUCER, 0), (PRODUCER, 2), (PRODUCER, 3)]


def test_a_record_with_a_batch_that_is_too_large_appends_none_of_its_batches(topic: Topic) -> None:
    stage(topic, inner(b"a") + inner(b"b"), inner(b"c") + inner(b"d" * 80))
    configured(topic, **{"max.message.bytes": "100"})
    assert outcome(copy(topic, 0))[:2] == (1, 0)
    refused = copy(topic, 1, base_offset=2, base_sequence=2)
    assert outcome(refused) == (0, ErrorCode.MESSAGE_TOO_LARGE, 0, 2)
    assert [value for _, value in records(topic)] == [b"a", b"b"]


def test_a_repeated_record_of_two_batches_is_refused_with_the_end(topic: Topic) -> None:
    """The log may have only the first of them: the caller has to check."""
    stage(topic, inner(b"a") + inner(b"b"))
    assert outcome(copy(topic, 0)) == (1, 0, 0, 2)
    assert outcome(copy(topic, 0)) == (0, ErrorCode.INVALID_PRODUCE_OFFSET, 0, 2)
    for base in (0, 2, 5):
        again = copy(topic, 0, base_offset=base)
        assert outcome(again)[:2] == (0, ErrorCode.INVALID_PRODUCE_OFFSET)
    assert records(topic) == [(0, b"a"), (1, b"b")]


def test_a_repeated_request_appends_nothing(topic: Topic) -> None:
    stage(topic, inner(b"a"), inner(b"b"))
    assert outcome(copy(topic, 0, 1)) == outcome(copy(topic, 0, 1)) == (2, 0, 0, 2)
    assert records(topic) == [(0, b"a"), (1, b"b")]


def test_a_repetition_completes_what_the_first_request_began(topic: Topic) -> None:
    stage(topic, inner(b"a"), inner(b"b"))
    assert outcome(copy(topic, 0, 1, 2)) == (2, 0, ErrorCode.OFFSET_NOT_AVAILABLE, 2)
    stage(topic, inner(b"c"))
    assert outcome(copy(topic, 0, 1, 2)) == (3, 0, 0, 3)
    assert records(topic) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_repetition_is_known_behind_records_of_others(topic: Topic) -> None:
    stage(topic, inner(b"a"), inner(b"b"))
    copy(topic, 0, 1)
    topic.produce(build_batch([b"other"] * 3, timestamp=TIME))
    assert outcome(copy(topic, 0, 1))[:3] == (2, 0, 0)
    assert [value for _, value in records(topic)] == [b"a", b"b", *[b"other"] * 3]


def test_a_repetition_of_more_than_five_batches_appends_nothing(topic: Topic) -> None:
    """A leader remembers a producer's last five: the first ones are refused for their offsets."""
    values = [b"%d" % number for number in range(7)]
    stage(topic, *(inner(value) for value in values))
    assert outcome(copy(topic, *range(7))) == (7, 0, 0, 7)
    assert outcome(copy(topic, *range(7))) == (0, ErrorCode.INVALID_PRODUCE_OFFSET, 0, 7)
    assert [value for _, value in records(topic)] == values


def test_an_offset_below_the_end_is_refused_with_the_end(topic: Topic) -> None:
    stage(topic, inner(b"a"))
    topic.produce(build_batch([b"other"] * 3, timestamp=TIME))
    refused = copy(topic, 0, base_offset=2)
    assert outcome(refused) == (0, ErrorCode.INVALID_PRODUCE_OFFSET, 0, 3)


@pytest.mark.parametrize(
    ("value", "key", "code"),
    [
        (b"no batch", KEY, ErrorCode.INVALID_RECORD),
        (inner(b"x") + inner(b"y") + b"?", KEY, ErrorCode.INVALID_RECORD),
        (inner(b"x") + inner(b"y")[:-1] + b"?", KEY, ErrorCode.CORRUPT_MESSAGE),
        (inner(b"x", transactional=True, producer_id=1, base_sequence=0), KEY,
         ErrorCode.INVALID_RECORD),
        (inner(b"x")[:-1] + b"?", KEY, ErrorCode.CORRUPT_MESSAGE),
        (inner(b"x"), b"another attempt's", ErrorCode.INVALID_RECORD),
    ],
    ids=["no batch", "rest", "damaged second", "transactional", "damaged", "another key"],
)  # fmt: skip
def test_what_is_before_a_bad_record_is_copied(
    topic: Topic, value: bytes, key: bytes, code: int
) -> None:
    stage(topic, inner(b"a"))
    stage(topic, value, key=key)
    stage(topic, inner(b"c"))
    assert outcome(copy(topic, 0, 1, 2)) == (1, 0, code, 1)
    assert records(topic) == [(0, b"a")]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"source": "nowhere"}, (0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        ({"current_leader_epoch": 7}, (0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0)),
        ({"base_offset": -1}, (0, ErrorCode.INVALID_REQUEST, 0)),
        ({"base_sequence": -1}, (0, ErrorCode.INVALID_REQUEST, 0)),
    ],
)
def test_a_wrong_request_copies_nothing(
    topic: Topic, fields: dict[str, Any], told: tuple[int, ...]
) -> None:
    stage(topic, inner(b"a"))
    assert outcome(copy(topic, 0, **fields))[:3] == told
    assert records(topic) == []


def test_what_is_not_there_yet_is_told(topic: Topic) -> None:
    stage(topic, inner(b"a"))
    assert outcome(copy(topic, 0, 1)) == (1, 0, ErrorCode.OFFSET_NOT_AVAILABLE, 1)


def test_an_exact_copy_takes_no_batches_from_here(topic: Topic) -> None:
    stage(topic, inner(b"a"))
    configured(topic, **{"kstore.mirror": "true"})
    refused = copy(topic, 0)
    assert outcome(refused)[:3] == (0, ErrorCode.POLICY_VIOLATION, 0)
    assert "exact copy" in (refused.error_message or "")
    assert records(topic) == []


def test_batches_are_found_in_packed_records(topic: Topic) -> None:
    rows = [(KEY, inner(b"a")), (KEY, inner(b"b")), (b"another's", inner(b"c"))]
    made = build_batch(rows, timestamp=TIME, compression=4)
    assert topic.produce(made, index=1).error_code == ErrorCode.NONE
    assert outcome(copy(topic, 1, 0, 2)) == (2, 0, ErrorCode.INVALID_RECORD, 2)
    assert records(topic) == [(0, b"b"), (1, b"a")]


def test_sequence_numbers_begin_anew_behind_the_last_one(topic: Topic) -> None:
    stage(topic, inner(b"a", b"b"), inner(b"c"))
    assert outcome(copy(topic, 0, 1, base_sequence=2**31 - 2)) == (2, 0, 0, 3)
    assert [b.base_sequence for b in batches(fetched(topic))] == [2**31 - 2, 0]


def test_the_offset_that_a_stored_batch_claims_does_not_matter(topic: Topic) -> None:
    stage(topic, inner(b"a", b"b", base_offset=2**63 - 1), inner(b"c", base_offset=7))
    assert outcome(copy(topic, 0, 1)) == (2, 0, 0, 3)
    assert [offset for offset, _ in records(topic)] == [0, 1, 2]


def test_a_batch_whose_checksum_is_right_and_records_are_wrong_is_refused(topic: Topic) -> None:
    wrong = bytearray(inner(b"b"))
    wrong[-5] += 2  # the offset delta of its record
    wrong[17:21] = checksum(wrong[21:]).to_bytes(4)
    stage(topic, inner(b"a"), inner(b"c") + bytes(wrong))
    assert outcome(copy(topic, 0, 1)) == (1, ErrorCode.INVALID_RECORD, 0, 1)
    assert records(topic) == [(0, b"a")]


def test_what_the_disk_has_changed_is_not_copied(topic: Topic, running: KstoreBroker) -> None:
    stage(topic, inner(b"a"))
    stage(topic, inner(b"changed"))
    path = running.log_dir / f"{topic.name}-1" / f"{0:020}.log"
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(data.index(b"changed"))
        file.write(b"C")
    assert outcome(copy(topic, 0, 1)) == (1, 0, ErrorCode.KAFKA_STORAGE_ERROR, 1)
    assert records(topic) == [(0, b"a")]


def test_many_partitions_of_a_request_are_copied_to_in_turns(topic: Topic) -> None:
    stage(topic, inner(b"a"))
    source = {"topic": topic.name, "partition": 1, "key": KEY, "offsets": [0]}
    row = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0, "sources": [source]}
    asked = {"name": topic.name, "partitions": [row] * 50}
    answer = topic.wire.call(Ask.CopyBatches(timeout_ms=5000, topics=[asked]), 0)
    assert {outcome(each) for each in answer.topics[0].partitions} == {(1, 0, 0, 1)}
    assert records(topic) == [(0, b"a")]
