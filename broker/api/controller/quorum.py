"""DescribeQuorum 0-2 (KIP-595), AddRaftVoter 0-1 and RemoveRaftVoter 0 (KIP-853), UnregisterBroker
0.

kstore has no KRaft quorum: the controller is elected through the coordination store. Tools get a
quorum with one static voter, the controller, as in a single-node Kafka. The voters of such a quorum
cannot be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kstore.broker.api import RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.controller.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from kstore.protocol.metadata.features import (
    DescribeQuorumRequest,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kstore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kstore.broker.api.controller.parts import QuorumParts

__all__ = [
    "handle_add_raft_voter",
    "handle_describe_quorum",
    "handle_remove_raft_voter",
    "handle_unregister_broker",
]

METADATA_TOPIC = "__cluster_metadata"
NOT_HERE = f"The only quorum is that of {METADATA_TOPIC}, partition 0."


def handle_describe_quorum(
    broker: QuorumParts, request: DescribeQuorumRequest, ctx: RequestContext
) -> DescribeQuorumResponse:
    """Describe the controller as the only voter. Partitions other than the metadata partition are
    unknown.
    """
    metadata = len(request.topics) == 1 and _asks_for_metadata(request.topics[0])
    response = DescribeQuorumResponse()
    for topic in request.topics:
        rows = [
            _voter(broker, ctx) if metadata else _unknown(requested.partition_index)
            for requested in topic.partitions
        ]
        response.topics.append(
            DescribeQuorumResponseTopicData(topic_name=topic.topic_name, partitions=rows)
        )
    if metadata and ctx.api_version >= 2:
        response.nodes = _nodes(broker)
    return response


def _asks_for_metadata(topic: DescribeQuorumRequestTopicData) -> bool:
    indexes = [row.partition_index for row in topic.partitions]
    return topic.topic_name == METADATA_TOPIC and indexes == [0]


def _voter(broker: QuorumParts, ctx: RequestContext) -> DescribeQuorumResponsePartitionData:
    end = _metadata_offset(broker)
    now_ms = broker.node.now_ms() if ctx.api_version >= 1 else -1
    voter = ReplicaState(
        replica_id=broker.image.controller_id,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return DescribeQuorumResponsePartitionData(
        partition_index=0,
        leader_id=broker.image.controller_id,
        leader_epoch=broker.membership.controller_epoch,
        high_watermark=end,
        current_voters=[voter],
    )


def _metadata_offset(broker: QuorumParts) -> int:
    """A number that increases with each change of the metadata: this broker's epoch, then the
    image's version.
    """
    return broker.image.version + max(0, broker.membership.broker_epoch)


def _unknown(index: int) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=NOT_HERE,
    )


def _nodes(broker: QuorumParts) -> list[Node]:
    node = broker.image.brokers.get(broker.image.controller_id)
    if node is None:
        return []
    listeners = [Listener(name=e.listener, host=e.host, port=e.port) for e in node.endpoints]
    return [Node(node_id=node.node_id, listeners=listeners)]


def handle_add_raft_voter(
    broker: QuorumParts, request: AddRaftVoterRequest, ctx: RequestContext
) -> AddRaftVoterResponse:
    """Refuse, as a quorum of static voters does. A finalized kraft.version of 1 changes nothing."""
    refusal = _voter_error(broker, request.cluster_id, request.voter_id, request.voter_directory_id)
    if refusal is None and not request.listeners:
        words = f"Voter {request.voter_id} has no listener; give its host and port."
        refusal = (ErrorCode.INVALID_REQUEST, words)
    code, words = refusal or _static("added")
    return AddRaftVoterResponse(error_code=code, error_message=words)


def handle_remove_raft_voter(
    broker: QuorumParts, request: RemoveRaftVoterRequest, ctx: RequestContext
) -> RemoveRaftVoterResponse:
    """Refuse, as a quorum of static voters does. A finalized kraft.version of 1 changes nothing."""
    code, words = _voter_error(
        broker, request.cluster_id, request.voter_id, request.voter_directory_id
    ) or _static("removed")
    return RemoveRaftVoterResponse(error_code=code, error_message=words)


def _voter_error(
    broker: QuorumParts, cluster_id: str | None, voter_id: int, directory_id: UUID
) -> tuple[int, str] | None:
    if cluster_id is not None and cluster_id != broker.image.cluster_id:
        return (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"The request is for cluster '{cluster_id}'; this one is '{broker.image.cluster_id}'.",
        )
    if voter_id < 0 or directory_id == ZERO_UUID:
        return (
            ErrorCode.INVALID_REQUEST,
            f"Voter {voter_id} with the directory {directory_id} is not valid; give both ids of "
            "the voter.",
        )
    return None


def _static(done: str) -> tuple[int, str]:
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"The voters are fixed: kstore has no KRaft quorum, so none can be {done}.",
    )


def handle_unregister_broker(
    broker: QuorumParts, request: UnregisterBrokerRequest, ctx: RequestContext
) -> UnregisterBrokerResponse:
    """Unregister a broker. A broker that is alive would register again at once, so nothing changes
    for it.
    """
    if request.broker_id in broker.image.brokers:
        return UnregisterBrokerResponse()
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"There is no broker {request.broker_id} to unregister.",
    )
