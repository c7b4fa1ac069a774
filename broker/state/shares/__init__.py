"""Share-partitions as values (Kafka's ShareCoordinatorShard, without its loop): their state, its
epochs and its records. It reads no clock and holds no record that a consumer reads.

May import: kstore.broker.state, kstore.errors, kstore.protocol.coordinator_records.
"""
