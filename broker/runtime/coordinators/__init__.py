"""What the group and the transaction coordinator share (Kafka's CoordinatorRuntime): which
partitions are whose, loading and leaving them. It decides nothing about groups and transactions.

May import: kstore._fast.broker, kstore._fast.log, kstore._fast.record, kstore.broker.runtime,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log, kstore.types.
"""
