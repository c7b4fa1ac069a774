"""The connection machine: a client's and a server's side joined without a socket."""

from __future__ import annotations

import pytest

from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.logs.produce import ProduceRequest
from kstore.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kstore.protocol.registry import encode_request
from tests.reference.connection import ClientConnection, RequestReceived, ServerConnection


def test_requests_reach_the_server_and_answers_come_back_whatever_the_pieces() -> None:
    client, server = ClientConnection("me"), ServerConnection()
    ids = [client.send(MetadataRequest(topics=None), 12), client.send(ApiVersionsRequest(), 3)]
    requests: list[RequestReceived] = []
    for byte in client.data_to_send():
        requests += server.receive_data(bytes([byte]))
    assert [type(event.message) for event in requests] == [MetadataRequest, ApiVersionsRequest]
    assert requests[0].header.client_id == "me"
    assert client.in_flight == 2

    server.respond(requests[0], MetadataResponse(cluster_id="c"))
    server.respond(requests[1], ApiVersionsResponse())
    answers = client.receive_data(server.data_to_send())
    assert [answer.correlation_id for answer in answers] == ids
    assert answers[0].message == MetadataResponse(cluster_id="c")
    assert client.in_flight == 0


def test_answers_are_sent_in_the_order_of_the_requests() -> None:
    client, server = ClientConnection("me"), ServerConnection()
    client.send(MetadataRequest(), 1)
    client.send(MetadataRequest(), 1)
    first, second = server.receive_data(client.data_to_send())
    server.respond(second, MetadataResponse(controller_id=2))
    assert server.data_to_send() == b""
    server.respond(first, MetadataResponse(controller_id=1))
    answers = client.receive_data(server.data_to_send())
    assert [answer.message.controller_id for answer in answers] == [1, 2]  # type: ignore[attr-defined]


def test_a_request_without_an_answer_holds_nothing_up() -> None:
    client, server = ClientConnection("me"), ServerConnection()
    client.send(ProduceRequest(acks=0), 9, answered=False)
    client.send(MetadataRequest(), 1)
    produce, metadata = server.receive_data(client.data_to_send())
    server.respond(metadata, MetadataResponse())
    server.respond(produce, None)
    assert len(client.receive_data(server.data_to_send())) == 1


def test_a_newer_api_versions_request_is_refused_in_version_0() -> None:
    server, client = ServerConnection(), ClientConnection("me")
    client.send(ApiVersionsRequest(), 4)
    frame = bytearray(client.data_to_send())
    frame[7] = 99
    assert server.receive_data(frame) == []
    (answer,) = client.receive_data(server.data_to_send())
    assert answer.message == ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


def test_a_request_is_answered_once() -> None:
    client, server = ClientConnection(None), ServerConnection()
    client.send(MetadataRequest(), 1)
    (request,) = server.receive_data(client.data_to_send())
    server.respond(request, MetadataResponse())
    with pytest.raises(ValueError, match="request 0 is not waiting"):
        server.respond(request, MetadataResponse())


def test_an_answer_to_another_request_is_a_protocol_error() -> None:
    client = ClientConnection("me")
    with pytest.raises(ProtocolError, match="no request is under way"):
        client.receive_data(b"\x00\x00\x00\x04\x00\x00\x00\x00")
    client = ClientConnection("me")
    client.send(MetadataRequest(), 1)
    with pytest.raises(ProtocolError, match="answered request 5, but 0 was next"):
        client.receive_data(b"\x00\x00\x00\x04\x00\x00\x00\x05")


def test_an_oversize_request_is_a_protocol_error() -> None:
    server = ServerConnection(max_frame_bytes=8)
    with pytest.raises(ProtocolError, match="more than the limit of 8"):
        server.receive_data(encode_request(MetadataRequest(), 1, 0, "me"))
