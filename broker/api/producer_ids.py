"""InitProducerId 0-6 for idempotent producers. Ids come in blocks from the store, as in Kafka's
ZooKeeper era.

Transactional ids are refused: there is no transaction coordinator yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.runtime.producer_ids import ProducerIds
from kstore.errors import ErrorCode
from kstore.protocol.producer_ids import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_init_producer_id"]

NO_PRODUCER_ID = -1
FIRST_EPOCH = 0


async def handle_init_producer_id(
    broker: Broker, request: InitProducerIdRequest, ctx: RequestContext
) -> InitProducerIdResponse:
    """A new producer id at epoch 0: the broker never raises an idempotent producer's epoch."""
    if request.transactional_id is not None:
        # Not retriable for any client, unlike COORDINATOR_NOT_AVAILABLE, which would be asked for
        # ever.
        refused = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if request.transactional_id
            else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=refused, producer_epoch=-1)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if broker.producer_ids is None:
        broker.producer_ids = ProducerIds(broker.store, broker.node_id, broker.run_blocking)
    producer_id = await broker.producer_ids.next_id()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)
