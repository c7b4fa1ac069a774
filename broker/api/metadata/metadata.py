"""Metadata 0-13 and DescribeTopicPartitions 0 (KIP-966): topics, partitions, leaders, brokers.

Responses depend only on the image, so the data plane caches their bytes until the image changes.
Topics are encoded in C, because an object for each of 10,000 partitions would block the loop for 80
ms. A missing topic is created if the request and auto.create.topics.enable allow it, and is then in
the response. Clients get no information about topics that they may not describe, not even whether
they exist.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from kstore._fast.broker.metadata_topics import encode_topics
from kstore.acls import CLUSTER_NAME, AclOperation, AclResourceType
from kstore.broker.api import RequestContext
from kstore.broker.api.requests.turns import HasTurns, sliced
from kstore.broker.api.security.access import (
    HasAuthorizer,
    allowed,
    allowed_cluster,
    operations_mask,
    permitted,
)
from kstore.broker.state.metadata.image import MetadataImage, PartitionImage, TopicImage
from kstore.broker.state.metadata.topic_rules import TopicError, check_name
from kstore.broker.state.work import ROWS_BETWEEN, Work, each, in_order
from kstore.errors import ErrorCode
from kstore.protocol import ProtocolError
from kstore.protocol.metadata.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from kstore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.topics.auto_topic_creation import AutoTopicCreationManager

__all__ = [
    "cluster_operations",
    "handle_describe_topic_partitions",
    "handle_metadata",
]

NOT_REQUESTED = -(2**31)
NO_LEADER = -1
NO_OPERATIONS = 0
FIRST_FLEXIBLE = 9
MAX_EPOCH_BYTES = 9
"""The size of the tagged fields at the end of a response with the largest partition epoch."""
FIRST_NULL_NAME = 12


class ImageParts(HasAuthorizer, Protocol):
    """The parts of a broker that code that describes the cluster uses."""

    @property
    def node(self) -> Node:
        """The broker's settings and id."""

    @property
    def image(self) -> MetadataImage:
        """The topics and brokers."""

    @property
    def membership(self) -> Membership:
        """Which brokers can be reached."""


class MetadataParts(ImageParts, Protocol):
    """The parts of a broker that the handler of Metadata uses."""

    @property
    def auto_topic_creation(self) -> Lazy[AutoTopicCreationManager]:
        """Creates missing topics."""


class TopicPartitionsParts(ImageParts, HasTurns, Protocol):
    """The parts of a broker that the handler of DescribeTopicPartitions uses."""


class Missing(NamedTuple):
    """A requested topic that does not exist."""

    name: str | None
    topic_id: UUID


class EncodedMetadata(NamedTuple):
    """A Metadata response whose topics are encoded separately."""

    rest: MetadataResponse
    """The response without topics."""
    topics: Sequence[TopicImage | Missing]
    errors: Sequence[int] | None
    operations: int | list[int]
    """The operations that are allowed on all topics, or on each topic."""
    alive: set[int] | None
    """The brokers that this client can reach. None if this is the only broker."""
    brokers: Container[int]
    epochs: bool = False
    """Whether it has partition epochs (KIP-232), for clients that asked for kstore's tagged
    fields.
    """

    def encode(self, version: int) -> bytes:
        """The body of the whole response."""
        if version < FIRST_NULL_NAME and any(topic.name is None for topic in self.topics):
            raise ProtocolError(f"Metadata {version} asks for a topic by an id")
        rest = self.rest.encode(version)
        flexible = version >= FIRST_FLEXIBLE
        tagged = flexible and self.rest.max_partition_epoch >= 0
        tags = MAX_EPOCH_BYTES if tagged else flexible
        behind = tags + 4 * (8 <= version <= 10) + 2 * (version >= 13)
        before = len(rest) - behind - (1 if flexible else 4)  # of the count of topics
        topics = encode_topics(
            self.topics, self.errors, version, self.operations, self.alive, self.brokers,
            epochs=self.epochs,
        )  # fmt: skip
        return b"".join((rest[:before], topics, rest[len(rest) - behind :]))

    def error_counts(self) -> dict[int, int] | None:
        """Error code to the number of topics with this error. None if there are none."""
        if self.errors is None or not any(self.errors):
            return None
        return {code: count for code, count in Counter(self.errors).items() if code}

    def joined_with(self, answer: EncodedMetadata) -> EncodedMetadata:
        """Join the response to a piece of a large request with the response to the next piece.
        Everything except topics is that of the first piece, which is the oldest.
        """
        operations = self.operations
        if isinstance(operations, list) and isinstance(answer.operations, list):
            operations += answer.operations
        return self._replace(
            topics=[*self.topics, *answer.topics],
            errors=[*(self.errors or ()), *(answer.errors or ())],
        )


