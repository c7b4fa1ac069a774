"""Share-partitions as values (Kafka's ShareCoordinatorShard, without its loop): their state, its
epochs and its records. It reads no clock and has no records that consumers read.

May import: kstore.broker.state, kstore.errors, kstore.protocol.coordinator_records.
"""
