"""AddRaftVoter and RemoveRaftVoter (KIP-853): the voters of a metadata quorum."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
)

__all__ = [
    "AddRaftVoterRequest",
    "AddRaftVoterResponse",
    "Listener",
    "RemoveRaftVoterRequest",
    "RemoveRaftVoterResponse",
]


class Listener(Struct):
    """One entry of `listeners` in AddRaftVoterRequest."""

    name: String = field("0+", default="")
    host: String = field("0+", default="")
    port: UInt16 = field("0+", default=0)


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    """Adds a voter to the metadata quorum."""

    cluster_id: String | None = field("0+", default="", nullable="0+")
    timeout_ms: Int32 = field("0+", default=0)
    voter_id: Int32 = field("0+", default=0)
    voter_directory_id: Uuid = field("0+", default=ZERO_UUID)
    listeners: list[Listener] = field("0+", default=[])
    ack_when_committed: Bool = field("1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    """The answer to AddRaftVoterRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+", ignorable=True)


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    """Removes a voter from the metadata quorum."""

    cluster_id: String | None = field("0+", default="", nullable="0+")
    voter_id: Int32 = field("0+", default=0)
    voter_directory_id: Uuid = field("0+", default=ZERO_UUID)


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    """The answer to RemoveRaftVoterRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+", ignorable=True)
