"""The Kafka clients of kstore: Producer, Consumer and AdminClient, synchronous, in one process.

They work with kstore and with Apache Kafka brokers. Each is imported when it is first asked for.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.admin, kstore.clients.core,
    kstore.clients.io, kstore.config.client, kstore.record, kstore.types.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "kstore.clients":
    raise ImportError("this package is imported as kstore.clients, not as " + repr(__name__))

if TYPE_CHECKING:
    from kstore.clients.admin import AdminClient, AIOAdminClient, NewTopic
    from kstore.clients.aio_consumer import AIOConsumer
    from kstore.clients.consumer import (
        Consumer,
        ConsumerRecord,
        CorruptRecordError,
        LogTruncationError,
        RebalanceListener,
        WakeupError,
    )
    from kstore.clients.core.consumer.subscription import SubscriptionPattern
    from kstore.clients.core.group.assignors import Assignor, Subscription
    from kstore.clients.producer import (
        AIOProducer,
        Deliveries,
        Delivery,
        Producer,
        ProducerRecord,
    )

__all__ = [
    "AIOAdminClient",
    "AIOConsumer",
    "AIOProducer",
    "AdminClient",
    "Assignor",
    "Consumer",
    "ConsumerRecord",
    "CorruptRecordError",
    "Deliveries",
    "Delivery",
    "LogTruncationError",
    "NewTopic",
    "Producer",
    "ProducerRecord",
    "RebalanceListener",
    "Subscription",
    "SubscriptionPattern",
    "WakeupError",
]

_MODULES = {
    "AIOAdminClient": "admin",
    "AIOConsumer": "aio_consumer",
    "AIOProducer": "producer",
    "AdminClient": "admin",
    "Assignor": "core.group.assignors",
    "Consumer": "consumer",
    "ConsumerRecord": "consumer",
    "CorruptRecordError": "consumer",
    "Deliveries": "producer",
    "Delivery": "producer",
    "LogTruncationError": "consumer",
    "NewTopic": "admin",
    "Producer": "producer",
    "ProducerRecord": "producer",
    "RebalanceListener": "consumer",
    "Subscription": "core.group.assignors",
    "SubscriptionPattern": "core.consumer.subscription",
    "WakeupError": "consumer",
}


def __getattr__(name: str) -> Any:
    """Import a client's module when the client is asked for."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'kstore.clients' has no attribute {name!r}")
    return getattr(import_module(f"kstore.clients.{module}"), name)
