"""kstore's tagged fields are in answers only on connections that asked for them in ApiVersions. All
others get what Kafka's schemas have, byte for byte, checked by an independent decoder that refuses
unknown tags.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.api import API_TABLE
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import JoinGroupResponse, NeedPositionTopic
from kstore.protocol.registry import APIS, encode_request
from kstore.protocol.schema import Message, field_type
from tests.beside.waiting import until
from tests.broker.harness.topic_client import TopicClient
from tests.broker.harness.wire import Wire
from tests.broker.requests.test_extensions import NEWEST
from tests.broker.requests.test_extensions import Topic as ProducedTopic
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.protocol.test_messages_match_kafka import kafka_schemas
from tests.record_requests import (
    fetch_part,
    fetch_request,
    join_request,
    list_request,
    offsets_request,
)
from tests.reference.kafka_decoder import NotKafkasError, decode_message

METADATA, FETCH, LIST_OFFSETS, OFFSET_FETCH = 3, 1, 2, 9
TAGGED_FROM = {METADATA: 9, FETCH: 12, LIST_OFFSETS: 6, OFFSET_FETCH: 6}
"""The first version of each answer that has room for tags."""
CASES = [
    *((METADATA, version) for version in range(14)),
    *((FETCH, version) for version in range(4, 19)),
    *((LIST_OFFSETS, version) for version in range(1, 12)),
    *((OFFSET_FETCH, version) for version in range(1, 11)),
]


class Topic:
    """One topic with a record, and a commit of it that has its partition epoch."""

    def __init__(self, running: KstoreBroker) -> None:
        client = TopicClient(running)
        self.name = f"t{uuid4().hex}"
        self.group = f"g{uuid4().hex}"
        self.topic_id: UUID = client.create(self.name)
        client.produce(self.name)
        [self.epoch] = client.epochs(self.name)
        assert client.commit(self.name, {0: 1}, self.epoch, group_id=self.group) == [0]


@pytest.fixture(scope="module")
def topic(running: KstoreBroker) -> Topic:
    return Topic(running)


def request_of(topic: Topic, api_key: int, version: int) -> Message:
    """A request whose answer has room for every field of kstore's."""
    if api_key == METADATA:
        return Ask.Metadata(topics=[{"name": topic.name}])
    if api_key == FETCH:
        named = topic.topic_id if version >= 13 else topic.name
        return fetch_request(named, fetch_part(), min_bytes=0)
    if api_key == LIST_OFFSETS:
        return list_request(topic.name)
    if version < 8:
        old = {"name": topic.name, "partition_indexes": [0]}
        return Ask.OffsetFetch(group_id=topic.group, topics=[old])
    return offsets_request(topic.name, 0, group=topic.group, topic_id=topic.topic_id)


def answer_to(client: TopicClient, request: Message, version: int) -> bytes:
    """The body of the answer, after its header."""
    client.sock.sendall(encode_request(request, version, 9, "test"))
    is_flexible = version >= APIS[request.API_KEY].flexible_from
    return client.answer()[5 if is_flexible else 4 :]


def without_fields(message: Any) -> int:
    """Take kstore's fields out of a decoded answer, at every depth; returns how many had one."""
    found = 0
    for name in message.SPECS:
        value = getattr(message, name)
        if name in {"partition_epoch", "max_partition_epoch"}:
            found += value >= 0
            setattr(message, name, -1)
        for row in value if isinstance(value, list) else ():
            found += without_fields(row) if hasattr(row, "SPECS") else 0
    return found


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(("api_key", "version"), CASES)
def test_who_does_not_ask_gets_kafkas_bytes(
    running: KstoreBroker, topic: Topic, api_key: int, version: int
) -> None:
    schema = kafka_schemas()[APIS[api_key].response.__name__]
    request = request_of(topic, api_key, version)
    plain, asking = TopicClient(running, extended=False), TopicClient(running)
    tagged = version >= TAGGED_FROM[api_key]
    for _ in range(2):  # the second answer may be one that was kept
        with_fields = answer_to(asking, request, version)
        without = answer_to(plain, request, version)
        decode_message(schema, version, without)
        answer = APIS[api_key].response.decode(with_fields, version)
        assert bool(without_fields(answer)) is tagged
        assert answer.encode(version) == without
        if tagged:
            with pytest.raises(NotKafkasError, match=r"tag 2320[01] is unknown"):
                decode_message(schema, version, with_fields)
        else:
            assert with_fields == without


