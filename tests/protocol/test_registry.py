"""Frames and headers: which header version goes with which API version; frames back and forth."""

from __future__ import annotations

import pytest

from kstore.errors import ProtocolError
from kstore.protocol import registry
from kstore.protocol.logs.fetch import FetchRequest, FetchResponse
from kstore.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse


def test_header_versions_follow_flexibility_except_for_the_answer_to_api_versions() -> None:
    assert registry.request_header_version(1, 11) == 1
    assert registry.request_header_version(1, 12) == 2
    assert registry.response_header_version(1, 11) == 0
    assert registry.response_header_version(1, 12) == 1
    assert registry.request_header_version(18, 4) == 2
    assert registry.response_header_version(18, 4) == 0


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_request_frame_is_read_back(version: int) -> None:
    frame = registry.encode_request(FetchRequest(max_wait_ms=5), version, 77, "me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, message = registry.decode_request(frame[4:])
    assert (header.request_api_key, header.request_api_version) == (1, version)
    assert (header.correlation_id, header.client_id) == (77, "me")
    assert message == FetchRequest(max_wait_ms=5)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_response_frame_is_read_back(version: int) -> None:
    frame = registry.encode_response(FetchResponse(throttle_time_ms=3), version, -1)
    assert registry.decode_response(frame[4:], FetchResponse, version) == (
        -1,
        FetchResponse(throttle_time_ms=3),
    )


def test_the_answer_to_api_versions_has_no_tags_in_its_header() -> None:
    frame = registry.encode_response(ApiVersionsResponse(), 3, 5)
    assert frame[4:8] == b"\x00\x00\x00\x05"
    assert ApiVersionsResponse.decode(frame, 3, offset=8) == ApiVersionsResponse()


def test_a_null_client_id_is_allowed() -> None:
    frame = registry.encode_request(ApiVersionsRequest(), 3, 1, None)
    assert registry.decode_request(frame[4:])[0].client_id is None


def test_an_unknown_api_or_version_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="no API with key 9999"):
        registry.decode_request(b"\x27\x0f\x00\x00\x00\x00\x00\x01\xff\xff")
    with pytest.raises(ProtocolError, match="FetchRequest has versions 4 to 18, not 3"):
        registry.decode_request(b"\x00\x01\x00\x03\x00\x00\x00\x01\xff\xff")
