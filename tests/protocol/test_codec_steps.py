"""Large messages in steps, and the limit on how many elements one may have: nothing else than what
is decoded and encoded at once.
"""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.protocol.codec import Decoding
from kstore._fast.protocol.encoder import Encoding
from kstore.errors import ProtocolError
from kstore.protocol.groups.classic import HeartbeatRequest, PositionTopic
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.groups.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopology,
)
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kstore.protocol.schema import Message
from tests.reference.messages import all_messages, messages, versions_of

MANY = 1 << 30


def in_steps(work: Decoding | Encoding, elements: int) -> int:
    """Do all of it; how many steps that took."""
    steps = 1
    while not work.step(elements):
        steps += 1
    return steps


@given(data=st.data())
def test_any_message_is_decoded_and_encoded_in_steps_as_at_once(data: st.DataObject) -> None:
    cls: type[Message] = data.draw(st.sampled_from(all_messages()))
    version = data.draw(st.sampled_from(versions_of(cls)))
    message = data.draw(messages(cls, version))
    plan = cls.plan_for(version)
    raw = message.encode(version)
    decoding, encoding = Decoding(plan, raw, MANY), Encoding(plan, message)
    in_steps(decoding, 1)
    in_steps(encoding, 1)
    assert decoding.message == message
    assert encoding.result() == raw


def wide(topics: int, partitions: int) -> ListOffsetsRequest:
    rows = [ListOffsetsPartition(partition_index=index) for index in range(partitions)]
    names = [f"t{number}" for number in range(topics)]
    return ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name in names]
    )


def test_no_step_has_more_elements_than_it_is_told() -> None:
    plan, raw = ListOffsetsRequest.plan_for(11), wide(10, 100).encode(11)
    assert in_steps(Decoding(plan, raw, MANY), 50) == 1 + 10 * 101 // 50
    assert in_steps(Encoding(plan, wide(10, 100)), 50) == 1 + 10 * 101 // 50


def in_a_struct() -> StreamsGroupHeartbeatRequest:
    rows = [
        StreamsGroupHeartbeatRequestSubtopology(subtopology_id=str(number))
        for number in range(1000)
    ]
    return StreamsGroupHeartbeatRequest(
        topology=StreamsGroupHeartbeatRequestTopology(subtopologies=rows)
    )


def in_a_tagged_field() -> HeartbeatRequest:
    return HeartbeatRequest(position=[PositionTopic(topic=str(n)) for n in range(1000)])


@pytest.mark.parametrize(("message", "version"), [(in_a_struct(), 0), (in_a_tagged_field(), 4)])
def test_arrays_in_structs_and_tagged_fields_are_read_in_steps(
    message: Message, version: int
) -> None:
    plan, raw = type(message).plan_for(version), message.encode(version)
    decoding = Decoding(plan, raw, MANY)
    assert in_steps(decoding, 50) >= 1000 // 50
    assert decoding.message == message


def test_arrays_in_structs_are_written_in_steps() -> None:
    message = in_a_struct()
    encoding = Encoding(type(message).plan_for(0), message)
    assert in_steps(encoding, 50) >= 1000 // 50
    assert encoding.result() == message.encode(0)


@pytest.mark.parametrize("version", [1, 11])
def test_elements_of_all_arrays_count_together(version: int) -> None:
    plan, raw = ListOffsetsRequest.plan_for(version), wide(10, 100).encode(version)
    assert ListOffsetsRequest.decode(raw, version, max_elements=1010) == wide(10, 100)
    in_steps(Decoding(plan, raw, 1010), 7)
    with pytest.raises(ProtocolError, match=r"ListOffsetsTopic\.partitions: 100 elements"):
        ListOffsetsRequest.decode(raw, version, max_elements=1009)
    with pytest.raises(ProtocolError, match=r"kstore\.request\.max\.elements"):
        in_steps(Decoding(plan, raw, 1009), 7)


def test_tagged_fields_nobody_knows_are_elements_too() -> None:
    message = wide(1, 1)
    message.unknown_tags = dict.fromkeys(range(100, 200), b"")
    raw = message.encode(11)
    assert ListOffsetsRequest.decode(raw, 11, max_elements=102) == message
    with pytest.raises(ProtocolError, match="100 elements"):
        ListOffsetsRequest.decode(raw, 11, max_elements=101)


def test_a_refused_array_takes_no_memory() -> None:
    raw = FindCoordinatorRequest(coordinator_keys=[""] * 1_000_000).encode(6)
    plan = FindCoordinatorRequest.plan_for(6)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="1000000 elements"):
            FindCoordinatorRequest.decode(raw, 6, max_elements=100_000)
        with pytest.raises(ProtocolError, match="1000000 elements"):
            in_steps(Decoding(plan, raw, 100_000), 10)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [3, 6])
def test_a_string_is_no_longer_than_kafka_allows(version: int) -> None:
    raw = FindCoordinatorRequest(key="k" * 32767, coordinator_keys=["k" * 32767])
    if version == 3:
        raw.coordinator_keys = []
    else:
        raw.key = ""
    body = raw.encode(version)
    assert FindCoordinatorRequest.decode(body, version) == raw
    # A varint of one more: 0x80 0x80 0x02 is 32768 + 1 - 1.
    longer = body.replace(b"\x80\x80\x02", b"\x81\x80\x02").replace(b"kkk", b"kkkk", 1)
    with pytest.raises(ProtocolError, match="32768"):
        FindCoordinatorRequest.decode(longer, version)


def test_what_can_not_be_encoded_says_where_in_steps_too() -> None:
    message = wide(1, 1)
    message.topics[0].name = 5  # type: ignore[assignment]
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        in_steps(Encoding(ListOffsetsRequest.plan_for(11), message), 10)