def test_a_connection_asks_once_and_another_one_asks_anew(
    running: KstoreBroker, topic: Topic
) -> None:
    client = TopicClient(running, extended=False)
    assert client.epochs(topic.name) == [-1]
    client.ask_for_fields()
    assert client.epochs(topic.name) == [topic.epoch]
    later = Ask.ApiVersions(client_software_name="t", client_software_version="1")
    assert client.call(later).error_code == 0
    assert client.epochs(topic.name) == [topic.epoch], "asked for once, it holds"
    assert TopicClient(running, extended=False).epochs(topic.name) == [-1]


@pytest.mark.parametrize(
    "tags",
    [b"\x00", b"\x01\xa2\xb5\x01\x01\x00", b"\x01\xa2\xb5\x01\x02\x01\x01", b"\x01\xa2\xb5\x01",
     b"\x01\xa3\xb5\x01\x01\x01"],
    ids=["none", "false", "of another size", "cut short", "another tag"],
)  # fmt: skip
def test_what_does_not_ask(running: KstoreBroker, topic: Topic, tags: bytes) -> None:
    client = TopicClient(running, extended=False)
    body = b"\x02t\x021" + tags
    frame = b"\x00\x12\x00\x04\x00\x00\x00\x09\x00\x01t\x00" + body
    client.sock.sendall(len(frame).to_bytes(4) + frame)
    try:
        client.answer()
    except ConnectionError:
        return  # it is malformed
    assert client.epochs(topic.name) == [-1]


def test_the_bytes_that_ask() -> None:
    asking = Ask.ApiVersions(
        client_software_name="t", client_software_version="1", extension_fields=True
    )
    assert asking.encode(4) == b"\x02t\x021\x01\xa2\xb5\x01\x01\x01"
    assert asking.encode(2) == b""


def test_a_parked_fetch_is_answered_as_its_connection_asked(
    running: KstoreBroker, topic: Topic
) -> None:
    for extended in (False, True):
        client = TopicClient(running, extended=extended)
        part = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
        parked = Ask.Fetch(
            max_wait_ms=200, min_bytes=1 << 20,
            topics=[{"topic_id": topic.topic_id, "partitions": [part]}])  # fmt: skip
        [row] = client.call(parked, 18).responses
        assert row.partitions[0].partition_epoch == (topic.epoch if extended else -1)


def test_a_member_that_did_not_ask_is_not_asked_for_positions(running: KstoreBroker) -> None:
    """KIP-253's fields in heartbeats: an unmodified member beside one of kstore's."""
    asking, plain = TopicClient(running), TopicClient(running, extended=False)
    name, group = f"t{uuid4().hex}", f"g{uuid4().hex}"
    asking.create(name, 2)
    members = {}
    for client, member in ((asking, "a"), (plain, "b")):
        joined = client.beat(member, 0, group_id=group, subscribed_topic_names=[name])
        assert joined.error_code == ErrorCode.NONE
        members[client] = joined.member_epoch
    need = [NeedPositionTopic(topic=name, partitions=[0])]
    told = asking.beat("a", members[asking], group_id=group, need_position=need)
    assert (told.error_code, told.need_position) == (ErrorCode.NONE, need)
    request = Ask.ConsumerGroupHeartbeat(group_id=group, member_id="b", member_epoch=members[plain])
    decode_message(
        kafka_schemas()["ConsumerGroupHeartbeatResponse"], 1, answer_to(plain, request, 1)
    )
    assert plain.beat("b", members[plain], group_id=group).need_position == []
    plain.ask_for_fields()
    assert plain.beat("b", members[plain], group_id=group).need_position == need


