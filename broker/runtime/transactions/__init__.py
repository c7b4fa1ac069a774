"""Kafka's TransactionCoordinator: its log, markers, producer ids, and transactional produce.
broker.state.transactions makes the decisions.

May import: kstore._fast.broker, kstore._fast.network, kstore._fast.record,
    kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state.metadata,
    kstore.broker.state.transactions, kstore.config, kstore.errors,
    kstore.protocol.coordinator_records, kstore.protocol.transactions, kstore.record,
    kstore.types.
"""
