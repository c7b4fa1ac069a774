"""FindCoordinator: the broker that serves a group or a transactional id. From version 4 on it looks
up many keys at once (KIP-699).
"""

from __future__ import annotations

from kstore.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "Coordinator",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
]


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    """Asks for the coordinators of keys of one type: 0 group, 1 transaction, 2 share."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", default=[])


class Coordinator(Struct):
    """One entry of `coordinators` in FindCoordinatorResponse."""

    key: String = field("4+", default="")
    node_id: Int32 = field("4+", default=0)
    host: String = field("4+", default="")
    port: Int32 = field("4+", default=0)
    error_code: Int16 = field("4+", default=0)
    error_message: String | None = field("4+", default="", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    """The answer to FindCoordinatorRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="", nullable="1-3", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=[])
