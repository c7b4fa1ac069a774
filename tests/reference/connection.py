"""A Kafka connection without I/O, in both roles: bytes in, events out, bytes to send. It frames,
counts correlation ids and keeps answers in order. It opens no socket, reads no clock and knows no
API except ApiVersions, whose versions it must agree on itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kstore._fast.protocol.framing import FrameSplitter
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.headers import RequestHeader
from kstore.protocol.metadata.api_versions import ApiVersionsResponse
from kstore.protocol.registry import (
    API_VERSIONS,
    APIS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kstore.protocol.schema import Message

MAX_FRAME_BYTES = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """A client's event: the answer to the request that `send` gave this correlation id."""

    correlation_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A server's event: a request, to be answered once by `respond`."""

    header: RequestHeader
    message: Message

    @property
    def version(self) -> int:
        """The API version of the request, which the answer must have."""
        return self.header.request_api_version


@dataclass(slots=True)
class _Expected:
    correlation_id: int
    response: type[Message]
    version: int


class ClientConnection:
    """The requesting side. Any number of requests may be in flight; answers arrive in their
    order.
    """

    def __init__(self, client_id: str | None, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._client_id = client_id
        self._splitter = FrameSplitter(max_frame_bytes)
        self._expected: deque[_Expected] = deque()
        self._outgoing: list[bytes] = []
        self._next_id = 0

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not arrived yet."""
        return len(self._expected)

    def send(self, request: Message, version: int, *, answered: bool = True) -> int:
        """Queue a request, return its correlation id. answered=False: as Produce with acks 0."""
        correlation_id = self._next_id
        frame = encode_request(request, version, correlation_id, self._client_id)
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        self._outgoing.append(frame)
        if answered:
            response = APIS[request.API_KEY].response
            self._expected.append(_Expected(correlation_id, response, version))
        return correlation_id

    def data_to_send(self) -> bytes:
        """What the caller must write to the socket now; each byte is handed out once."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[ResponseReceived]:
        """The answers completed by these bytes. After a ProtocolError the connection is lost."""
        return [self._answer(frame) for frame in self._splitter.feed(data)]

    def _answer(self, frame: bytes) -> ResponseReceived:
        if not self._expected:
            raise ProtocolError("the broker sent an answer, but no request is under way")
        expected = self._expected.popleft()
        if frame[:4] != expected.correlation_id.to_bytes(4, "big"):
            got = int.from_bytes(frame[:4], "big", signed=True)
            raise ProtocolError(
                f"the broker answered request {got}, but {expected.correlation_id} was next"
            )
        version = expected.version
        if expected.response is ApiVersionsResponse and _is_unsupported(frame):
            version = 0
        _, message = decode_response(frame, expected.response, version)
        return ResponseReceived(expected.correlation_id, message)


def _is_unsupported(frame: bytes) -> bool:
    """Whether a broker refuses the version of ApiVersions: it then answers in version 0."""
    return frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class ServerConnection:
    """The side that answers: in the order of the requests, whatever the order of `respond`."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._splitter = FrameSplitter(max_frame_bytes)
        self._waiting: deque[int] = deque()
        self._ready: dict[int, bytes] = {}
        self._outgoing: list[bytes] = []

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[RequestReceived]:
        """The requests completed by these bytes. After a ProtocolError the connection is lost. An
        ApiVersions request of an unknown version is answered here, because it cannot be decoded.
        """
        events: list[RequestReceived] = []
        for frame in self._splitter.feed(data):
            prefix, _ = RequestHeader.decode_prefix(frame, 1)
            self._waiting.append(prefix.correlation_id)
            newest = APIS[API_VERSIONS].max_version
            if prefix.request_api_key == API_VERSIONS and prefix.request_api_version > newest:
                refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
                self._answer(
                    prefix.correlation_id, encode_response(refusal, 0, prefix.correlation_id)
                )
            else:
                header, message = decode_request(frame)
                events.append(RequestReceived(header, message))
        return events

    def respond(self, request: RequestReceived, response: Message | None) -> None:
        """Answer a request; None if the API has no answer (Produce with acks 0)."""
        correlation_id = request.header.correlation_id
        frame = b""
        if response is not None:
            frame = encode_response(response, request.version, correlation_id)
        self._answer(correlation_id, frame)

    def data_to_send(self) -> bytes:
        """What the caller must write to the socket now; each byte is handed out once."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def _answer(self, correlation_id: int, frame: bytes) -> None:
        if correlation_id not in self._waiting or correlation_id in self._ready:
            raise ValueError(f"request {correlation_id} is not waiting for an answer")
        self._ready[correlation_id] = frame
        while self._waiting and self._waiting[0] in self._ready:
            self._outgoing.append(self._ready.pop(self._waiting.popleft()))