def handle_metadata(
    broker: MetadataParts, request: MetadataRequest, ctx: RequestContext
) -> EncodedMetadata | Awaitable[EncodedMetadata]:
    """Describe the named topics, or all. Create missing ones first if that is allowed."""
    missing = _to_create(broker, request)
    errors: dict[str, int] = {}
    if missing and broker.authorizer is not None:
        missing, errors = _allowed_to_create(broker, ctx, missing)
    if missing:
        return _create_and_describe(broker, request, ctx, missing, errors)
    return _describe(broker, request, ctx, errors)


def _allowed_to_create(
    broker: HasAuthorizer, ctx: RequestContext, missing: list[str]
) -> tuple[list[str], dict[str, int]]:
    """The topics that the client may create, and the errors of those that it may only describe."""
    topic = AclResourceType.TOPIC
    known = permitted(broker, ctx, AclOperation.DESCRIBE, topic, missing)
    if allowed_cluster(broker, ctx, AclOperation.CREATE, quiet=True):
        made = known
    else:
        made = permitted(broker, ctx, AclOperation.CREATE, topic, known)
    denied = dict.fromkeys(known - made, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return [name for name in missing if name in made], denied


def _to_create(broker: MetadataParts, request: MetadataRequest) -> list[str]:
    if not request.allow_auto_topic_creation or not broker.node.config["auto.create.topics.enable"]:
        return []
    requested = [topic for topic in request.topics or [] if topic.topic_id == ZERO_UUID]
    names = dict.fromkeys(topic.name for topic in requested if topic.name is not None)
    return [name for name in names if name not in broker.image.topics and _legal(name)]


def _legal(name: str) -> bool:
    try:
        check_name(name)
    except TopicError:
        return False
    return True


async def _create_and_describe(
    broker: MetadataParts, request: MetadataRequest, ctx: RequestContext, missing: list[str],
    errors: dict[str, int],
) -> EncodedMetadata:  # fmt: skip
    not_created = await broker.auto_topic_creation().create(missing)
    return _describe(broker, request, ctx, errors | not_created)


def _describe(
    broker: ImageParts, request: MetadataRequest, ctx: RequestContext, errors: dict[str, int]
) -> EncodedMetadata:
    image = broker.image
    codes: list[int] | None = None
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        topics = _all_topics(broker, ctx)
    else:
        once = {(topic.name, topic.topic_id): topic for topic in request.topics}
        found = [_asked(broker, ctx, topic, errors) for topic in once.values()]
        topics = [topic for topic, _ in found]
        codes = [code for _, code in found]
    brokers = []
    for node in (*image.brokers.values(), *image.departed.values()):
        endpoint = node.endpoint(ctx.listener)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(
                    node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack
                )
            )
    response = MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=_for_admins(broker, image),
    )
    if ctx.extended:
        response.max_partition_epoch = image.max_partition_epoch
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(broker, ctx)
    operations: int | list[int] = NOT_REQUESTED
    if request.include_topic_authorized_operations:
        operations = _topic_operations(broker, ctx, topics)
    alive = broker.membership.reachable(ctx.listener)
    return EncodedMetadata(response, topics, codes, operations, alive, image.brokers, ctx.extended)


def _all_topics(broker: ImageParts, ctx: RequestContext) -> list[TopicImage | Missing]:
    """All topics that the client may describe."""
    topics: list[TopicImage | Missing] = list(broker.image.topics.values())
    if broker.authorizer is None:
        return topics
    rights, may = broker.authorizer.rights(ctx.principal, ctx.client_host), AclOperation.DESCRIBE
    kind = AclResourceType.TOPIC
    return [topic for topic in topics if rights.mask(kind, topic.name or "") >> may & 1]


def _topic_operations(
    broker: HasAuthorizer, ctx: RequestContext, topics: Sequence[TopicImage | Missing]
) -> int | list[int]:
    """The operations that the client may do on each topic that it may describe, existing or not."""
    kind = AclResourceType.TOPIC
    if broker.authorizer is None:
        return operations_mask(broker, ctx, kind, "")
    masks = [operations_mask(broker, ctx, kind, topic.name or "") for topic in topics]
    return [mask if mask >> AclOperation.DESCRIBE & 1 else NOT_REQUESTED for mask in masks]


def cluster_operations(broker: HasAuthorizer, ctx: RequestContext) -> int:
    """The operations that the client may do on the cluster. None without the right DESCRIBE."""
    if not allowed_cluster(broker, ctx, AclOperation.DESCRIBE):
        return NO_OPERATIONS
    return operations_mask(broker, ctx, AclResourceType.CLUSTER, CLUSTER_NAME)


def _for_admins(broker: ImageParts, image: MetadataImage) -> int:
    """The broker to which clients should send requests for the controller: this broker, which
    forwards them. The controller may have ended without this broker knowing it yet, and clients
    wait long for the broker in a response. (For the same reason, Kafka names any live broker.)
    """
    return broker.node.node_id if broker.node.node_id in image.brokers else image.controller_id


