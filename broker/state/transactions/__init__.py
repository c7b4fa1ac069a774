"""The decisions of Kafka's TransactionCoordinator: states, epochs and records of transactional ids.
It writes no markers and reads no clock.

May import: kstore.broker.state, kstore.errors, kstore.protocol.coordinator_records,
    kstore.protocol.transactions, kstore.types.
"""
