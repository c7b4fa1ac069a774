"""Requests that a broker of a cluster does not answer itself, or not yet: those that only the
controller can answer are handed on to it, and all of clients' wait until this broker knows the
cluster.

A client may so ask any broker for anything. Where no controller can be had in time, it is told so
in the form of its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from kstore.broker.api import Handler, RequestContext
from kstore.broker.runtime.to_controller import ask_controller
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from kstore.protocol.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["to_controller", "when_ready"]

LONGEST_S = 30.0
"""A client's timeout above this is not waited for: most clients give up after 30 s."""
AT_LEAST_S = 1.0
READY_S = 20.0
"""How long a client's request waits for the broker to know the cluster."""


def to_controller(handler: Handler) -> Handler:
    """The handler where this broker is the controller; elsewhere the request is handed on."""

    async def hand_on(broker: Broker, request: Any, ctx: RequestContext) -> Any:
        timeout_s = getattr(request, "timeout_ms", LONGEST_S * 1000) / 1000
        try:
            response = await ask_controller(
                broker,
                request,
                timeout_s=min(max(timeout_s, AT_LEAST_S), LONGEST_S),
                version=ctx.api_version,
                client_id=ctx.client_id,
                principal=ctx.principal,
                client_host=ctx.client_host,
            )
        except KafkaError as problem:
            return failed(request, ctx.api_version, _told(problem), str(problem))
        wait_ms = getattr(response, "throttle_time_ms", 0)
        if wait_ms and broker.throttles is not None and ctx.connection is not None:
            broker.throttles.hold(ctx.connection, wait_ms)
        return response

    async def decide(broker: Broker, request: Any, ctx: RequestContext) -> Any:
        try:
            response = handler(broker, request, ctx)
            return await response if isawaitable(response) else response
        except KafkaError as problem:  # it is the controller no more, or the store has failed
            return failed(request, ctx.api_version, _told(problem), str(problem))

    def route(broker: Broker, request: Any, ctx: RequestContext) -> Any:
        cluster = broker.cluster
        if cluster is None:
            return handler(broker, request, ctx)
        return (decide if cluster.is_controller else hand_on)(broker, request, ctx)

    return route


def when_ready(handler: Handler) -> Handler:
    """The handler, once this broker knows the cluster: until then it would answer that nothing
    exists.
    """

    async def wait(broker: Broker, request: Any, ctx: RequestContext) -> Any:
        try:
            await asyncio.wait_for(broker.replica_manager.ready.wait(), READY_S)
        except TimeoutError:
            broker.report("a client's request is answered before the controller has said anything")
        response = handler(broker, request, ctx)
        return await response if isawaitable(response) else response

    def route(broker: Broker, request: Any, ctx: RequestContext) -> Any:
        if broker.cluster is None or broker.replica_manager.ready.is_set():
            return handler(broker, request, ctx)
        return wait(broker, request, ctx)

    return route


def _told(problem: KafkaError) -> int:
    """What a client is told: it knows how to look for the controller again."""
    if problem.code == ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_CONTROLLER


def failed(request: Any, version: int, code: int, message: str) -> Any:
    """The response that gives one error for all that was asked."""
    return FAILURES[type(request)](request, version, code, message)


def _create_topics(request: CreateTopicsRequest, version: int, code: int, message: str) -> Any:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=code, error_message=message)
            for name in names
        ]
    )


def _delete_topics(request: DeleteTopicsRequest, version: int, code: int, message: str) -> Any:
    asked = request.topics
    if version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=row.name, topic_id=row.topic_id, error_code=code, error_message=message
            )
            for row in asked
        ]
    )


def _create_partitions(
    request: CreatePartitionsRequest, version: int, code: int, message: str
) -> Any:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
            for name in names
        ]
    )


def _elect_leaders(request: ElectLeadersRequest, version: int, code: int, message: str) -> Any:
    response = ElectLeadersResponse()
    if version >= 1:
        response.error_code = code
    for topic in request.topic_partitions or ():
        rows = [
            PartitionResult(partition_id=index, error_code=code, error_message=message)
            for index in topic.partitions
        ]
        response.replica_election_results.append(
            ReplicaElectionResult(topic=topic.topic, partition_result=rows)
        )
    return response


def _alter_reassignments(
    request: AlterPartitionReassignmentsRequest, version: int, code: int, message: str
) -> Any:
    response = AlterPartitionReassignmentsResponse(error_code=code, error_message=message)
    for topic in request.topics:
        rows = [
            ReassignablePartitionResponse(
                partition_index=row.partition_index, error_code=code, error_message=message
            )
            for row in topic.partitions
        ]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    return response


def _list_reassignments(
    request: ListPartitionReassignmentsRequest, version: int, code: int, message: str
) -> Any:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)


FAILURES: dict[type, Callable[[Any, int, int, str], Any]] = {
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: _alter_reassignments,
    ListPartitionReassignmentsRequest: _list_reassignments,
}