def _asked(
    broker: ImageParts, ctx: RequestContext, requested: MetadataRequestTopic, errors: dict[str, int]
) -> tuple[TopicImage | Missing, int]:
    """A requested topic, by its id if the request has one, else by its name; or an error."""
    may, kind = AclOperation.DESCRIBE, AclResourceType.TOPIC
    if requested.name is None or requested.topic_id != ZERO_UUID:
        topic = broker.image.topic_by_id(requested.topic_id)
        if topic is None:
            return Missing(None, requested.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        if not allowed(broker, ctx, may, kind, topic.name):
            return Missing(None, requested.topic_id), ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return topic, ErrorCode.NONE
    if not allowed(broker, ctx, may, kind, requested.name):
        return Missing(requested.name, ZERO_UUID), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = broker.image.topics.get(requested.name)
    if topic is not None:
        return topic, ErrorCode.NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _legal(requested.name):
        unknown = ErrorCode.INVALID_TOPIC_EXCEPTION
    return Missing(requested.name, ZERO_UUID), errors.get(requested.name, unknown)


def handle_describe_topic_partitions(
    broker: TopicPartitionsParts, request: DescribeTopicPartitionsRequest, ctx: RequestContext
) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]:
    """Describe topics sorted by name, up to a number of partitions. The cursor says where to
    continue.
    """
    return sliced(broker, ctx, _describe_topic_partitions(broker, request, ctx))


def _describe_topic_partitions(
    broker: TopicPartitionsParts, request: DescribeTopicPartitionsRequest, ctx: RequestContext
) -> Work[DescribeTopicPartitionsResponse]:
    most = broker.node.config["max.request.partition.size.limit"]
    limit = min(max(request.response_partition_limit, 1), most)
    requested: set[str] = set()
    yield from each(lambda topic: requested.add(topic.name), request.topics)
    names = yield from in_order(requested or list(broker.image.topics), str)
    first = 0
    if request.cursor is not None:
        start = request.cursor.topic_name
        if request.cursor.partition_index < 0 or (request.topics and start not in requested):
            rows = yield from each(_bad_cursor, names if request.topics else ())
            return DescribeTopicPartitionsResponse(topics=rows)
        names = names[bisect_left(names, start) :]
        first = request.cursor.partition_index if names and names[0] == start else 0
    quiet, may, kind = not request.topics, AclOperation.DESCRIBE, AclResourceType.TOPIC
    known = yield from each(lambda n: allowed(broker, ctx, may, kind, n, quiet=quiet), names)
    shown = [name for name, is_known in zip(names, known, strict=True) if is_known]
    response = yield from _some_partitions(broker, ctx, shown, first, limit)
    if request.topics and len(shown) < len(names):
        denied = [name for name, is_known in zip(names, known, strict=True) if not is_known]
        response.topics += yield from each(_denied, denied)
    return response


def _some_partitions(
    broker: ImageParts, ctx: RequestContext, names: list[str], first: int, limit: int
) -> Work[DescribeTopicPartitionsResponse]:
    """At most this many partitions of these topics, beginning at a partition of the first topic."""
    response = DescribeTopicPartitionsResponse()
    reachable = broker.membership.reachable(ctx.listener)
    for number, name in enumerate(names, 1):
        if number % ROWS_BETWEEN == 0:
            yield
        if limit <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=0
            )
            break
        topic = broker.image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name, _operations(broker, ctx, name)))
            continue
        described = topic.partitions[first : first + limit]
        row = _described(topic, first, described, reachable)
        row.topic_authorized_operations = _operations(broker, ctx, name)
        response.topics.append(row)
        limit -= len(described)
        if first + len(described) < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=first + len(described)
            )
            break
        first = 0
    return response


def _bad_cursor(name: str) -> DescribeTopicPartitionsResponseTopic:
    """The error for a cursor that names a topic that was not requested, or an invalid partition."""
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)


def _operations(broker: HasAuthorizer, ctx: RequestContext, name: str) -> int:
    return operations_mask(broker, ctx, AclResourceType.TOPIC, name)


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    """The error for a topic that the client may not describe. It does not reveal whether the topic
    exists.
    """
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=ZERO_UUID
    )


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _legal(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        topic_authorized_operations=operations,
    )


def _described(
    topic: TopicImage,
    first: int,
    partitions: tuple[PartitionImage, ...],
    reachable: set[int] | None,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _described_partition(index, partition, reachable)
            for index, partition in enumerate(partitions, first)
        ],
    )


def _described_partition(
    index: int, partition: PartitionImage, reachable: set[int] | None
) -> DescribeTopicPartitionsResponsePartition:
    alive = set(partition.replicas) if reachable is None else reachable
    leader = partition.leader if partition.leader in alive else NO_LEADER
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[
            node for node in partition.replicas if node not in alive or node in partition.offline
        ],
    )
