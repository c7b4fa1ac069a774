"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3: changes of topics by admin clients.

state/metadata/topic_rules.py has the rules, runtime/topics/topics.py executes changes, and this
file converts the messages. Each topic of a request gets one row of the response. As in Kafka,
nothing is done if the request's timeout is 0 or less.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api import RequestContext
from kstore.broker.api.metadata.configs import HasConfigs, shown_topic_defaults
from kstore.broker.api.security.access import HasAuthorizer, allowed
from kstore.broker.api.security.permissions import no_right
from kstore.broker.state.metadata.image import TopicImage
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError, topic_row
from kstore.config import TOPIC_CONFIGS
from kstore.errors import ErrorCode
from kstore.protocol.metadata.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kstore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kstore.broker.runtime.quotas.client_throttles import ClientThrottles, Mutations
    from kstore.broker.runtime.topics.topics import Topics
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = [
    "CreateTopicsParts",
    "TopicParts",
    "handle_create_partitions",
    "handle_create_topics",
    "handle_delete_topics",
]

DYNAMIC_TOPIC_CONFIG = 1
UNKNOWN = -1
REFUSED_IDS: dict[int, str] = {
    ErrorCode.INVALID_REQUEST: "Give the name or the id of the topic to delete, not both.",
    ErrorCode.UNKNOWN_TOPIC_ID: "No topic has this id; it may have been deleted.",
}
TWICE = "The request names this topic more than once, so nothing was done; name it once."


class TopicParts(HasAuthorizer, Protocol):
    """The parts of a broker that the handlers for creating, expanding and deleting topics use."""

    @property
    def image(self) -> MetadataImage:
        """The existing topics."""

    @property
    def topics(self) -> Topics:
        """Executes the changes."""

    @property
    def throttles(self) -> ClientThrottles | None:
        """Charges clients for changes; None while there are no quotas."""


class CreateTopicsParts(TopicParts, HasConfigs, Protocol):
    """The parts that the handler of CreateTopics uses, which also returns settings."""


async def handle_create_topics(
    broker: CreateTopicsParts, request: CreateTopicsRequest, ctx: RequestContext
) -> CreateTopicsResponse:
    """Create topics. A name that is in the request twice gets INVALID_REQUEST."""
    counts = Counter(topic.name for topic in request.topics)
    response = CreateTopicsResponse()
    if request.timeout_ms <= 0:
        response.topics = [
            CreatableTopicResult(
                name=name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None
            )
            for name in counts
        ]
        return response
    for name, count in counts.items():
        if count > 1:
            response.topics.append(
                CreatableTopicResult(
                    name=name,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=TWICE,
                )
            )
    mutations = _mutations(broker, ctx)
    for requested in request.topics:
        if counts[requested.name] == 1:
            made = await _create(broker, requested, request.validate_only, mutations)
            _hide_configs(broker, ctx, made)
            response.topics.append(made)
    response.throttle_time_ms = _throttle(broker, ctx, mutations)
    return response


