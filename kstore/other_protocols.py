"""Recognizes TLS or HTTP by the first bytes of a connection. Both ends use it to name a client or a
port that speaks another protocol than expected.
"""

from __future__ import annotations

__all__ = ["HTTP_REFUSAL", "OTHER_CLIENTS", "SIZE_LIMITS", "other_protocol"]

OTHER_CLIENTS = {
    "HTTP": "it speaks HTTP, and this listener Kafka's protocol; kstore's HTTP API is where "
    "kstore.http.listener says",
    "TLS": "it speaks TLS, and this listener does not: give the client a security.protocol of "
    "PLAINTEXT or SASL_PLAINTEXT, or the port of a listener with TLS",
}
"""What a broker logs about such a client on a port without TLS."""

SIZE_LIMITS = (
    "socket.request.max.bytes",
    "sasl.server.max.receive.size, until it is authenticated",
)
"""The setting that limits a request, and the one that does before the client is authenticated."""

_HTTP = (
    b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ",
    b"HTTP",
)  # fmt: skip
_TLS_RECORDS = (0x15, 0x16)  # an alert, a handshake
_TEXT = b"This is a Kafka listener, which does not speak HTTP. See kstore.http.listener.\n"
HTTP_REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_TEXT), _TEXT)
)
"""The answer to an HTTP client."""


def other_protocol(first: bytes) -> str | None:
    """TLS or HTTP by the first four bytes (or more); None for neither."""
    if first[:4] in _HTTP:
        return "HTTP"
    if len(first) >= 3 and first[0] in _TLS_RECORDS and first[1] == 3 and first[2] <= 4:
        return "TLS"
    return None
