"""The headers in front of requests and responses. Frames are cut in _fast/framing."""

from __future__ import annotations

from kstore.protocol.schema import (
    Int16,
    Int32,
    Message,
    String,
    field,
)

__all__ = [
    "RequestHeader",
    "ResponseHeader",
]


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """Stands in front of every request; version 2 with the flexible versions of an API."""

    request_api_key: Int16 = field("0+", default=0)
    request_api_version: Int16 = field("0+", default=0)
    correlation_id: Int32 = field("0+", default=0)
    client_id: String | None = field("1+", default="", nullable="1+", flexible=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Stands in front of every response; version 1 if flexible, except for ApiVersions."""

    correlation_id: Int32 = field("0+", default=0)