STRICT_FROM = {19: 6, 20: 5, 37: 3}
"""The version of CreateTopics, DeleteTopics and CreatePartitions from which clients know
THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""
THROTTLED = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)


def _mutations(broker: TopicParts, ctx: RequestContext) -> Mutations | None:
    """The charge for the partitions that the request creates or deletes. None without a quota."""
    if broker.throttles is None:
        return None
    strict = ctx.api_version >= STRICT_FROM[ctx.api_key]
    who = (ctx.principal, ctx.client_id or "")
    found: Mutations | None = broker.throttles.mutations(*who, strict=strict)
    return found


def _throttle(broker: TopicParts, ctx: RequestContext, mutations: Mutations | None) -> int:
    """How long the client must wait after this request. Mutes its connection for this time."""
    wait_ms = 0 if mutations is None else mutations.wait_ms()
    if wait_ms and broker.throttles is not None and ctx.connection is not None:
        broker.throttles.hold(ctx.connection, wait_ms)
    return wait_ms


async def _create(
    broker: CreateTopicsParts,
    requested: CreatableTopic,
    validate_only: bool,
    mutations: Mutations | None,
) -> CreatableTopicResult:
    new = NewTopic(
        requested.name,
        requested.num_partitions,
        requested.replication_factor,
        {a.partition_index: a.broker_ids for a in requested.assignments},
        {config.name: config.value for config in requested.configs},
    )
    try:
        if len(new.assignments) != len(requested.assignments):
            raise TopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once."
            )
        if mutations is not None:
            planned = await broker.topics.create(new, validate_only=True)
            if not mutations.charge(len(planned.partitions)):
                code, message = THROTTLED
                return CreatableTopicResult(
                    name=requested.name, error_code=code, error_message=message
                )
        topic = await broker.topics.create(new, validate_only=validate_only)
    except TopicError as problem:
        return CreatableTopicResult(
            name=requested.name, error_code=problem.code, error_message=problem.message
        )
    if not validate_only:
        for name in topic.configs:
            row = topic_row(name)
            if row is not None:
                broker.configs.warn_if_without_effect(name, row.documentation)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=_configs(broker, topic),
    )


def _hide_configs(broker: HasAuthorizer, ctx: RequestContext, made: CreatableTopicResult) -> None:
    """Remove the settings of a created topic for clients that may not describe them."""
    topic, may = AclResourceType.TOPIC, AclOperation.DESCRIBE_CONFIGS
    if made.error_code == ErrorCode.NONE and not allowed(
        broker, ctx, may, topic, made.name, quiet=True
    ):
        made.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        made.num_partitions = made.replication_factor = UNKNOWN
        made.configs = []


def _configs(broker: HasConfigs, topic: TopicImage) -> list[CreatableTopicConfigs]:
    """The settings of a topic as DescribeConfigs returns them, sorted by name."""
    rows = []
    for name, default, default_source in shown_topic_defaults(broker):
        value, source = default, default_source
        if name in topic.configs:
            row = TOPIC_CONFIGS[name]
            value = row.format(row.parse(topic.configs[name], "topic config"))
            source = DYNAMIC_TOPIC_CONFIG
        rows.append(CreatableTopicConfigs(name=name, value=value, config_source=source))
    return rows


async def handle_delete_topics(
    broker: TopicParts, request: DeleteTopicsRequest, ctx: RequestContext
) -> DeleteTopicsResponse:
    """Delete topics by name, or by id from version 6 on. A topic that is named twice gets
    INVALID_REQUEST.
    """
    requested = request.topics
    if ctx.api_version < 6:
        requested = [DeleteTopicState(name=name) for name in request.topic_names]
    response, requested = _named_once(requested, timely=request.timeout_ms > 0)
    resolved = [(state, *_resolve(broker, state)) for state in requested]
    counts = Counter(name for _, name, _ in resolved if name is not None)
    mutations = _mutations(broker, ctx)
    answered: set[str] = set()
    for state, name, unresolved in resolved:
        if name in answered:
            continue
        if name is not None:
            answered.add(name)
        topic = broker.image.topics.get(name) if name is not None else None
        topic_id = topic.topic_id if topic is not None else state.topic_id
        code, message = unresolved, REFUSED_IDS.get(unresolved)
        if request.timeout_ms <= 0:
            code, message = ErrorCode.REQUEST_TIMED_OUT, None
        elif name is not None and counts[name] > 1:
            code, message = ErrorCode.INVALID_REQUEST, TWICE
        elif name is not None and not _may_delete(broker, ctx, name):
            response.responses.append(_not_deleted(broker, ctx, state, name))
            continue
        elif topic is not None and mutations and not mutations.charge(len(topic.partitions)):
            code, message = THROTTLED
        elif name is not None and code == ErrorCode.NONE:
            code, message = await _delete(broker, name)
        response.responses.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
        )
    response.throttle_time_ms = _throttle(broker, ctx, mutations)
    return response


def _named_once(
    requested: list[DeleteTopicState], *, timely: bool
) -> tuple[DeleteTopicsResponse, list[DeleteTopicState]]:
    """A response that refuses names and ids that are in the request twice, and the remaining
    topics. A topic that is named by its name and by its id remains.
    """
    response = DeleteTopicsResponse()
    counts = Counter((state.name, state.topic_id) for state in requested)
    twice = [key for key, count in counts.items() if count > 1 and key != (None, ZERO_UUID)]
    if not timely or not twice:
        return response, requested
    response.responses = [
        DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=TWICE
        )
        for name, topic_id in twice
    ]
    return response, [state for state in requested if (state.name, state.topic_id) not in twice]


def _may_delete(broker: TopicParts, ctx: RequestContext, name: str) -> bool:
    """Whether the client may delete the topic. If the topic does not exist, a client that may
    describe it gets that as the error.
    """
    there = name in broker.image.topics
    needed = AclOperation.DELETE if there else AclOperation.DESCRIBE
    return allowed(broker, ctx, needed, AclResourceType.TOPIC, name)


def _not_deleted(
    broker: TopicParts, ctx: RequestContext, state: DeleteTopicState, name: str
) -> DeletableTopicResult:
    """The refusal. It does not reveal the topic to a client that may not describe it."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = allowed(broker, ctx, AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=True)
    return DeletableTopicResult(
        name=name if known else state.name,
        topic_id=state.topic_id,
        error_code=code,
        error_message=no_right(ctx, code),
    )


