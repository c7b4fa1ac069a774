"""InitProducerId 0-5, for idempotent and transactional producers. Ids are allocated from blocks in
the coordination store, as in Kafka with ZooKeeper.

broker/state/transactions/steps.py decides about transactional producers.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from kstore.acls import CLUSTER_NAME, AclOperation, AclResourceType
from kstore.broker.api.security.access import allowed_any, allowed_cluster, note_denied
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.transactions.parts import ProducerIdParts
    from kstore.broker.state.transactions.steps import Claim, Decision

__all__ = ["handle_init_producer_id"]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
FIRST_EPOCH = 0
FIRST_WITH_PRODUCER_FENCED = 4
LARGEST_LEAST_ID = 1 << 62


async def handle_init_producer_id(
    broker: ProducerIdParts, request: InitProducerIdRequest, ctx: RequestContext
) -> InitProducerIdResponse:
    """Return a producer id and its epoch. The epoch of an idempotent producer is always 0."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.least_producer_id >= 0:
        return await _skip_ids(broker, request, ctx)
    if request.transactional_id is not None:
        return await _init_transactional(broker, request, ctx.api_version)
    if not _may_be_idempotent(broker, ctx):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        producer_id = await broker.producer_ids().next_id()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)


async def _skip_ids(
    broker: ProducerIdParts, request: InitProducerIdRequest, ctx: RequestContext
) -> InitProducerIdResponse:
    """Reserve the ids below a number for the producers of another cluster, whose logs are copied to
    this cluster with their producer ids. This request allocates no id.
    """
    if not allowed_cluster(broker, ctx, AclOperation.REPLICATOR_WRITE):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.least_producer_id > LARGEST_LEAST_ID:
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        await broker.producer_ids().skip_to(request.least_producer_id)
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _may_be_idempotent(broker: ProducerIdParts, ctx: RequestContext) -> bool:
    """Whether the client may be idempotent: it needs the right to write to some topic (KIP-679)."""
    needed = AclOperation.IDEMPOTENT_WRITE
    if allowed_cluster(broker, ctx, needed, quiet=True):
        return True
    if allowed_any(broker, ctx, AclOperation.WRITE, AclResourceType.TOPIC):
        return True
    note_denied(broker, ctx, needed, AclResourceType.CLUSTER, CLUSTER_NAME)
    return False


async def _init_transactional(
    broker: ProducerIdParts, request: InitProducerIdRequest, api_version: int
) -> InitProducerIdResponse:
    from kstore.broker.state.transactions.steps import Claim

    if not request.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    transactional_id = request.transactional_id
    claim: Claim | None = None
    if request.producer_id != NO_PRODUCER_ID:
        claim = Claim(request.producer_id, request.producer_epoch)
    coordinator = broker.transactions()
    try:
        decided = coordinator.with_producer_id(
            lambda: coordinator.init_producer_id(
                transactional_id, request.transaction_timeout_ms, claim
            )
        )
        if isinstance(decided, Awaitable):
            decided = await decided
    except KafkaError as error:
        return _refused(error.code)
    decision = cast("Decision", decided)
    code = decision.error_code
    if code == ErrorCode.PRODUCER_FENCED and api_version < FIRST_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code != ErrorCode.NONE:
        return _refused(code)
    return InitProducerIdResponse(
        producer_id=decision.producer.producer_id, producer_epoch=decision.producer.producer_epoch
    )


def _refused(error_code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_epoch=NO_EPOCH)
