"""Kafka's ShareCoordinator, its log, the Persister that sends requests to it, and the
share-partitions that this broker leads. broker.state.shares and kstore._fast.shares make the
decisions.

May import: kstore._fast.broker, kstore._fast.disk, kstore._fast.network, kstore._fast.record,
    kstore._fast.shares, kstore.broker.runtime, kstore.broker.state.distribution,
    kstore.broker.state.metadata, kstore.broker.state.shares, kstore.errors, kstore.log,
    kstore.protocol.coordinator_records, kstore.protocol.schema, kstore.protocol.shares,
    kstore.types.
"""