def test_a_classic_member_that_did_not_ask_is_not_asked_for_positions(
    running: KstoreBroker,
) -> None:
    """As above, with Heartbeat instead of ConsumerGroupHeartbeat."""
    asking, plain = TopicClient(running), TopicClient(running, extended=False)
    name, group = f"t{uuid4().hex}", f"g{uuid4().hex}"
    asking.create(name, 2)
    first = asking.call(join_request(group, ""), 3)
    plain.sock.sendall(encode_request(join_request(group, ""), 3, 9, "test"))
    sent = Ask.Heartbeat(
        group_id=group, generation_id=first.generation_id, member_id=first.member_id
    )
    until(
        lambda: asking.call(sent, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
        "the second member is waited for",
    )
    again = asking.call(join_request(group, first.member_id), 3)
    joined = JoinGroupResponse.decode(plain.answer()[4:], 3)
    assert again.generation_id == joined.generation_id == first.generation_id + 1
    ids = {asking: first.member_id, plain: joined.member_id}
    for client, member_id in ids.items():
        given = [{"member_id": each} for each in ids.values()]
        sync = Ask.SyncGroup(
            group_id=group, generation_id=joined.generation_id, member_id=member_id,
            assignments=given if client is asking else [])  # fmt: skip
        assert client.call(sync, 3).error_code == ErrorCode.NONE
    need = [NeedPositionTopic(topic=name, partitions=[0])]

    def beat(client: TopicClient, **fields: list[NeedPositionTopic]) -> Message:
        return Ask.Heartbeat(
            group_id=group, generation_id=joined.generation_id, member_id=ids[client], **fields
        )

    told = asking.call(beat(asking, need_position=need), 4)
    assert (told.error_code, told.need_position) == (ErrorCode.NONE, need)
    answer = answer_to(plain, beat(plain), 4)
    assert answer == b"\0\0\0\0" + b"\0\0" + b"\0"  # throttle time, error code, no tags
    decode_message(kafka_schemas()["HeartbeatResponse"], 4, answer)
    plain.ask_for_fields()
    assert plain.call(beat(plain), 4).need_position == need


def test_produce_answers_have_the_field_only_for_given_offsets(
    running: KstoreBroker, topic: Topic
) -> None:
    """KIP-391's LogEndOffset: the request itself asks for it."""
    schema = kafka_schemas()["ProduceResponse"]
    wire = Wire(running)
    producing = ProducedTopic(wire, f"t{uuid4().hex}")
    producing.produce(build_batch([b"v"], timestamp=1))
    decode_message(schema, NEWEST, wire.got[5:])
    producing.give(5, [b"v"])
    with pytest.raises(NotKafkasError, match="tag 39101"):
        decode_message(schema, NEWEST, wire.got[5:])


def test_no_other_answer_has_fields_of_kstores() -> None:
    """The messages with tagged fields are all checked above; their other fields are Kafka's
    (tests/protocol/test_messages_match_kafka.py).
    """

    def has_fields(cls: Any) -> bool:
        return any(
            spec.tag >= 10_000 or ((struct := field_type(cls, name)[2]) and has_fields(struct))
            for name, spec in cls.SPECS.items()
        )

    served = {key for key, row in API_TABLE.items() if not row.internal and key < 10_000}
    assert {APIS[key].response.__name__ for key in served if has_fields(APIS[key].response)} == {
        "MetadataResponse", "FetchResponse", "ListOffsetsResponse", "OffsetFetchResponse",
        "ProduceResponse", "HeartbeatResponse", "ConsumerGroupHeartbeatResponse",
    }  # fmt: skip
