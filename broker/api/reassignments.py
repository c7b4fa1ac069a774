"""ElectLeaders 0-2 (KIP-183, KIP-460), AlterPartitionReassignments 0-1 and
ListPartitionReassignments 0 (KIP-455).

On one node nothing can move, so no election is needed and no reassignment is ever under way. The
checks are in state/reassignment.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.broker.state.reassignment import refuse_election, refuse_reassignment
from kstore.errors import ErrorCode
from kstore.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = [
    "handle_alter_partition_reassignments",
    "handle_elect_leaders",
    "handle_list_partition_reassignments",
]

ELECTION_TYPES = (0, 1)


def handle_elect_leaders(
    broker: Broker, request: ElectLeadersRequest, ctx: RequestContext
) -> ElectLeadersResponse:
    """Per partition why no election took place; null topics mean all, of which only those are told
    that were elected: none.
    """
    response = ElectLeadersResponse()
    if ctx.api_version >= 1:
        response.error_code = _error(request)
    if request.topic_partitions is None:
        response.replica_election_results = [
            ReplicaElectionResult(topic=name) for name in broker.image.topics
        ]
        return response
    for topic in request.topic_partitions:
        rows = [_elect(broker, request, topic.topic, index) for index in topic.partitions]
        response.replica_election_results.append(
            ReplicaElectionResult(topic=topic.topic, partition_result=rows)
        )
    return response


def _elect(broker: Broker, request: ElectLeadersRequest, topic: str, index: int) -> PartitionResult:
    code = _error(request)
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return PartitionResult(partition_id=index, error_code=code, error_message=None)
    refusal = refuse_election(broker.image, topic, index, request.election_type)
    return PartitionResult(
        partition_id=index, error_code=refusal.code, error_message=refusal.message
    )


def _error(request: ElectLeadersRequest) -> int:
    """The error of a whole request."""
    if request.election_type not in ELECTION_TYPES:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.REQUEST_TIMED_OUT if request.timeout_ms <= 0 else ErrorCode.NONE


def handle_alter_partition_reassignments(
    broker: Broker, request: AlterPartitionReassignmentsRequest, ctx: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Check each; the only valid assignment is the one there is, so nothing is to be done."""
    if request.timeout_ms <= 0:
        return _timed_out(request)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        rows = [_reassign(broker, request, topic.name, row) for row in topic.partitions]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    return response


def _timed_out(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None
    )
    for topic in request.topics:
        rows = [
            ReassignablePartitionResponse(
                partition_index=row.partition_index,
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                error_message=None,
            )
            for row in topic.partitions
        ]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    return response


def _reassign(
    broker: Broker,
    request: AlterPartitionReassignmentsRequest,
    topic: str,
    row: ReassignablePartition,
) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(partition_index=row.partition_index, error_message=None)
    refusal = refuse_reassignment(
        broker.image, topic, row.partition_index, row.replicas,
        allow_factor_change=request.allow_replication_factor_change,
    )  # fmt: skip
    if refusal is not None:
        answer.error_code, answer.error_message = refusal
    return answer


def handle_list_partition_reassignments(
    broker: Broker, request: ListPartitionReassignmentsRequest, ctx: RequestContext
) -> ListPartitionReassignmentsResponse:
    """None is under way."""
    return ListPartitionReassignmentsResponse(error_message=None)
