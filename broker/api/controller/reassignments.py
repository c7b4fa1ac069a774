"""ElectLeaders 0-2 (KIP-183, KIP-460), AlterPartitionReassignments 0-1 and
ListPartitionReassignments 0 (KIP-455).

A single broker needs no elections and has no reassignments. The checks are in
state/controller/reassignment.py. In a cluster the controller decides, and other brokers forward
these requests to it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.broker.state.controller.reassignment import refuse_election, refuse_reassignment
from kstore.errors import ErrorCode
from kstore.protocol.controller.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.api.controller.parts import ReassignmentParts
    from kstore.broker.runtime.controller.controller import Controller

__all__ = [
    "handle_alter_partition_reassignments",
    "handle_elect_leaders",
    "handle_list_partition_reassignments",
]

ELECTION_TYPES = (0, 1)
NO_EPOCH = -1
LARGEST_RAISED_EPOCH = 1 << 30
"""The limit. Later elections need larger epochs."""


def handle_elect_leaders(
    broker: ReassignmentParts, request: ElectLeadersRequest, ctx: RequestContext
) -> ElectLeadersResponse | Awaitable[ElectLeadersResponse]:
    """Elect leaders. The response has the result of each partition. If the topics are null, it
    covers all partitions that need an election.
    """
    response = ElectLeadersResponse()
    if ctx.api_version >= 1:
        response.error_code = _error(request)
    if any(topic.least_leader_epochs for topic in request.topic_partitions or ()):
        return _raise_epochs(broker, request, response)
    controller = _controller(broker)
    if controller is not None and _error(request) == ErrorCode.NONE:
        return _elect_in_cluster(controller, request, response)
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


async def _raise_epochs(
    broker: ReassignmentParts, request: ElectLeadersRequest, response: ElectLeadersResponse
) -> ElectLeadersResponse:
    """Raise leader epochs to at least these values. Partitions with larger epochs do not change."""
    controller = _controller(broker)
    least: dict[TopicPartition, int] = {}
    for topic in request.topic_partitions or ():
        rows = []
        epochs = topic.least_leader_epochs
        if len(epochs) != len(topic.partitions):  # also in a piece of a wide request
            epochs = [NO_EPOCH] * len(topic.partitions)
        for index, epoch in zip(topic.partitions, epochs, strict=True):
            place = TopicPartition(topic.topic, index)
            code: int = ErrorCode.NONE
            if broker.image.partition(*place) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not 0 <= epoch <= LARGEST_RAISED_EPOCH:
                code = ErrorCode.INVALID_REQUEST
            else:
                least[place] = epoch
            rows.append(PartitionResult(partition_id=index, error_code=code, error_message=None))
        result = ReplicaElectionResult(topic=topic.topic, partition_result=rows)
        response.replica_election_results.append(result)
    if controller is not None:
        await controller.moves.raise_leader_epochs(least)
        return response
    for name in {place.topic for place in least}:
        of_topic = {i: epoch for (each, i), epoch in least.items() if each == name}
        await broker.topics.raise_leader_epochs(name, of_topic)
    return response


def _controller(broker: ReassignmentParts) -> Controller | None:
    """The controller if this broker is the controller. None on a single broker."""
    return broker.membership.controller


async def _elect_in_cluster(
    controller: Controller, request: ElectLeadersRequest, response: ElectLeadersResponse
) -> ElectLeadersResponse:
    requested = None
    if request.topic_partitions is not None:
        requested = [
            TopicPartition(t.topic, i) for t in request.topic_partitions for i in t.partitions
        ]
    answers = await controller.elect_leaders(request.election_type, requested)
    rows: dict[str, ReplicaElectionResult] = {}
    names = controller.state.topics if requested is None else [place.topic for place in requested]
    for name in names:
        rows.setdefault(name, ReplicaElectionResult(topic=name))
    for place, refusal in answers.items():
        code, message = refusal or (ErrorCode.NONE, None)
        rows[place.topic].partition_result.append(
            PartitionResult(partition_id=place.partition, error_code=code, error_message=message)
        )
    response.replica_election_results = list(rows.values())
    return response


def _elect(
    broker: ReassignmentParts, request: ElectLeadersRequest, topic: str, index: int
) -> PartitionResult:
    code = _error(request)
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return PartitionResult(partition_id=index, error_code=code, error_message=None)
    refusal = refuse_election(broker.image, topic, index, request.election_type)
    return PartitionResult(
        partition_id=index, error_code=refusal.code, error_message=refusal.message
    )


def _error(request: ElectLeadersRequest) -> int:
    """The error for the whole request."""
    if request.election_type not in ELECTION_TYPES:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.REQUEST_TIMED_OUT if request.timeout_ms <= 0 else ErrorCode.NONE


def handle_alter_partition_reassignments(
    broker: ReassignmentParts, request: AlterPartitionReassignmentsRequest, ctx: RequestContext
) -> AlterPartitionReassignmentsResponse | Awaitable[AlterPartitionReassignmentsResponse]:
    """Begin or cancel reassignments. On a single broker, only the current assignment is valid, so
    nothing changes.
    """
    if request.timeout_ms <= 0:
        return _timed_out(request)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    controller = _controller(broker)
    if controller is not None:
        return _reassign_in_cluster(controller, request, response)
    for topic in request.topics:
        rows = [_reassign(broker, request, topic.name, row) for row in topic.partitions]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    return response


async def _reassign_in_cluster(
    controller: Controller,
    request: AlterPartitionReassignmentsRequest,
    response: AlterPartitionReassignmentsResponse,
) -> AlterPartitionReassignmentsResponse:
    requested = [
        (TopicPartition(topic.name, row.partition_index), row.replicas)
        for topic in request.topics
        for row in topic.partitions
    ]
    answers = await controller.alter_reassignments(
        requested, allow_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        result = ReassignableTopicResponse(name=topic.name)
        for row in topic.partitions:
            refusal = answers[TopicPartition(topic.name, row.partition_index)]
            code, message = refusal or (ErrorCode.NONE, None)
            result.partitions.append(
                ReassignablePartitionResponse(
                    partition_index=row.partition_index, error_code=code, error_message=message
                )
            )
        response.responses.append(result)
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
    broker: ReassignmentParts,
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
    broker: ReassignmentParts, request: ListPartitionReassignmentsRequest, ctx: RequestContext
) -> ListPartitionReassignmentsResponse | Awaitable[ListPartitionReassignmentsResponse]:
    """List the reassignments in progress, of the named topics or of all. A single broker has
    none.
    """
    controller = _controller(broker)
    if controller is not None:
        return _list_in_cluster(controller, request)
    return ListPartitionReassignmentsResponse(error_message=None)


async def _list_in_cluster(
    controller: Controller, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    requested = None
    if request.topics is not None:
        requested = [TopicPartition(t.name, i) for t in request.topics for i in t.partition_indexes]
    topics: dict[str, OngoingTopicReassignment] = {}
    for ongoing in await controller.list_reassignments(requested):
        name, index = ongoing.partition
        result = topics.setdefault(name, OngoingTopicReassignment(name=name))
        result.partitions.append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(ongoing.replicas),
                adding_replicas=list(ongoing.adding),
                removing_replicas=list(ongoing.removing),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
