"""What a broker in a cluster answers about partitions and brokers that are elsewhere or dead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstore.broker.api import API_TABLE, RequestContext
from kstore.broker.api.controller.broker_requests import handle_envelope
from kstore.broker.api.controller.forwarding import carried_out, to_controller
from kstore.broker.api.logs.leader_epochs import handle_offset_for_leader_epoch
from kstore.broker.api.logs.list_offsets import handle_list_offsets
from kstore.broker.api.metadata.metadata import handle_describe_topic_partitions, handle_metadata
from kstore.broker.api.requests.error_responses import failed
from kstore.broker.api.requests.splitting import PIECES
from kstore.broker.api.topics.delete_records import handle_delete_records
from kstore.broker.api.transactions.admin import handle_describe_producers
from kstore.broker.coordination.store import StoreUnavailableError
from kstore.errors import ErrorCode, error_for
from kstore.protocol.metadata.metadata import MetadataResponse
from kstore.protocol.metadata.topics import DeleteTopicsResponse
from kstore.protocol.registry import (
    APIS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kstore.protocol.schema import Message
from kstore.record import build_batch
from tests.broker.runtime.replication.in_cluster import (
    ME,
    OTHER,
    T0,
    THIRD,
    InCluster,
    isr,
    known,
    metadata,
    on_a_loop,
    opened,
    state,
)
from tests.plain_messages import Answer, Ask
from tests.record_requests import list_request

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
LATEST, EARLIEST = -1, -2


def ctx(api_key: int, version: int | None = None, listener: str = "PLAINTEXT") -> RequestContext:
    version = API_TABLE[api_key].max_version if version is None else version
    return RequestContext(api_key, version, 1, "me", "h", "c", listener, "User:ANONYMOUS")


def list_offset(broker: InCluster, timestamp: int, epoch: int = -1, version: int = 11) -> Any:
    request = list_request("t", timestamp, row={"current_leader_epoch": epoch})
    return handle_list_offsets(broker, request, ctx(2, version)).topics[0].partitions[0]


async def delete_records(broker: InCluster, offset: int, timeout_ms: int = 0) -> Any:
    row = {"partition_index": 0, "offset": offset}
    topic = {"name": "t", "partitions": [row]}
    request = Ask.DeleteRecords(topics=[topic], timeout_ms=timeout_ms)
    response: Any = handle_delete_records(broker, request, ctx(21))
    if hasattr(response, "__await__"):
        response = await response
    return response.topics[0].partitions[0]


async def described(broker: InCluster, version: int, listener: str = "PLAINTEXT") -> Any:
    answer: Any = handle_metadata(broker, Ask.Metadata(topics=None), ctx(3, version, listener))
    return MetadataResponse.decode(answer.encode(version), version)


@on_a_loop
async def test_questions_for_the_leader_are_refused_by_others(folder: Path) -> None:
    async with opened(folder) as broker:
        await broker.replica_manager.update_metadata(metadata(known(OTHER, epoch=3)))
        for hosted in (False, True):
            if hosted:
                await broker.replica_manager.leader_and_isr(isr(state(OTHER, epoch=3)))
            assert list_offset(broker, LATEST).error_code == NOT_LEADER
            assert (await delete_records(broker, -1)).error_code == NOT_LEADER
            epochs = {"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 1}]}
            answer = handle_offset_for_leader_epoch(
                broker, Ask.OffsetForLeaderEpoch(topics=[epochs]), ctx(23)
            )
            assert answer.topics[0].partitions[0].error_code == NOT_LEADER
            asked = Ask.DescribeProducers(topics=[{"name": "t", "partition_indexes": [0]}])
            producers = await handle_describe_producers(broker, asked, ctx(61))
            assert producers.topics[0].partitions[0].error_code == NOT_LEADER


@on_a_loop
async def test_a_client_with_another_idea_of_the_epoch_is_told_so(folder: Path) -> None:
    async with opened(folder) as broker:
        await broker.replica_manager.leader_and_isr(isr(state(ME, epoch=3, in_sync=(ME,))))
        assert list_offset(broker, LATEST, epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert list_offset(broker, LATEST, epoch=3).error_code == ErrorCode.NONE
        assert list_offset(broker, LATEST, epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@on_a_loop
async def test_a_new_leader_does_not_say_where_the_log_ends_until_it_knows(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.leader_and_isr(isr(state(ME, epoch=0)))
        broker.partition_writer().append(T0, build_batch([b"a", b"b"]))
        await manager.leader_and_isr(isr(state(OTHER, epoch=1)))
        await manager.leader_and_isr(isr(state(ME, epoch=2)))
        assert list_offset(broker, LATEST).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert list_offset(broker, LATEST, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert list_offset(broker, EARLIEST).offset == 0
        await manager.leader_and_isr(isr(state(ME, epoch=3, in_sync=(ME,))))
        await manager.update_metadata(metadata(known(ME), alive=(ME,)))
        answer = list_offset(broker, LATEST)
        assert (answer.error_code, answer.offset) == (0, 2)


@on_a_loop
async def test_records_are_deleted_once_the_followers_have_deleted_them(folder: Path) -> None:
    async with opened(folder) as broker:
        manager = broker.replica_manager
        await manager.update_metadata(metadata(known(ME)))
        await manager.leader_and_isr(isr(state(ME, in_sync=(ME,))))
        broker.partition_writer().append(T0, build_batch([b"a", b"b"]))
        answer = await delete_records(broker, 1)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT, "the other has not fetched yet"
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        assert partition.log_start_offset == 1
        await manager.update_metadata(metadata(known(ME), alive=(ME,)))
        answer = await delete_records(broker, -1)
        assert (answer.error_code, answer.low_watermark) == (0, 2)


@on_a_loop
async def test_metadata_tells_what_a_client_can_reach(folder: Path) -> None:
    async with opened(folder) as broker:
        replicas: dict[str, Any] = {"replicas": [ME, OTHER, THIRD], "isr": [ME]}
        failed_disk = known(ME, index=2, offline_replicas=[OTHER, THIRD], **replicas)
        await broker.replica_manager.update_metadata(
            metadata(known(ME, **replicas), known(THIRD, 4, index=1, **replicas), failed_disk)
        )
        answer = await described(broker, 13)
        assert answer.controller_id == ME, "who hands on what is the controller's"
        assert [node.node_id for node in answer.brokers] == [ME, OTHER]
        first, second, third = answer.topics[0].partitions
        assert third.offline_replicas == [OTHER, THIRD], "of which one is alive"
        assert (first.error_code, first.leader_id, first.offline_replicas) == (0, ME, [THIRD])
        assert (second.error_code, second.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (second.leader_epoch, second.replica_nodes) == (4, [ME, OTHER, THIRD])

        other = (await described(broker, 13, "INTERNAL")).topics[0].partitions[0]
        assert (other.error_code, other.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)
        assert other.offline_replicas == [ME, OTHER, THIRD]
        old = (await described(broker, 5, "INTERNAL")).topics[0].partitions[0]
        assert old.error_code == ErrorCode.LEADER_NOT_AVAILABLE

        pages = handle_describe_topic_partitions(
            broker, Ask.DescribeTopicPartitions(), ctx(75)
        ).topics[0]
        assert [p.leader_id for p in pages.partitions] == [ME, -1, ME]
        offline = [p.offline_replicas for p in pages.partitions]
        assert offline == [[THIRD], [THIRD], [OTHER, THIRD]]


def test_whatever_only_the_controller_answers_can_be_refused_in_all_its_versions() -> None:
    for key, row in API_TABLE.items():
        if row.controller_only or row.shared_configs:
            for version in range(row.min_version, row.max_version + 1):
                request = APIS[key].request()
                response = failed(request, version, ErrorCode.NOT_CONTROLLER, "no controller")
                response.encode(version)


def test_what_brokers_say_to_each_other_is_not_advertised() -> None:
    internal = {key for key, row in API_TABLE.items() if row.internal}
    assert internal >= {4, 5, 6, 7, 56, 58}


@on_a_loop
async def test_where_the_store_fails_a_change_is_answered_as_one_that_may_have_happened(
    folder: Path,
) -> None:
    async with opened(folder) as broker:

        async def fail(*asked: Any) -> None:
            raise StoreUnavailableError("no server answers")

        request = Ask.CreateTopics(topics=[{"name": "t"}, {"name": "u"}])
        response = await carried_out(fail)(broker, request, ctx(19))
        told = {row.name: row.error_code for row in response.topics}
        assert told == dict.fromkeys(("t", "u"), ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize("api", [43, 45, 46])
def test_a_controller_that_ends_before_a_request_s_turn_answers_not_controller(
    tmp_path: Path, api: int
) -> None:
    @on_a_loop
    async def ask(folder: Path) -> None:
        async with opened(folder) as broker:

            async def fail(*asked: Any) -> None:
                raise error_for(ErrorCode.NOT_CONTROLLER, "it ended: a later controller")

            request = APIS[api].request()
            response = await carried_out(fail)(broker, request, ctx(api))
            assert response.error_code == ErrorCode.NOT_CONTROLLER

    ask(tmp_path)


@on_a_loop
async def test_what_a_broker_hands_on_says_who_asks(folder: Path) -> None:
    async with opened(folder) as broker:
        handed_on: list[Any] = []

        class Controllers:
            """The first broker that it asks is no controller any more; the second answers."""

            async def ask(self, node_id: int, request: Any, timeout_s: float) -> Message:
                handed_on.append((node_id, request))
                if len(handed_on) == 1:
                    broker.membership.controller_id = THIRD
                    return Answer.Envelope(error_code=ErrorCode.NOT_CONTROLLER)
                header, message = decode_request(request.request_data)
                assert header.client_id == "me"
                rows = [{"name": row.name} for row in message.topics]
                response = Answer.DeleteTopics(responses=rows)
                frame = encode_response(response, header.request_api_version, 0)
                return Answer.Envelope(response_data=frame[4:])

            def close(self) -> None:
                """Nothing is open."""

        broker.peers.made = Controllers()  # type: ignore[assignment]
        request = Ask.DeleteTopics(topics=[{"name": "t"}], timeout_ms=9000)
        handler = to_controller(lambda *asked: pytest.fail("it is not the controller"))
        response = await handler(broker, request, ctx(20))
        assert [(row.name, row.error_code) for row in response.responses] == [("t", 0)]
        assert [node_id for node_id, _ in handed_on] == [OTHER, THIRD]
        assert bytes(handed_on[1][1].request_principal) == b"User:ANONYMOUS"


@pytest.mark.parametrize("count", [1000, 1001])
def test_a_wide_request_that_is_handed_on_is_carried_out_in_pieces_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    pieces: list[int] = []

    def delete(broker: Any, request: Message, ctx: RequestContext) -> Any:
        pieces.append(len(request.topics))
        rows = [{"name": row.name} for row in request.topics]
        return Answer.DeleteTopics(responses=rows)

    @on_a_loop
    async def hand_on(folder: Path) -> None:
        settings = {"kstore.request.max.elements": "1000"}
        async with opened(folder, **settings) as broker:
            broker.membership.controller = object()

            async def loaded(api_key: int) -> None:
                """Everything is loaded; there is no server here."""

            monkeypatch.setattr(broker, "loaded", loaded)
            topics = [{"name": f"t{number}"} for number in range(count)]
            frame = encode_request(Ask.DeleteTopics(topics=topics), 6, 1, "me")[4:]
            envelope = Ask.Envelope(
                request_data=frame, request_principal=b"User:a", client_host_address=b"h"
            )
            response = await handle_envelope(broker, envelope, ctx(58))
            if count > 1000:
                assert response.error_code == ErrorCode.INVALID_REQUEST
                assert not pieces
                return
            assert response.error_code == ErrorCode.NONE
            _, answer = decode_response(response.response_data, DeleteTopicsResponse, 6)
            assert [row.name for row in answer.responses] == [row["name"] for row in topics]
            assert sum(pieces) == len(topics)
            assert max(pieces) <= PIECES[20].rows

    monkeypatch.setattr("kstore.broker.api.topics.topics.handle_delete_topics", delete)
    hand_on(tmp_path)


@on_a_loop
async def test_without_a_controller_a_client_is_told_so(folder: Path) -> None:
    async with opened(folder) as broker:
        broker.membership.controller_id = -1
        request = Ask.DeleteTopics(topics=[{"name": "t"}], timeout_ms=1)
        handler = to_controller(lambda *asked: pytest.fail("it is not the controller"))
        response = await handler(broker, request, ctx(20))
        assert [row.error_code for row in response.responses] == [ErrorCode.NOT_CONTROLLER]
