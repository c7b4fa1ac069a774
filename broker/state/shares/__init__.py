"""The decisions of Kafka's ShareCoordinator: the state of share-partitions, its epochs and its
records. It reads no clock, and does not read the records of consumers.

May import: kstore.broker.state, kstore.errors, kstore.protocol.coordinator_records.
"""
