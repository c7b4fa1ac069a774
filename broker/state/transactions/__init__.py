"""Transactional ids as values (Kafka's TransactionCoordinator, without its loop): their states,
epochs and records. It writes no markers and reads no clock.

May import: kstore.broker.state, kstore.errors, kstore.protocol.coordinator_records,
    kstore.protocol.transactions, kstore.types.
"""