def _resolve(broker: TopicParts, state: DeleteTopicState) -> tuple[str | None, int]:
    """The topic's name, or the error code if it does not exist."""
    if state.name is not None:
        if state.topic_id != ZERO_UUID:
            return state.name, ErrorCode.INVALID_REQUEST
        return state.name, ErrorCode.NONE
    if state.topic_id == ZERO_UUID:
        return None, ErrorCode.INVALID_REQUEST
    return _name_of(broker, state.topic_id)


def _name_of(broker: TopicParts, topic_id: UUID) -> tuple[str | None, int]:
    topic = broker.image.topic_by_id(topic_id)
    if topic is None:
        return None, ErrorCode.UNKNOWN_TOPIC_ID
    return topic.name, ErrorCode.NONE


async def _delete(broker: TopicParts, name: str) -> tuple[int, str | None]:
    try:
        await broker.topics.delete(name)
    except TopicError as problem:
        return problem.code, problem.message
    return ErrorCode.NONE, None


async def handle_create_partitions(
    broker: TopicParts, request: CreatePartitionsRequest, ctx: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to topics. All expansions run at the same time, since each may wait for a
    leader that does not answer. A topic that is named twice gets INVALID_REQUEST.
    """
    counts = Counter(topic.name for topic in request.topics)
    response = CreatePartitionsResponse()
    mutations = _mutations(broker, ctx)
    growing = []
    for requested in {topic.name: topic for topic in request.topics}.values():
        result = CreatePartitionsTopicResult(name=requested.name, error_message=None)
        response.results.append(result)
        if request.timeout_ms <= 0:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        elif counts[requested.name] > 1:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, TWICE
        else:
            growing.append(_grow(broker, requested, result, request.validate_only, mutations))
    await asyncio.gather(*growing)
    response.throttle_time_ms = _throttle(broker, ctx, mutations)
    return response


async def _grow(
    broker: TopicParts,
    requested: CreatePartitionsTopic,
    result: CreatePartitionsTopicResult,
    validate_only: bool,
    mutations: Mutations | None,
) -> None:
    assignments = None
    if requested.assignments is not None:
        assignments = [assignment.broker_ids for assignment in requested.assignments]
    try:
        new = NewPartitions(requested.name, requested.count, assignments, requested.may_shrink)
        if mutations is not None:
            await broker.topics.add_partitions(new, validate_only=True)
            added = requested.count - len(broker.image.topics[requested.name].partitions)
            if not mutations.charge(max(added, 0)):
                result.error_code, result.error_message = THROTTLED
                return
        await broker.topics.add_partitions(new, validate_only=validate_only)
    except TopicError as problem:
        unknown = problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result.error_code = problem.code
        result.error_message = None if unknown else problem.message
